package org.lancebridge.spark;

import org.apache.spark.sql.SparkSessionExtensions;
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
}
