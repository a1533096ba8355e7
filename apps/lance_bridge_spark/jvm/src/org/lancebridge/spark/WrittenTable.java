package org.lancebridge.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogExtension;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;

/**
 * A table of another format that a query makes in the session catalog. Where its catalog cannot stage tables, it
 * exists before its rows are written, and is dropped if that fails, as Spark does there.
 */
final class WrittenTable implements StagedTable, SupportsWrite {
  private final CatalogExtension catalog;
  private final Identifier name;
  private final Table table;

  private WrittenTable(CatalogExtension catalog, Identifier name, Table table) {
    this.catalog = catalog;
    this.name = name;
    this.table = table;
  }

  static StagedTable create(CatalogExtension catalog, Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (catalog instanceof StagingTableCatalog) {
      return ((StagingTableCatalog) catalog).stageCreate(table, info);
    }
    return new WrittenTable(catalog, table, catalog.createTable(table, info));
  }

  static StagedTable replace(CatalogExtension catalog, Identifier table, TableInfo info)
      throws NoSuchTableException, NoSuchNamespaceException {
    if (catalog instanceof StagingTableCatalog) {
      return ((StagingTableCatalog) catalog).stageReplace(table, info);
    }
    if (!catalog.dropTable(table)) {
      throw new NoSuchTableException(table);
    }
    return recreate(catalog, table, info);
  }

  static StagedTable createOrReplace(CatalogExtension catalog, Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    if (catalog instanceof StagingTableCatalog) {
      return ((StagingTableCatalog) catalog).stageCreateOrReplace(table, info);
    }
    catalog.dropTable(table);
    return recreate(catalog, table, info);
  }

  private static StagedTable recreate(CatalogExtension catalog, Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    try {
      return create(catalog, table, info);
    } catch (TableAlreadyExistsException error) {
      throw LanceException.invalid(
          "Table " + table + " was created by another client while this statement replaced it: repeat the statement");
    }
  }

  @Override
  public String name() {
    return table.name();
  }

  @Override
  public Column[] columns() {
    return table.columns();
  }

  @Override
  public Transform[] partitioning() {
    return table.partitioning();
  }

  @Override
  public Map<String, String> properties() {
    return table.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return table.capabilities();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (table instanceof SupportsWrite) {
      return ((SupportsWrite) table).newWriteBuilder(info);
    }
    throw LanceException.unsupported("Table " + table.name() + " is of a format that Spark cannot write");
  }

  @Override
  public void commitStagedChanges() {}

  @Override
  public void abortStagedChanges() {
    catalog.dropTable(name);
  }
}
