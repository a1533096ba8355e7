package org.lancebridge.spark;

import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns that a predicate or an aggregate may name in Lance's SQL, with the types that Spark sees. */
final class Columns {
  /** Lance's parser does not find every name again that Lance stores; these it does. */
  private static final Pattern SAFE = Pattern.compile("[\\p{L}\\p{N}_ -]+");

  private final StructType schema;
  private final Set<String> converted;

  /** @param converted top-level columns whose stored values are not those that Spark sees */
  Columns(StructType schema, Set<String> converted) {
    this.schema = schema;
    this.converted = converted;
  }

  /** A column with its name in SQL. */
  static final class Reference {
    final String sql;
    final DataType type;
    /** Its stored values are those that Spark sees, so comparing them in Lance is comparing them in Spark. */
    final boolean asStored;

    Reference(String sql, DataType type, boolean asStored) {
      this.sql = sql;
      this.type = type;
      this.asStored = asStored;
    }
  }

  /** Return the column, perhaps a field of structs, or null where it is none of the table's or has no safe name. */
  Reference find(Expression expression) {
    if (!(expression instanceof NamedReference)) {
      return null;
    }
    String[] path = ((NamedReference) expression).fieldNames();
    StringBuilder sql = new StringBuilder();
    DataType type = schema;
    for (String part : path) {
      StructField field = type instanceof StructType ? named((StructType) type, part) : null;
      if (field == null || !SAFE.matcher(part).matches()) {
        return null;
      }
      sql.append(sql.length() == 0 ? "`" : ".`").append(part).append('`');
      type = field.dataType();
    }
    return new Reference(sql.toString(), type, !converted.contains(path[0]));
  }

  /** Return the type of a top-level column whose stored values are those that Spark sees, or null. */
  DataType typeOfTopLevel(Expression expression) {
    Reference found = find(expression);
    boolean usable = found != null && found.asStored && ((NamedReference) expression).fieldNames().length == 1;
    return usable ? found.type : null;
  }

  private static StructField named(StructType struct, String name) {
    for (StructField field : struct.fields()) {
      if (field.name().equals(name)) {
        return field;
      }
    }
    return null;
  }
}
