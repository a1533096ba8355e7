package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Partial aggregates that tasks compute before rows reach the JVM: one row per task, or one row per group and batch of
 * rows. Spark combines them.
 *
 * <p>Spark computes sums of BIGINT, which may overflow; smaller integers cannot overflow within a task.
 */
final class Aggregates {
  private final ArrayNode groups = Service.object().putArray("groups");
  private final ArrayNode functions = Service.object().putArray("aggregate");
  private StructType schema = new StructType();

  private Aggregates() {}

  /** Return the aggregates for the source to compute, or null if Spark must compute one of them. */
  static Aggregates of(Aggregation aggregation, Columns columns) {
    Aggregates aggregates = new Aggregates();
    for (Expression column : aggregation.groupByExpressions()) {
      if (!aggregates.group(column, columns)) {
        return null;
      }
    }
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      if (!aggregates.take(function, columns)) {
        return null;
      }
    }
    return aggregates.schema.isEmpty() ? null : aggregates;
  }

  /** Return whether it is COUNT(*) alone, which the table's metadata may contain. */
  static boolean isCountOfRows(Aggregation aggregation) {
    return aggregation.groupByExpressions().length == 0 && aggregation.aggregateExpressions().length == 1
        && aggregation.aggregateExpressions()[0] instanceof CountStar;
  }

  /** The names of the columns to group by. */
  ArrayNode groups() {
    return groups;
  }

  ArrayNode functions() {
    return functions;
  }

  StructType schema() {
    return schema;
  }

  /** Add a column to group by. Floats are left to Spark, which treats 0.0 and -0.0 as equal. */
  private boolean group(Expression column, Columns columns) {
    DataType type = columns.typeOfTopLevel(column);
    boolean exact = type != null && (Literals.isIntegral(type) || type.equals(DataTypes.DateType)
        || type.equals(DataTypes.StringType) || type.equals(DataTypes.BooleanType));
    if (exact) {
      String name = ((NamedReference) column).fieldNames()[0];
      schema = schema.add("group_" + groups.size(), type, true);
      groups.add(name);
    }
    return exact;
  }

  private boolean take(AggregateFunc function, Columns columns) {
    if (function instanceof CountStar) {
      return add("count", null, DataTypes.LongType);
    }
    if (function instanceof Count) {
      Count count = (Count) function;
      return !count.isDistinct() && columns.typeOfTopLevel(count.column()) != null
          && add("count", count.column(), DataTypes.LongType);
    }
    if (function instanceof Sum) {
      Sum sum = (Sum) function;
      DataType result = summed(columns.typeOfTopLevel(sum.column()));
      return !sum.isDistinct() && result != null && add("sum", sum.column(), result);
    }
    if (function instanceof Min) {
      return extreme("min", ((Min) function).column(), columns);
    }
    return function instanceof Max && extreme("max", ((Max) function).column(), columns);
  }

  private boolean extreme(String name, Expression column, Columns columns) {
    DataType type = columns.typeOfTopLevel(column);
    boolean ordered = type != null && (Literals.isIntegral(type) || type.equals(DataTypes.DateType));
    return ordered && add(name, column, type);
  }

  private static DataType summed(DataType type) {
    if (type == null || type.equals(DataTypes.LongType)) {
      return null;
    }
    if (Literals.isIntegral(type)) {
      return DataTypes.LongType;
    }
    return type.equals(DataTypes.DoubleType) ? type : null;
  }

  private boolean add(String function, Expression column, DataType result) {
    String name = column == null ? null : ((NamedReference) column).fieldNames()[0];
    schema = schema.add("agg_" + functions.size(), result, true);
    functions.addObject().put("function", function).put("column", name);
    return true;
  }
}
