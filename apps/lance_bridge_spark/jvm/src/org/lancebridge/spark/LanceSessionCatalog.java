package org.lancebridge.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogExtension;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's session catalog with the Lance tables of its metastore, so that statements name them `db.table`. It is
 * configured by `spark.sql.catalog.spark_catalog=org.lancebridge.spark.LanceSessionCatalog`.
 *
 * <p>An entry with `table_type=lance` is handled by a {@link LanceCatalog} of the same metastore. Everything else goes
 * to Spark's own session catalog, or to the one that `spark.sql.catalog.spark_catalog.lance.delegate` names.
 *
 * <p>Spark decides by the base class that tables of other formats are written as without this catalog.
 */
public final class LanceSessionCatalog extends DelegatingCatalogExtension
    implements StagingTableCatalog, ProcedureCatalog {
  static final String NAME = "spark_catalog";

  private Map<String, String> options;
  private Map<String, String> properties;
  private LanceCatalog lance;
  private CatalogExtension others;

  /** Fail later: Spark would log an error of this method, and continue without this catalog. */
  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.options = new TreeMap<>(options.asCaseSensitiveMap());
    this.properties = HiveSettings.complete(SparkSession.active(), this.options, HiveSettings.OURS);
    LanceFunctions.register();
  }

  // Tables.

  @Override
  public Table loadTable(Identifier name) throws NoSuchTableException {
    Identifier table = SearchName.table(name);
    if (isMetadataOfLance(table)) {
      return lance().loadTable(table);
    }
    Table found = others().loadTable(table);
    return isLance(found) ? lance().loadTable(table) : found;
  }

  @Override
  public Table loadTable(Identifier name, String version) throws NoSuchTableException {
    Identifier table = SearchName.table(name);
    return isMetadataOfLance(table) || isLance(others().loadTable(table))
        ? lance().loadTable(table, version)
        : others().loadTable(table, version);
  }

  @Override
  public Table loadTable(Identifier name, long micros) throws NoSuchTableException {
    Identifier table = SearchName.table(name);
    return isMetadataOfLance(table) || isLance(others().loadTable(table))
        ? lance().loadTable(table, micros)
        : others().loadTable(table, micros);
  }

  @Override
  public boolean tableExists(Identifier table) {
    return isMetadataOfLance(table) ? lance().tableExists(table) : others().tableExists(SearchName.table(table));
  }

  @Override
  public Table createTable(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isLance(info.properties()) ? lance().createTable(table, info) : others().createTable(table, info);
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isLance(properties)
        ? lance().createTable(table, columns, partitions, properties)
        : others().createTable(table, columns, partitions, properties);
  }

  /** CREATE TABLE ... LIKE of Spark 4.2 and later; without Override, because 4.1 does not have the method. */
  public Table createTableLike(Identifier table, TableInfo info, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    boolean inherits = source instanceof LanceTable && info.properties().get(TableCatalog.PROP_PROVIDER) == null;
    return inherits || isLance(info.properties())
        ? lance().createTableLike(table, info, source)
        : others().createTableLike(table, info, source);
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    return hasLance(table) ? lance().alterTable(table, changes) : others().alterTable(table, changes);
  }

  @Override
  public boolean dropTable(Identifier table) {
    return hasLance(table) ? lance().dropTable(table) : others().dropTable(table);
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return hasLance(table) ? lance().purgeTable(table) : others().purgeTable(table);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    if (hasLance(from)) {
      lance().renameTable(from, to);
    } else {
      others().renameTable(from, to);
    }
  }

  // Tables that a query makes.

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isLance(info.properties()) ? lance().stageCreate(table, info) : WrittenTable.create(others(), table, info);
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info)
      throws NoSuchTableException, NoSuchNamespaceException {
    boolean toLance = isLance(info.properties());
    checkReplacement(table, toLance);
    return toLance ? lance().stageReplace(table, info) : WrittenTable.replace(others(), table, info);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
    boolean toLance = isLance(info.properties());
    checkReplacement(table, toLance);
    return toLance
        ? lance().stageCreateOrReplace(table, info)
        : WrittenTable.createOrReplace(others(), table, info);
  }

  /** Refuse to replace a table by one of another format: the new rows would not be a version of it. */
  private void checkReplacement(Identifier table, boolean toLance) {
    Table found;
    try {
      found = others().loadTable(table);
    } catch (NoSuchTableException error) {
      return;
    }
    if (isLance(found) != toLance) {
      throw LanceException.invalid(
          "Table " + NAME + "." + table + (toLance ? " is not a Lance table" : " is a Lance table")
              + " and cannot be replaced by one that is " + (toLance ? "one" : "not") + ": DROP it, or use another name");
    }
  }

  // Procedures.

  @Override
  public UnboundProcedure loadProcedure(Identifier name) {
    UnboundProcedure ours = HiveSettings.hasMetastore(properties) ? Procedures.find(lance().service(), name) : null;
    if (ours != null) {
      return ours;
    }
    return others() instanceof ProcedureCatalog
        ? ((ProcedureCatalog) others()).loadProcedure(name)
        : Procedures.load(lance().service(), name);
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    List<Identifier> names = new ArrayList<>();
    if (others() instanceof ProcedureCatalog) {
      names.addAll(List.of(((ProcedureCatalog) others()).listProcedures(namespace)));
    }
    if (HiveSettings.hasMetastore(properties)) {
      names.addAll(List.of(lance().listProcedures(namespace)));
    }
    return names.toArray(new Identifier[0]);
  }

  // Names, which Lance tables share with all others.

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return others().listTables(namespace);
  }

  @Override
  public void invalidateTable(Identifier table) {
    others().invalidateTable(table);
  }

  @Override
  public UnboundFunction loadFunction(Identifier function) throws NoSuchFunctionException {
    return others().loadFunction(function);
  }

  @Override
  public Identifier[] listFunctions(String[] namespace) throws NoSuchNamespaceException {
    return others().listFunctions(namespace);
  }

  @Override
  public boolean functionExists(Identifier function) {
    return others().functionExists(function);
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return others().namespaceExists(namespace);
  }

  /** Drop the Lance tables first, with their data: Spark would remove their entries alone. */
  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    if (cascade && HiveSettings.hasMetastore(properties) && namespaceExists(namespace)) {
      for (Identifier table : lance().listTables(namespace)) {
        lance().dropTable(table);
      }
    }
    return others().dropNamespace(namespace, cascade);
  }

  /** Return its name in plans. */
  @Override
  public String toString() {
    return getClass().getSimpleName() + "(" + NAME + ")";
  }

  // Which catalog has a table.

  private static boolean isLance(Table table) {
    if (!(table instanceof V1Table)) {
      return false;
    }
    Map<String, String> properties = CollectionConverters.asJava(((V1Table) table).catalogTable().properties());
    return "lance".equalsIgnoreCase(properties.get("table_type"));
  }

  /** Return whether a statement makes a Lance table; without USING, Spark's default format decides. */
  private static boolean isLance(Map<String, String> properties) {
    String provider = properties.get(TableCatalog.PROP_PROVIDER);
    return Service.SOURCE.equalsIgnoreCase(provider == null ? SQLConf.get().defaultDataSourceName() : provider);
  }

  /** Return whether the namespace of a name is a Lance table, as in `db.t.versions`. */
  private boolean isMetadataOfLance(Identifier name) {
    String[] table = name.namespace();
    return table.length == 2 && namespaceExists(new String[] {table[0]})
        && hasLance(Identifier.of(new String[] {table[0]}, table[1]));
  }

  private boolean hasLance(Identifier table) {
    try {
      return isLance(others().loadTable(table));
    } catch (NoSuchTableException error) {
      return false;
    }
  }

  private synchronized CatalogExtension others() {
    if (others == null) {
      others = OtherTables.of(delegate, options);
    }
    return others;
  }

  private synchronized LanceCatalog lance() {
    if (lance == null) {
      SparkVersions.check(SparkVersions.current());
      lance = new LanceCatalog();
      lance.open(NAME, HiveSettings.check(properties));
    }
    return lance;
  }
}
