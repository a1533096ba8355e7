package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table about a table, such as `prod.sales.orders.versions`: its rows are read when a query is planned. */
final class LanceMetadataTable implements SupportsRead {
  private final Service service;
  private final JsonNode path;
  private final String name;
  private final StructType schema;

  /** @param state the response of `load_table` */
  LanceMetadataTable(Service service, JsonNode path, String name, JsonNode state) {
    this.service = service;
    this.path = path;
    this.name = name;
    this.schema = Service.schemaOf(state);
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
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    if (!options.isEmpty()) {
      throw LanceException.invalid(
          "Metadata table " + name + " takes no options, such as '" + options.keySet().iterator().next()
              + "': it describes its table as it is now");
    }
    return () -> new LocalRows(name, schema, this::rows);
  }

  private Message rows() {
    ObjectNode arguments = Service.object();
    arguments.set("table", path);
    return service.ask("metadata_rows", arguments, List.of());
  }
}
