package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog of Lance tables. It is configured by `spark.sql.catalog.prod=org.lancebridge.spark.LanceCatalog`,
 * `spark.sql.catalog.prod.impl=hive` (or glue, unity) and that catalog's properties.
 *
 * <p>It contains neither Lance nor a metastore client: the Python half ({@link Service}) handles its calls, and a
 * Python data source each read and write.
 */
public final class LanceCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  /** The property that names the secrets that a catalog of an earlier session was registered with. */
  private static final String LEFT_OUT = "left_out";

  private Service service;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    SparkVersions.check(SparkVersions.current());
    if (name.equals(LanceSessionCatalog.NAME)) {
      throw LanceException.invalid(
          "Spark's session catalog holds tables of all formats: set spark.sql.catalog.spark_catalog to "
              + LanceSessionCatalog.class.getName() + ", or give this catalog a name of its own, such as "
              + "spark.sql.catalog.prod");
    }
    Map<String, String> properties = new TreeMap<>(options.asCaseSensitiveMap());
    requireSecrets(name, properties);
    open(name, properties);
  }

  /** Refuse a catalog without the secrets that an earlier session has not passed on; the session may have its own. */
  private static void requireSecrets(String name, Map<String, String> properties) {
    String secrets = properties.remove(LEFT_OUT);
    if (secrets == null) {
      return;
    }
    String missing = Stream.of(secrets.split(",")).map(String::strip)
        .filter(key -> !key.isEmpty() && !properties.containsKey(key)).collect(Collectors.joining(", "));
    if (!missing.isEmpty()) {
      throw LanceException.invalid(
          "Catalog " + name + " was registered in an earlier session with secrets (" + missing + "), which this one "
              + "does not have: call lance_bridge_spark.register(spark)");
    }
  }

  Service service() {
    return service;
  }

  /** Use a catalog of these properties, under a name in the session. */
  void open(String name, Map<String, String> properties) {
    this.service = new Service(name, properties);
    LanceFunctions.register();
  }

  @Override
  public String name() {
    return service.catalogName();
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {"default"};
  }

  // Tables.

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    JsonNode names = inNamespace("list_tables", namespace, Service.object()).get("tables");
    Identifier[] tables = new Identifier[names.size()];
    for (int i = 0; i < tables.length; i++) {
      tables[i] = Identifier.of(namespace, names.get(i).asText());
    }
    return tables;
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(SearchName.table(table), Service.object());
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(SearchName.table(table), Service.object().put("version", version));
  }

  @Override
  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    return load(SearchName.table(table), Service.object().put("timestamp_us", micros));
  }

  @Override
  public boolean tableExists(Identifier table) {
    try {
      return service.call("table_exists", about(table)).path("exists").asBoolean();
    } catch (LanceException error) {
      if (error.is(LanceException.TABLE_NOT_FOUND) || error.is(LanceException.NAMESPACE_NOT_FOUND)) {
        return false;
      }
      throw error.unchecked();
    }
  }

  @Override
  public Table createTable(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    checkConstraints(table, info);
    return createTable(table, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Definition definition = new Definition(nameOf(table), columns, partitions, properties);
    return table(table, created("create_table", table, definition));
  }

  /** CREATE TABLE ... LIKE of Spark 4.2 and later; without Override, because 4.1 does not have the method. */
  public Table createTableLike(Identifier table, TableInfo info, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return createTable(table, info);
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    ObjectNode arguments = about(table);
    arguments.set("changes", Changes.ofTable(changes));
    arguments.put("evolves", !RunningStatement.isAlterTable());
    return table(table, ofTable("alter_table", table, arguments));
  }

  @Override
  public boolean dropTable(Identifier table) {
    return drop(table, false);
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return drop(table, true);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    ObjectNode arguments = about(from);
    arguments.set("to", path(to));
    try {
      service.call("rename_table", arguments);
    } catch (LanceException error) {
      if (error.is(LanceException.TABLE_EXISTS)) {
        throw new TableAlreadyExistsException(to);
      }
      throw orNoSuchTable(error, from);
    }
  }

  // Tables that become visible when all their rows are written.

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Definition definition = definition(table, info);
    return staged(table, created("stage_create", table, definition), definition);
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info)
      throws NoSuchTableException, NoSuchNamespaceException {
    Definition definition = definition(table, info);
    ObjectNode arguments = definition.into(about(table)).put("or_create", false);
    return staged(table, ofTable("stage_replace", table, arguments), definition);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
    Definition definition = definition(table, info);
    try {
      ObjectNode arguments = definition.into(about(table)).put("or_create", true);
      return staged(table, service.call("stage_replace", arguments), definition);
    } catch (LanceException error) {
      throw orNoSuchNamespace(error, table.namespace());
    }
  }

  // Namespaces.

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    JsonNode paths = inNamespace("list_namespaces", namespace, Service.object()).get("namespaces");
    String[][] namespaces = new String[paths.size()][];
    for (int i = 0; i < namespaces.length; i++) {
      namespaces[i] = new String[paths.get(i).size()];
      for (int part = 0; part < namespaces[i].length; part++) {
        namespaces[i][part] = paths.get(i).get(part).asText();
      }
    }
    return namespaces;
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    try {
      loadNamespaceMetadata(namespace);
      return true;
    } catch (NoSuchNamespaceException error) {
      return false;
    }
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return Service.propertiesOf(inNamespace("load_namespace", namespace, Service.object()));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties)
      throws NamespaceAlreadyExistsException {
    ObjectNode arguments = Service.object();
    arguments.set("namespace", Service.tree(namespace));
    arguments.set("properties", Service.tree(properties));
    try {
      service.call("create_namespace", arguments);
    } catch (LanceException error) {
      if (error.is(LanceException.NAMESPACE_EXISTS)) {
        throw new NamespaceAlreadyExistsException(namespace);
      }
      throw error.unchecked();
    }
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) throws NoSuchNamespaceException {
    inNamespace("alter_namespace", namespace, Changes.ofNamespace(Service.object(), changes));
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    ObjectNode arguments = Service.object().put("cascade", cascade);
    arguments.set("namespace", Service.tree(namespace));
    try {
      service.call("drop_namespace", arguments);
      return true;
    } catch (LanceException error) {
      if (error.is(LanceException.NAMESPACE_NOT_EMPTY)) {
        throw new NonEmptyNamespaceException(namespace);
      }
      throw orNoSuchNamespace(error, namespace);
    }
  }

  // Procedures.

  @Override
  public UnboundProcedure loadProcedure(Identifier name) {
    return Procedures.load(service, name);
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    return Procedures.isNamespace(namespace) ? Procedures.list(service) : new Identifier[0];
  }

  // Helpers.

  private static ArrayNode path(Identifier table) {
    ArrayNode path = Service.object().putArray("table");
    for (String part : table.namespace()) {
      path.add(part);
    }
    return path.add(table.name());
  }

  private static ObjectNode about(Identifier table) {
    ObjectNode arguments = Service.object();
    arguments.set("table", path(table));
    return arguments;
  }

  private String nameOf(Identifier table) {
    return name() + "." + table;
  }

  private Table table(Identifier table, JsonNode state) {
    return state.has("metadata")
        ? new LanceMetadataTable(service, path(table), nameOf(table), state)
        : new LanceTable(service, path(table), nameOf(table), state);
  }

  private StagedTable staged(Identifier table, JsonNode answer, Definition definition) {
    return new StagedLanceTable(service, path(table), nameOf(table), answer, definition.schema());
  }

  private Definition definition(Identifier table, TableInfo info) {
    checkConstraints(table, info);
    return new Definition(nameOf(table), info.columns(), info.partitions(), info.properties());
  }

  private void checkConstraints(Identifier table, TableInfo info) {
    if (info.constraints() != null && info.constraints().length > 0) {
      throw LanceException.unsupported(
          "Table " + nameOf(table) + " cannot have constraints: Lance does not check them; leave them out");
    }
  }

  private Table load(Identifier table, ObjectNode arguments) throws NoSuchTableException {
    return table(table, ofTable("load_table", table, about(table).setAll(arguments)));
  }

  private JsonNode ofTable(String operation, Identifier table, ObjectNode arguments) throws NoSuchTableException {
    try {
      return service.call(operation, arguments);
    } catch (LanceException error) {
      throw orNoSuchTable(error, table);
    }
  }

  private JsonNode created(String operation, Identifier table, Definition definition)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    try {
      return service.call(operation, definition.into(about(table)));
    } catch (LanceException error) {
      if (error.is(LanceException.TABLE_EXISTS)) {
        throw new TableAlreadyExistsException(table);
      }
      throw orNoSuchNamespace(error, table.namespace());
    }
  }

  private JsonNode inNamespace(String operation, String[] namespace, ObjectNode arguments)
      throws NoSuchNamespaceException {
    arguments.set("namespace", Service.tree(namespace));
    try {
      return service.call(operation, arguments);
    } catch (LanceException error) {
      throw orNoSuchNamespace(error, namespace);
    }
  }

  private boolean drop(Identifier table, boolean purge) {
    ObjectNode arguments = about(table);
    arguments.put("purge", purge);
    try {
      service.call("drop_table", arguments);
      return true;
    } catch (LanceException error) {
      if (error.is(LanceException.TABLE_NOT_FOUND) || error.is(LanceException.NAMESPACE_NOT_FOUND)) {
        return false;
      }
      throw error.unchecked();
    }
  }

  private static RuntimeException orNoSuchTable(LanceException error, Identifier table) throws NoSuchTableException {
    if (error.is(LanceException.TABLE_NOT_FOUND) || error.is(LanceException.NAMESPACE_NOT_FOUND)) {
      throw new NoSuchTableException(table);
    }
    return error.unchecked();
  }

  private static RuntimeException orNoSuchNamespace(LanceException error, String[] namespace)
      throws NoSuchNamespaceException {
    if (error.is(LanceException.NAMESPACE_NOT_FOUND)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return error.unchecked();
  }
}
