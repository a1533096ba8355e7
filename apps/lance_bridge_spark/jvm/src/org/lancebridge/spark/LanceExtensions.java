package org.lancebridge.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * The extension `spark.sql.extensions=org.lancebridge.spark.LanceExtensions`: in each session, `format("lance")` can
 * use the catalogs of the session's settings without a call to `lance_bridge_spark.register`, and SQL the functions.
 */
public final class LanceExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    // Spark applies these rules first, before it resolves a data source by name.
    extensions.injectHintResolutionRule(SessionCatalogs::new);
    return new LanceFunctions().apply(extensions);
  }

  /**
   * Add what is missing to the extensions of a session, which Spark shares with the sessions that `newSession` makes
   * of it. The session itself keeps what it began with.
   */
  static void addForNewSessions(org.apache.spark.sql.classic.SparkSession session) {
    SparkSessionExtensions extensions = session.extensions();
    synchronized (extensions) {
      if (CollectionConverters.asJava(extensions.buildHintResolutionRules(session)).stream()
          .noneMatch(SessionCatalogs.class::isInstance)) {
        extensions.injectHintResolutionRule(SessionCatalogs::new);
      }
      if (CollectionConverters.asJava(extensions.buildPlannerStrategies(session)).stream()
          .noneMatch(ViewStatements.class::isInstance)) {
        new LanceFunctions().apply(extensions);
      }
    }
  }
}
