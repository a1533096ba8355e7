package org.lancebridge.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** A write whose rows Spark distributes among tasks and sorts within them, as the table's properties require. */
final class OrderedWrite implements RequiresDistributionAndOrdering {
  /** Columns as in ORDER BY: tasks get ranges of their values, and sort their rows by them. */
  static final String ORDER_BY = "write.order_by";
  /** Columns as in DISTRIBUTE BY: rows with equal values go to the same task; {@link #ORDER_BY} sorts within it. */
  static final String DISTRIBUTE_BY = "write.distribute_by";

  private final Write inner;
  private final SortOrder[] order;
  private final Expression[] distributed;

  private OrderedWrite(Write inner, SortOrder[] order, Expression[] distributed) {
    this.inner = inner;
    this.order = order;
    this.distributed = distributed;
  }

  /** Return the write with the order of the properties, or the write itself if they define none. */
  static Write of(Write inner, String table, StructType schema, Map<String, String> properties) {
    SortOrder[] order = parse(table, schema, properties, ORDER_BY);
    SortOrder[] distributed = parse(table, schema, properties, DISTRIBUTE_BY);
    if (order.length == 0 && distributed.length == 0) {
      return inner;
    }
    Expression[] columns = Arrays.stream(distributed).map(SortOrder::expression).toArray(Expression[]::new);
    return new OrderedWrite(inner, order, columns);
  }

  /** Throw an exception if the properties define an order that is not possible for the table. */
  static void check(String table, StructType schema, Map<String, String> properties) {
    parse(table, schema, properties, ORDER_BY);
    parse(table, schema, properties, DISTRIBUTE_BY);
  }

  private static SortOrder[] parse(String table, StructType schema, Map<String, String> properties, String property) {
    String text = properties.get(property);
    if (text == null) {
      return new SortOrder[0];
    }
    List<SortOrder> keys = new ArrayList<>();
    for (org.apache.spark.sql.catalyst.expressions.SortOrder key : sortKeys(table, property, text)) {
      if (!(key.child() instanceof UnresolvedAttribute)) {
        throw malformed(table, property, text);
      }
      keys.add(Expressions.sort(
          Expressions.column(quoted(column(table, schema, property, (UnresolvedAttribute) key.child()))),
          key.direction() == Ascending$.MODULE$ ? SortDirection.ASCENDING : SortDirection.DESCENDING,
          key.nullOrdering() == NullsFirst$.MODULE$ ? NullOrdering.NULLS_FIRST : NullOrdering.NULLS_LAST));
    }
    return keys.toArray(new SortOrder[0]);
  }

  /** Parse sort keys with Spark's own parser, so that their syntax is the same as in a query. */
  private static List<org.apache.spark.sql.catalyst.expressions.SortOrder> sortKeys(
      String table, String property, String text) {
    LogicalPlan plan;
    try {
      plan = SparkSession.active().sessionState().sqlParser().parsePlan("SELECT 1 ORDER BY " + text);
    } catch (ParseException error) {
      throw malformed(table, property, text);
    }
    if (!(plan instanceof Sort)) {
      throw malformed(table, property, text);
    }
    return CollectionConverters.asJava(((Sort) plan).order());
  }

  private static String column(String table, StructType schema, String property, UnresolvedAttribute named) {
    List<String> parts = CollectionConverters.asJava(named.nameParts());
    for (StructField field : schema.fields()) {
      if (parts.size() == 1 && field.name().equalsIgnoreCase(parts.get(0))) {
        if (RowOrdering.isOrderable(field.dataType())) {
          return field.name();
        }
        throw LanceException.invalid(
            "Property " + property + " of table " + table + " names column " + field.name()
                + ", whose values have no order: name others");
      }
    }
    throw LanceException.invalid(
        "Property " + property + " of table " + table + " names " + String.join(".", parts)
            + ", which is no column at the top level: set the property again, or unset it");
  }

  private static RuntimeException malformed(String table, String property, String text) {
    return LanceException.invalid(
        "Property " + property + " of table " + table + " must be columns with commas between, as after ORDER BY, not '"
            + text + "'");
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  @Override
  public Distribution requiredDistribution() {
    return distributed.length == 0 ? Distributions.ordered(order) : Distributions.clustered(distributed);
  }

  @Override
  public SortOrder[] requiredOrdering() {
    return order;
  }

  /** The distribution only affects the layout of files, so Spark may split large partitions. */
  @Override
  public boolean distributionStrictlyRequired() {
    return false;
  }

  @Override
  public String description() {
    return inner.description();
  }

  @Override
  public BatchWrite toBatch() {
    return inner.toBatch();
  }

  @Override
  public StreamingWrite toStreaming() {
    return inner.toStreaming();
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return inner.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return inner.reportDriverMetrics();
  }
}
