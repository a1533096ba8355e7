package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** A table of CREATE or REPLACE TABLE ... AS SELECT, which is not visible before all its rows are written. */
final class StagedLanceTable implements StagedTable, SupportsWrite {
  private final Service service;
  private final JsonNode path;
  private final String name;
  private final JsonNode stage;
  private final StructType schema;
  private final Map<String, String> properties;
  private boolean written;
  private boolean maybeCommitted;

  /** @param answer the response of `stage_create` or `stage_replace` */
  StagedLanceTable(Service service, JsonNode path, String name, JsonNode answer, StructType asked) {
    this.service = service;
    this.path = path;
    this.name = name;
    this.stage = answer.get("stage");
    this.schema = answer.hasNonNull("schema") ? Service.schemaOf(answer) : asked;
    this.properties = Service.propertiesOf(answer);
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
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    written = true;
    ObjectNode request = Service.object().put("mode", "stage");
    request.set("stage", stage);
    return new LanceWriteBuilder(service, path, name, info).asking(request).withProperties(properties);
  }

  @Override
  public void commitStagedChanges() {
    maybeCommitted = true;
    try {
      service.call("commit_staged", arguments().put("written", written));
    } catch (LanceException error) {
      maybeCommitted = error.is(LanceException.SERVICE_UNAVAILABLE);
      throw error.unchecked();
    }
  }

  /** Delete the files, unless the commit's reply was lost: the table may use them, or may use them soon. */
  @Override
  public void abortStagedChanges() {
    if (!maybeCommitted) {
      service.ask("abort_staged", arguments());
    }
  }

  private ObjectNode arguments() {
    ObjectNode arguments = Service.object();
    arguments.set("table", path);
    arguments.set("stage", stage);
    return arguments;
  }
}
