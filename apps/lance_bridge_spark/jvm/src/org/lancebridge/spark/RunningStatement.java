package org.lancebridge.spark;

import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.AlterTableCommand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * The statement that this thread runs, where Spark runs one and does not only analyse it.
 *
 * <p>Spark does not say to a catalog why it is called, and these are not its public interfaces.
 */
final class RunningStatement {
  private RunningStatement() {}

  /** It is an ALTER TABLE. */
  static boolean isAlterTable() {
    return plan().filter(plan -> plan instanceof AlterTableCommand).isPresent();
  }

  private static Optional<LogicalPlan> plan() {
    String id = SparkSession.active().sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    return Optional.ofNullable(id).map(Long::valueOf).map(SQLExecution::getQueryExecution)
        .map(execution -> execution.logical());
  }
}
