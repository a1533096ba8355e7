package org.lancebridge.spark;

import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.AlterTableCommand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * The statement that this thread executes, if Spark is executing one and not only analysing it.
 *
 * <p>Spark does not tell a catalog why it is called, so this uses internal interfaces.
 */
final class RunningStatement {
  private static final Set<String> WRITERS =
      Set.of("org.apache.spark.sql.classic.DataFrameWriter", "org.apache.spark.sql.classic.DataStreamWriter");

  private RunningStatement() {}

  /** Return whether the statement is an ALTER TABLE. */
  static boolean isAlterTable() {
    return plan().filter(plan -> plan instanceof AlterTableCommand).isPresent();
  }

  /** Return whether it is a call of a writer of a DataFrame or a stream, such as `saveAsTable`, and no SQL. */
  static boolean isOfWriter() {
    return StackWalker.getInstance().walk(frames -> frames.anyMatch(frame -> WRITERS.contains(frame.getClassName())));
  }

  private static Optional<LogicalPlan> plan() {
    String id = SparkSession.active().sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return Optional.ofNullable(id).map(Long::valueOf).map(SQLExecution::getQueryExecution)
        .map(execution -> execution.logical());
  }
}
