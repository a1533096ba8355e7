package org.lancebridge.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.runtime.BoxedUnit;

/**
 * The functions of lance-bridge in SQL: `spark.sql.extensions=org.lancebridge.spark.LanceFunctions` makes all sessions
 * know them; else a session knows them from the moment that it has loaded a catalog of lance-bridge.
 */
public final class LanceFunctions implements Function1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectTableFunction(new Tuple3<>(SearchFunction.NAME, SearchFunction.INFO, SearchFunction::plan));
    return BoxedUnit.UNIT;
  }

  /** Make the session of this thread know them. */
  static void register() {
    Option<SparkSession> active = SparkSession.getActiveSession();
    if (active.isDefined()) {
      SparkSessionExtensions extensions = new SparkSessionExtensions();
      new LanceFunctions().apply(extensions);
      // How a registry wants its names differs between releases, and is known to the extensions.
      extensions.registerTableFunctions(
          ((org.apache.spark.sql.classic.SparkSession) active.get()).sessionState().tableFunctionRegistry());
    }
  }
}
