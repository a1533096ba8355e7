package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * One catalog's way to Python: calls to the {@link PythonService}, and the data source `lance` for tasks.
 *
 * <p>Spark's own classes for data sources in Python are not part of its public interfaces.
 */
final class Service {
  static final String SOURCE = "lance";
  static final String SCAN = "lance_bridge.scan";
  static final String WRITE = "lance_bridge.write";
  /** The word `secret` makes Spark redact the option wherever it shows options. */
  static final String ENTRY = "lance_bridge.secret.entry";
  private static final String TABLE = "lance_bridge.table";
  /** The word `secret` makes Spark redact the option wherever it shows options. */
  private static final String CATALOG = "lance_bridge.secret.catalog";

  /** Operations that change nothing, or find what they have changed before. */
  private static final Set<String> REPEATABLE = Set.of(
      "list_namespaces", "load_namespace", "list_tables", "table_exists", "load_table", "fragments",
      "plan_read", "plan_write", "commit_write", "abort_write", "abort_staged");
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String name;
  private final ObjectNode catalog;

  Service(String name, Map<String, String> properties) {
    this.name = name;
    this.catalog = object().put("name", name);
    this.catalog.set("properties", JSON.valueToTree(properties));
  }

  /** What the catalog is called in the session. */
  String catalogName() {
    return name;
  }

  static ObjectNode object() {
    return JSON.createObjectNode();
  }

  static JsonNode tree(Object value) {
    return JSON.valueToTree(value);
  }

  /** The columns that an answer describes. */
  static StructType schemaOf(JsonNode described) {
    return (StructType) DataType.fromJson(described.get("schema").asText());
  }

  /** The properties that an answer describes. */
  static Map<String, String> propertiesOf(JsonNode described) {
    Map<String, String> properties = new TreeMap<>();
    described.path("properties").fields()
        .forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
    return properties;
  }

  /** A new provider each time: Spark's keeps the state of one relation, and shared by scans it gives wrong rows. */
  PythonDataSourceV2 provider() {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(SOURCE);
    try {
      provider.source(); // looks it up
    } catch (Throwable error) {
      if (error instanceof SparkThrowable && "DATA_SOURCE_NOT_EXIST".equals(((SparkThrowable) error).getCondition())) {
        throw LanceException.unsupported(
            "Spark does not know the data source `lance`: install lance-bridge where the driver's Python finds it, "
                + "or call lance_bridge_spark.register(spark)");
      }
      throw error;
    }
    return provider;
  }

  /** The options of a relation on a table: what the user gave, and where the table is. */
  Map<String, String> options(JsonNode table, Map<String, String> given) {
    Map<String, String> options = new HashMap<>();
    given.forEach((key, value) -> {
      if (!key.startsWith("lance_bridge.")) {
        options.put(key, value);
      }
    });
    options.put(CATALOG, catalog.toString());
    options.put(TABLE, table.toString());
    return options;
  }

  /** Ask the namespace; an error of its own comes as a {@link LanceException} with its code. */
  JsonNode call(String operation, ObjectNode arguments) throws LanceException {
    return call(operation, arguments, List.of()).json.path("answer");
  }

  /** The same for operations that take or give bytes beside JSON. */
  Message call(String operation, ObjectNode arguments, List<byte[]> parts) throws LanceException {
    ObjectNode call = object().put("op", operation);
    call.set("catalog", catalog);
    call.set("args", arguments);
    Message answer =
        PythonService.of(PythonSetup.of(provider())).ask(call, parts, REPEATABLE.contains(operation));
    JsonNode error = answer.json.path("error");
    if (!error.isMissingNode()) {
      throw new LanceException(error.path("code").asInt(), error.path("message").asText());
    }
    return answer;
  }

  /** The same where every error is the user's to see. */
  JsonNode ask(String operation, ObjectNode arguments) {
    try {
      return call(operation, arguments);
    } catch (LanceException error) {
      throw error.unchecked();
    }
  }

  /** The same for bytes. */
  Message ask(String operation, ObjectNode arguments, List<byte[]> parts) {
    try {
      return call(operation, arguments, parts);
    } catch (LanceException error) {
      throw error.unchecked();
    }
  }
}
