package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Builds appends and overwrites, each with its own Python writer. */
final class LanceWriteBuilder implements SupportsOverwriteV2, SupportsDynamicOverwrite {
  private final Service service;
  private final JsonNode path;
  private final String name;
  private final LogicalWriteInfo info;
  private ObjectNode request = Service.object().put("mode", "append");
  private boolean truncates;
  private String table;
  private JsonNode entry = MissingNode.getInstance();
  private Map<String, String> properties = Map.of();

  LanceWriteBuilder(Service service, JsonNode path, String name, LogicalWriteInfo info) {
    this.service = service;
    this.path = path;
    this.name = name;
    this.info = info;
  }

  /** Set the complete request: what to replace, or which stage to write. */
  LanceWriteBuilder asking(ObjectNode request) {
    this.request = request;
    return this;
  }

  /** Set the table's catalog entry; null if it must be loaded again. */
  LanceWriteBuilder withEntry(JsonNode entry) {
    this.entry = entry;
    return this;
  }

  /** Set the table's id, to find out whether the statement also reads the table. */
  LanceWriteBuilder to(String table) {
    this.table = table;
    return this;
  }

  /** Set the table's properties, which may require an order of rows. */
  LanceWriteBuilder withProperties(Map<String, String> properties) {
    this.properties = properties;
    return this;
  }

  @Override
  public WriteBuilder truncate() {
    truncates = true;
    if (request.path("mode").asText().equals("append")) {
      request.put("mode", "overwrite");
    }
    return this;
  }

  /** Accept only a filter for all rows: Lance has no commit that deletes some rows and appends others. */
  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    for (Predicate predicate : predicates) {
      if (!predicate.name().equals("ALWAYS_TRUE")) {
        throw LanceException.unsupported(
            "Table " + name + " can be overwritten as a whole only, not where " + predicate.describe()
                + ": DELETE those rows and INSERT the new ones, or use MERGE");
      }
    }
    return truncate();
  }

  /** Replace the whole table, because it has no partitions. */
  @Override
  public WriteBuilder overwriteDynamicPartitions() {
    return truncate();
  }

  @Override
  public Write build() {
    guardWhatWasRead();
    Map<String, String> options = service.options(path, info.options().asCaseSensitiveMap());
    options.put(Service.WRITE, request.toString());
    if (entry.isObject()) {
      options.put(Service.ENTRY, entry.toString());
    }
    SupportsWrite sink =
        (SupportsWrite) new ServiceProvider(service).getTable(info.schema(), new Transform[0], options);
    WriteBuilder builder = sink.newWriteBuilder(new Info(info, new CaseInsensitiveStringMap(options)));
    Write write = (truncates ? ((SupportsTruncate) builder).truncate() : builder).build();
    return OrderedWrite.of(new LanceWrite(write, name), name, info.schema(), properties);
  }

  /** Make concurrent changes a conflict if the new rows are computed from the old ones: none may be lost. */
  private void guardWhatWasRead() {
    if (table == null || !request.path("mode").asText().equals("overwrite")) {
      return;
    }
    OptionalLong version = StatementReads.of(ScanOptions.keyOf(table, info.options().get("branch")));
    if (version.isPresent()) {
      request.put("version", version.getAsLong()).put("guard", true);
    }
  }

  /** Spark's description of the write, with our options. */
  private static final class Info implements LogicalWriteInfo {
    private final LogicalWriteInfo info;
    private final CaseInsensitiveStringMap options;

    Info(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
      this.info = info;
      this.options = options;
    }

    @Override
    public CaseInsensitiveStringMap options() {
      return options;
    }

    @Override
    public String queryId() {
      return info.queryId();
    }

    @Override
    public StructType schema() {
      return info.schema();
    }
  }
}
