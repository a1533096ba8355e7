package org.lancebridge.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What `spark.sql.extensions=org.lancebridge.spark.LanceExtensions` adds to each session: `format("lance")` knows the
 * catalogs of the session's settings, without a call of `lance_bridge_spark.register`, and SQL its functions.
 */
public final class LanceExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    // These rules are the first that Spark applies: before it resolves a data source by its name.
    extensions.injectHintResolutionRule(SessionCatalogs::new);
    return new LanceFunctions().apply(extensions);
  }
}
