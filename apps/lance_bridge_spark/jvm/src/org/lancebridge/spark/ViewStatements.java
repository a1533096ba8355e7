package org.lancebridge.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses statements about views in a catalog of lance-bridge. With Hive support, some releases of Spark do not check
 * that a catalog has views, and their own strategy then fails with a ClassCastException.
 */
final class ViewStatements extends SparkStrategy {
  private static final Set<String> STATEMENTS =
      Set.of("CreateView", "CreateMaterializedViewAsSelect", "DropView", "ShowViews");

  /** Add the strategy to a session that has begun without it. */
  static void addTo(org.apache.spark.sql.classic.SparkSession session) {
    var methods = session.sessionState().experimentalMethods();
    synchronized (methods) {
      List<SparkStrategy> strategies = new ArrayList<>(CollectionConverters.asJava(methods.extraStrategies()));
      if (strategies.stream().noneMatch(ViewStatements.class::isInstance)) {
        strategies.add(new ViewStatements());
        methods.extraStrategies_$eq(CollectionConverters.asScala(strategies).toSeq());
      }
    }
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (STATEMENTS.contains(plan.nodeName())) {
      // Some of these plans have no children when they are analyzed.
      CollectionConverters.asJava(plan.productIterator()).forEachRemaining(ViewStatements::check);
    }
    return CollectionConverters.asScala(List.<SparkPlan>of()).toSeq();
  }

  private static void check(Object part) {
    CatalogPlugin catalog = null;
    if (part instanceof ResolvedIdentifier) {
      catalog = ((ResolvedIdentifier) part).catalog();
    } else if (part instanceof ResolvedNamespace) {
      catalog = ((ResolvedNamespace) part).catalog();
    }
    if (catalog instanceof LanceCatalog) {
      throw LanceException.unsupported(
          "Catalog " + catalog.name() + " has no views: use CREATE TEMPORARY VIEW, CREATE VIEW spark_catalog.db.v, or "
              + "lance_bridge_spark.create_materialized_view, which stores the rows of a query");
    }
  }
}
