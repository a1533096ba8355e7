package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The checked definition of CREATE and REPLACE TABLE: clauses that Lance does not support are refused. */
final class Definition {
  private final StructType schema;
  private final Map<String, String> properties;

  Definition(String table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    checkLayout(table, partitions);
    checkProvider(table, properties.get(TableCatalog.PROP_PROVIDER));
    this.schema = schemaOf(table, columns);
    OrderedWrite.check(table, schema, properties);
    this.properties = new TreeMap<>(properties);
    this.properties.remove(TableCatalog.PROP_PROVIDER);
  }

  ObjectNode into(ObjectNode arguments) {
    arguments.put("schema", schema.json());
    arguments.set("properties", Service.tree(properties));
    return arguments;
  }

  StructType schema() {
    return schema;
  }

  private static void checkLayout(String table, Transform[] partitions) {
    for (Transform transform : partitions) {
      String clause = transform.name().equals("cluster_by") ? "CLUSTER BY"
          : transform.name().endsWith("bucket") ? "CLUSTERED BY ... BUCKETS" : "PARTITIONED BY";
      throw LanceException.unsupported(
          "Table " + table + " cannot have " + clause + ": Lance tables have no partitions; leave the clause out, "
              + "and create an index on the columns that queries select by");
    }
  }

  private static void checkProvider(String table, String provider) {
    if (provider == null || provider.equalsIgnoreCase("lance") || isDefault(provider)) {
      return;
    }
    throw LanceException.invalid(
        "Table " + table + " cannot be USING " + provider + ": tables of this catalog are Lance tables, "
            + "so write USING lance, in DataFrames .format(\"lance\"), or leave it out");
  }

  /** Return whether a writer passes the session's default format, as it does when it was given none. */
  private static boolean isDefault(String provider) {
    return provider.equalsIgnoreCase(SQLConf.get().defaultDataSourceName()) && RunningStatement.isOfWriter();
  }

  private static StructType schemaOf(String table, Column[] columns) {
    StructType schema = new StructType();
    for (Column column : columns) {
      checkValues(table, column);
      schema = schema.add(new StructField(column.name(), column.dataType(), column.nullable(), metadata(column)));
    }
    return schema;
  }

  private static void checkValues(String table, Column column) {
    String what = column.defaultValue() != null ? "a default value"
        : column.generationExpression() != null ? "a generation expression"
        : column.identityColumnSpec() != null ? "identity values" : null;
    if (what != null) {
      throw LanceException.unsupported(
          "Column " + column.name() + " of table " + table + " cannot have " + what
              + ": Lance tables do not support it; write the values with each INSERT");
    }
  }

  private static Metadata metadata(Column column) {
    Metadata given = column.metadataInJSON() == null ? Metadata.empty() : Metadata.fromJson(column.metadataInJSON());
    if (column.comment() == null) {
      return given;
    }
    return new MetadataBuilder().withMetadata(given).putString("comment", column.comment()).build();
  }
}
