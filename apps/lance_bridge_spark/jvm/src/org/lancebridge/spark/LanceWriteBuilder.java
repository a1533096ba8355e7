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

/** Appends and overwrites, which a Python writer of their own does. */
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

  /** Say it in full: what to replace, or for which stage to write. */
  LanceWriteBuilder asking(ObjectNode request) {
    this.request = request;
    return this;
  }

  /** Say what the catalog has of the table; null where that must be loaded again. */
  LanceWriteBuilder withEntry(JsonNode entry) {
    this.entry = entry;
    return this;
  }

  /** Say which table it is, to find out whether the statement reads it, too. */
  LanceWriteBuilder to(String table) {
    this.table = table;
    return this;
  }

  /** Say which properties of the table may ask for an order of rows. */
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

  /** Only all rows: Lance has no commit that deletes some and appends others. */
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

  /** A table without partitions has one part to replace, which is all of it. */
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
    return OrderedWrite.of(write, name, info.schema(), properties);
  }

  /** Rows that others add meanwhile must not be lost where the new rows are made of the old ones. */
  private void guardWhatWasRead() {
    if (table == null || !request.path("mode").asText().equals("overwrite")) {
      return;
    }
    OptionalLong version = StatementReads.of(ScanOptions.keyOf(table, info.options().get("branch")));
    if (version.isPresent()) {
      request.put("version", version.getAsLong()).put("guard", true);
    }
  }

  /** The write as Spark describes it, with our options. */
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
