package org.lancebridge.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The way to the Python half: the data source `lance`, looked up by its short name.
 *
 * <p>A metadata call is an inferred schema: the source answers `schema()` with JSON in a field's metadata. That needs
 * no port and no process of ours, and works wherever Spark can run a Python data source, behind Spark Connect as well.
 * The lookup is the one call here that is not part of Spark's public interfaces.
 */
final class Service {
  static final String SCAN = "lance_bridge.scan";
  static final String WRITE = "lance_bridge.write";
  /** The word `secret` makes Spark redact the option wherever it shows options. */
  static final String ENTRY = "lance_bridge.secret.entry";
  private static final String SOURCE = "lance";
  private static final String TABLE = "lance_bridge.table";
  private static final String OPERATION = "lance_bridge.op";
  private static final String ARGUMENTS = "lance_bridge.args";
  /** The word `secret` makes Spark redact the option wherever it shows options. */
  private static final String CATALOG = "lance_bridge.secret.catalog";

  private static final ObjectMapper JSON = new ObjectMapper();

  private final String name;
  private final String catalog;

  Service(String name, Map<String, String> properties) {
    this.name = name;
    ObjectNode address = object().put("name", name);
    address.set("properties", JSON.valueToTree(properties));
    this.catalog = address.toString();
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
  TableProvider provider() {
    Option<TableProvider> found;
    try {
      found = DataSource.lookupDataSourceV2(SOURCE, SQLConf.get());
    } catch (Throwable error) {
      if (error instanceof SparkThrowable && "DATA_SOURCE_NOT_FOUND".equals(((SparkThrowable) error).getCondition())) {
        found = Option.empty();
      } else {
        throw error;
      }
    }
    if (found.isEmpty()) {
      throw LanceException.unsupported(
          "Spark does not know the data source `lance`: install lance-bridge where the driver's Python finds it, "
              + "or call lance_bridge_spark.register(spark)");
    }
    return found.get();
  }

  /** The options of a relation on a table: what the user gave, and where the table is. */
  Map<String, String> options(JsonNode table, Map<String, String> given) {
    Map<String, String> options = new HashMap<>();
    given.forEach((key, value) -> {
      if (!key.startsWith("lance_bridge.")) {
        options.put(key, value);
      }
    });
    options.put(CATALOG, catalog);
    options.put(TABLE, table.toString());
    return options;
  }

  /** Ask the namespace; an error of its own comes as a {@link LanceException} with its code. */
  JsonNode call(String operation, ObjectNode arguments) throws LanceException {
    Map<String, String> options = new HashMap<>();
    options.put(CATALOG, catalog);
    options.put(OPERATION, operation);
    options.put(ARGUMENTS, arguments.toString());
    String text =
        provider().inferSchema(new CaseInsensitiveStringMap(options)).fields()[0].metadata().getString("json");
    JsonNode answer;
    try {
      answer = JSON.readTree(text);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException("The answer to " + operation + " is not JSON", error);
    }
    JsonNode error = answer.path("error");
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
}
