package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Appends and overwrites, which a Python writer of their own does. */
final class LanceWriteBuilder implements SupportsOverwriteV2 {
  private final Service service;
  private final JsonNode path;
  private final String name;
  private final LogicalWriteInfo info;
  private ObjectNode request = Service.object().put("mode", "append");
  private boolean truncates;

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
  public boolean canOverwrite(Predicate[] predicates) {
    for (Predicate predicate : predicates) {
      if (!predicate.name().equals("ALWAYS_TRUE")) {
        return false;
      }
    }
    return true;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    if (!canOverwrite(predicates)) {
      throw LanceException.unsupported(
          "Table " + name + " can be overwritten as a whole only: DELETE the rows of the condition, then append, "
              + "or use MERGE");
    }
    return truncate();
  }

  @Override
  public Write build() {
    Map<String, String> options = service.options(path, info.options().asCaseSensitiveMap());
    options.put(Service.WRITE, request.toString());
    SupportsWrite sink =
        (SupportsWrite) service.provider().getTable(info.schema(), new Transform[0], options);
    WriteBuilder builder = sink.newWriteBuilder(new Info(info, new CaseInsensitiveStringMap(options)));
    return (truncates ? ((SupportsTruncate) builder).truncate() : builder).build();
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
