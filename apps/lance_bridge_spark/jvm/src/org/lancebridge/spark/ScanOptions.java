package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The options of one read, from SQL's `WITH (...)` or a DataFrame reader: its version, and whether it is a search.
 */
final class ScanOptions {
  private static final Set<String> REFERENCES =
      Set.of("version", "tag", "branch", "timestamp", "versionasof", "timestampasof", "as-of-timestamp");
  /** Options by which Spark itself chooses the version that it loads. */
  private static final Set<String> OF_SPARK = Set.of("versionasof", "timestampasof");
  /** Options that do not change which rows are read. */
  private static final Set<String> READ_SETTINGS =
      Set.of("batch_size", "rows_per_task", "bytes_per_task", "path", "catalog", "with_row_id", "split-size", "mergeschema");

  private final Map<String, String> given = new TreeMap<>();
  private final Map<String, String> references = new TreeMap<>();
  private final JsonNode state;

  /** @param options the options in the user's spelling */
  ScanOptions(LanceTable table, Map<String, String> options) {
    boolean chosen = table.state().has("chosen") || table.state().has("branch");
    options.forEach((key, value) -> {
      String name = key.toLowerCase(Locale.ROOT);
      if (!chosen || !OF_SPARK.contains(name)) {
        (REFERENCES.contains(name) ? references : given).put(key, value);
      }
    });
    this.state = references.isEmpty() ? table.state() : referred(table, references);
  }

  /** Load the chosen version. Its schema must be the table's, with which Spark has analysed the query. */
  private static JsonNode referred(LanceTable table, Map<String, String> references) {
    ObjectNode arguments = table.arguments();
    arguments.set("options", Service.tree(references));
    arguments.put("zone", SQLConf.get().sessionLocalTimeZone());
    JsonNode state = table.service().ask("load_table", arguments);
    if (!Service.schemaOf(state).equals(table.schema())) {
      throw LanceException.invalid(
          "Table " + table.name() + " has other columns at " + references + " than now: select it with VERSION AS OF "
              + "or TIMESTAMP AS OF in SQL, or read it with format(\"lance\")");
    }
    return state;
  }

  /** The options to pass on. */
  Map<String, String> given() {
    return given;
  }

  /** The options that choose a version or a branch. */
  Map<String, String> references() {
    return references;
  }

  long rows() {
    return state.path("rows").asLong(-1);
  }

  /** The name by which Python keeps the table that it has loaded for this statement. */
  JsonNode loaded() {
    return state.path("loaded");
  }

  ObjectNode version() {
    ObjectNode version = Service.object();
    version.set("version", state.path("version"));
    version.put("branch", state.path("branch").asText(null));
    return version;
  }

  /** Record this version for the write of the same statement, unless the user chose it. */
  void noteRead() {
    if (!state.path("chosen").asBoolean()) {
      StatementReads.add(keyOf(state.path("id").asText(), state.path("branch").asText(null)),
          state.path("version").asLong());
    }
  }

  /** Return the key of one branch of a table. */
  static String keyOf(String table, String branch) {
    return table + "@" + (branch == null || branch.equals("main") ? "" : branch);
  }

  /** Return whether it reads a search or a limited number of rows, so that nothing can be pushed down. */
  boolean searches() {
    return given.keySet().stream().map(String::toLowerCase)
        .anyMatch(key -> key.startsWith("nearest.") || key.startsWith("full_text.") || key.equals("limit"));
  }

  /** Return whether all rows of the version are read, so that its metadata count them. */
  boolean isPlain() {
    return READ_SETTINGS.containsAll(given.keySet().stream().map(String::toLowerCase).toList());
  }

  /** Throw an exception if the schema has columns of a search, and the scan is not that search. */
  void checkSearched(StructType schema) {
    for (StructField field : schema.fields()) {
      String needed = MetadataColumns.searchOf(field.name());
      boolean searched =
          given.keySet().stream().anyMatch(key -> needed == null || key.toLowerCase(Locale.ROOT).startsWith(needed));
      if (needed != null && !searched) {
        throw LanceException.invalid(
            "Column " + field.name() + " belongs to a search: give the options `" + needed + "column`, `" + needed
                + "query`, in SQL with the table's WITH (...)");
      }
    }
  }
}
