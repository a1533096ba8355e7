package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table as described by the namespace; all reads through this object see the same version. */
final class LanceTable
    implements SupportsRead, SupportsWrite, SupportsDeleteV2, SupportsMetadataColumns, SupportsRowLevelOperations,
        Unpartitioned {
  private final Service service;
  private final JsonNode path;
  private final String name;
  private final JsonNode state;
  private final StructType schema;
  private final Columns columns;

  /** @param state the response of `load_table` */
  LanceTable(Service service, JsonNode path, String name, JsonNode state) {
    this.service = service;
    this.path = path;
    this.name = name;
    this.state = state;
    this.schema = Service.schemaOf(state);
    this.columns = new Columns(schema, namesIn("converted"), namesIn("opaque"));
  }

  private Set<String> namesIn(String key) {
    Set<String> names = new HashSet<>();
    state.path(key).forEach(column -> names.add(column.asText()));
    return names;
  }

  Service service() {
    return service;
  }

  JsonNode state() {
    return state;
  }

  Columns columnsOfLance() {
    return columns;
  }

  Predicates predicates() {
    return new Predicates(columns);
  }

  /** Return the arguments of a metadata call on this table. */
  ObjectNode arguments() {
    ObjectNode arguments = Service.object();
    arguments.set("table", path);
    return arguments;
  }

  Map<String, String> options(Map<String, String> given) {
    return service.options(path, given);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return Service.propertiesOf(state);
  }

  @Override
  public String id() {
    return state.path("id").asText(null);
  }

  @Override
  public String version() {
    return state.path("version").asText(null);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.TRUNCATE,
        TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC,
        TableCapability.AUTOMATIC_SCHEMA_EVOLUTION,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return MetadataColumns.all();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new LanceScanBuilder(this, new ScanOptions(this, options.asCaseSensitiveMap()));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    requireDistinctNames();
    return writeBuilder(info).to(id()).withProperties(properties());
  }

  /** Return a write to the table as loaded, which is planned without a call to the catalog. */
  LanceWriteBuilder writeBuilder(LogicalWriteInfo info) {
    return new LanceWriteBuilder(service, path, name, info).withEntry(state.path("entry"));
  }

  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    return where(predicates) != null;
  }

  @Override
  public void deleteWhere(Predicate[] predicates) {
    service.ask("delete_where", arguments().put("where", where(predicates)));
  }

  @Override
  public boolean truncateTable() {
    service.ask("truncate", arguments());
    return true;
  }

  private String where(Predicate[] predicates) {
    StringBuilder all = new StringBuilder();
    for (Predicate predicate : predicates) {
      String sql = predicates().translate(predicate);
      if (sql == null) {
        return null;
      }
      all.append(all.length() == 0 ? "" : " AND ").append(sql);
    }
    return all.length() == 0 ? "true" : all.toString();
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    requireDistinctNames();
    return () -> new FragmentRewrite(this, info);
  }

  /** Refuse a write in which Spark takes one column for another, and writes its values to both. */
  private void requireDistinctNames() {
    String[] alike = SQLConf.get().caseSensitiveAnalysis() ? null : Columns.alike(schema);
    if (alike != null) {
      throw LanceException.invalid(
          "Columns or fields '" + alike[0] + "' and '" + alike[1] + "' of table " + name + " differ only in letter case,"
              + " and Spark would write one's values to both: SET spark.sql.caseSensitive=true, or rename one");
    }
  }

  /** Return the estimated size of some columns of some rows, by the table's size if known. */
  long bytesOf(StructType some, long rows) {
    long whole = Math.max(1, widthOf(schema));
    long known = state.path("bytes").asLong(-1);
    long all = state.path("rows").asLong(-1);
    double perRow = known > 0 && all > 0 ? (double) known / all : whole;
    return Math.max(1, (long) (rows * perRow * widthOf(some) / whole));
  }

  private static long widthOf(StructType columns) {
    long width = 8;
    for (StructField field : columns.fields()) {
      width += field.dataType().defaultSize();
    }
    return width;
  }
}
