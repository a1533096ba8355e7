package org.lancebridge.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.runtime.BoxedUnit;

/**
 * The SQL functions of lance-bridge: `spark.sql.extensions=org.lancebridge.spark.LanceFunctions` registers them in all
 * sessions; otherwise a session registers them when it loads a catalog of lance-bridge.
 */
public final class LanceFunctions implements Function1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectTableFunction(new Tuple3<>(SearchFunction.NAME, SearchFunction.INFO, SearchFunction::plan));
    extensions.injectPlannerStrategy(session -> new ViewStatements());
    return BoxedUnit.UNIT;
  }

  /** Register the functions in the active session, and in those that `newSession` makes of it. */
  static void register() {
    Option<SparkSession> active = SparkSession.getActiveSession();
    if (active.isDefined()) {
      var session = (org.apache.spark.sql.classic.SparkSession) active.get();
      SparkSessionExtensions extensions = new SparkSessionExtensions();
      new LanceFunctions().apply(extensions);
      // The names in a registry differ between releases; the extensions use the right ones.
      extensions.registerTableFunctions(session.sessionState().tableFunctionRegistry());
      ViewStatements.addTo(session);
      LanceExtensions.addForNewSessions(session);
    }
  }
}
