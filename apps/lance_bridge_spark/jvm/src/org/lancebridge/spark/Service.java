package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
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
 * A catalog's access to Python: calls to the {@link PythonService}, and the data source `lance` for tasks.
 *
 * <p>Spark's classes for data sources in Python, which this uses, are not public interfaces.
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

  /** Operations that change nothing. */
  private static final Set<String> READS = Set.of(
      "list_namespaces", "load_namespace", "list_tables", "table_exists", "load_table", "fragments",
      "plan_read", "plan_write", "describe_procedures", "metadata_rows");
  /** Operations that detect that they are repeated. */
  private static final Set<String> REPEATABLE = Set.of("commit_write", "abort_write", "abort_staged");
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String name;
  private final ObjectNode catalog;

  Service(String name, Map<String, String> properties) {
    this.name = name;
    this.catalog = object().put("name", name);
    this.catalog.set("properties", JSON.valueToTree(properties));
  }

  /** The catalog's name in the session. */
  String catalogName() {
    return name;
  }

  static ObjectNode object() {
    return JSON.createObjectNode();
  }

  static JsonNode tree(Object value) {
    return JSON.valueToTree(value);
  }

  /** Return the columns in a response. */
  static StructType schemaOf(JsonNode described) {
    return (StructType) DataType.fromJson(described.get("schema").asText());
  }

  /** Return the properties in a response. */
  static Map<String, String> propertiesOf(JsonNode described) {
    Map<String, String> properties = new TreeMap<>();
    described.path("properties").fields()
        .forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
    return properties;
  }

  /** Return a new provider: it keeps the state of one relation, so that sharing it would return wrong rows. */
  PythonDataSourceV2 provider() {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(SOURCE);
    try {
      provider.source(); // looks up the data source
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

  PythonSetup python() {
    return PythonSetup.of(provider());
  }

  /** Return the options of a relation: the user's options and the table's address. */
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

  /** Call the namespace; its errors are thrown as a {@link LanceException} with their code. */
  JsonNode call(String operation, ObjectNode arguments) throws LanceException {
    return call(operation, arguments, List.of()).json.path("answer");
  }

  /** Call an operation that sends or returns bytes in addition to JSON. */
  Message call(String operation, ObjectNode arguments, List<byte[]> parts) throws LanceException {
    return call(operation, arguments, parts, ServiceSettings.timeout());
  }

  private Message call(String operation, ObjectNode arguments, List<byte[]> parts, Duration timeout)
      throws LanceException {
    ObjectNode call = object().put("op", operation);
    call.set("catalog", catalog);
    call.set("args", arguments);
    Message answer = PythonService.of(python()).ask(call, parts, effectOf(operation), timeout);
    JsonNode error = answer.json.path("error");
    if (!error.isMissingNode()) {
      throw new LanceException(error.path("code").asInt(), error.path("message").asText());
    }
    return answer;
  }

  private static PythonService.Effect effectOf(String operation) {
    if (READS.contains(operation)) {
      return PythonService.Effect.NONE;
    }
    return REPEATABLE.contains(operation) ? PythonService.Effect.REPEATABLE : PythonService.Effect.ONCE;
  }

  /** Call the namespace, and throw all its errors to the user. */
  JsonNode ask(String operation, ObjectNode arguments) {
    try {
      return call(operation, arguments);
    } catch (LanceException error) {
      throw error.unchecked();
    }
  }

  /** Call an operation that runs jobs, which have no timeout: cancelling the statement cancels them. */
  Message runJobs(String operation, ObjectNode arguments) {
    try {
      return call(operation, arguments, List.of(), null);
    } catch (LanceException error) {
      throw error.unchecked();
    }
  }

  /** Call an operation with bytes, and throw all its errors to the user. */
  Message ask(String operation, ObjectNode arguments, List<byte[]> parts) {
    try {
      return call(operation, arguments, parts);
    } catch (LanceException error) {
      throw error.unchecked();
    }
  }
}
