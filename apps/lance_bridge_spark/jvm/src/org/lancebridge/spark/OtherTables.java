package org.lancebridge.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogExtension;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables of the session catalog that are not Lance tables: Spark's own session catalog, which resolves them as it
 * does when it is the only one. With a session catalog of another class Spark would not look up their data sources.
 */
final class OtherTables extends DelegatingCatalogExtension {
  /** The option with the class of another session catalog, such as that of Delta or of Iceberg. */
  static final String DELEGATE = HiveSettings.OURS + "delegate";

  private OtherTables() {}

  static CatalogExtension of(CatalogPlugin spark, Map<String, String> options) {
    String name = options.get(DELEGATE);
    CatalogExtension others = name == null ? new OtherTables() : instance(name);
    others.setDelegateCatalog(spark);
    Map<String, String> its = new HashMap<>(options);
    its.keySet().removeIf(key -> key.startsWith(HiveSettings.OURS));
    others.initialize(LanceSessionCatalog.NAME, new CaseInsensitiveStringMap(its));
    return others;
  }

  private static CatalogExtension instance(String name) {
    try {
      Class<?> found = Class.forName(name, true, Thread.currentThread().getContextClassLoader());
      return (CatalogExtension) found.getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException | ClassCastException error) {
      throw LanceException.invalid(
          "spark.sql.catalog.spark_catalog.lance.delegate is " + name + ", which is no session catalog that can be loaded ("
              + error + "): add its jar to spark.jars, or correct the name");
    }
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return resolved(() -> super.loadTable(table));
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return resolved(() -> super.createTable(table, columns, partitions, properties));
  }

  /** Return the table of a call, which sees no session catalog but Spark's own; its errors are thrown unchanged. */
  private static Table resolved(Callable<Table> call) {
    SQLConf builtin = SQLConf.get().clone();
    builtin.unsetConf(SQLConf.V2_SESSION_CATALOG_IMPLEMENTATION().key());
    return SQLConf.withExistingConf(builtin, () -> {
      try {
        return call.call();
      } catch (Exception error) {
        throw LanceException.<RuntimeException>hurl(error);
      }
    });
  }
}
