package org.lancebridge.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Translates Spark's predicates to Lance's SQL.
 *
 * <p>A predicate is translated only if it selects exactly the same rows as in Spark, including nulls and under NOT;
 * otherwise the result is null, and Spark evaluates it. The engines differ in NaN (Spark: equal to itself, greater than
 * all numbers; Lance: by its sign) and -0.0, for which the translation adds conditions.
 */
final class Predicates {
  private static final Map<String, String> COMPARISONS =
      Map.of("=", "=", "<>", "<>", "<", "<", "<=", "<=", ">", ">", ">=", ">=");
  /** Lance's parser is slow for deep nesting, and fails if it is deeper than this. */
  private static final int MAX_DEPTH = 12;
  private static final int MAX_OPERANDS = 200;
  private static final int MAX_VALUES = 1000;

  private final Columns columns;

  Predicates(Columns columns) {
    this.columns = columns;
  }

  /** Return the predicate as SQL in parentheses, or null if Lance would not select the same rows. */
  String translate(Expression expression) {
    return translate(expression, 0);
  }

  private String translate(Expression expression, int depth) {
    if (!(expression instanceof Predicate) || depth > MAX_DEPTH) {
      return null;
    }
    Predicate predicate = (Predicate) expression;
    Expression[] children = predicate.children();
    switch (predicate.name()) {
      case "ALWAYS_TRUE":
        return "true";
      case "ALWAYS_FALSE":
        return "false";
      case "AND":
      case "OR":
        return joined(predicate, depth);
      case "NOT":
        String inner = translate(children[0], depth + 1);
        return inner == null ? null : "(NOT " + inner + ")";
      case "IS_NULL":
      case "IS_NOT_NULL":
        return nullness(predicate);
      case "STARTS_WITH":
      case "ENDS_WITH":
      case "CONTAINS":
        return matching(predicate);
      case "IN":
        return among(children);
      default:
        return children.length == 2 ? compared(predicate.name(), children[0], children[1]) : null;
    }
  }

  /** Return a chain of ANDs or ORs as a flat list of operands, which the parser does not nest. */
  private String joined(Predicate predicate, int depth) {
    List<Expression> operands = new ArrayList<>();
    if (!collect(predicate, predicate.name(), operands)) {
      return null;
    }
    List<String> parts = new ArrayList<>();
    for (Expression operand : operands) {
      String part = translate(operand, depth + 1);
      if (part == null) {
        return null;
      }
      parts.add(part);
    }
    return "(" + String.join(" " + predicate.name() + " ", parts) + ")";
  }

  private static boolean collect(Expression expression, String name, List<Expression> into) {
    List<Expression> waiting = new ArrayList<>(List.of(expression));
    while (!waiting.isEmpty()) {
      Expression last = waiting.remove(waiting.size() - 1);
      if (last instanceof Predicate && ((Predicate) last).name().equals(name)) {
        waiting.addAll(List.of(last.children()));
      } else {
        into.add(last);
      }
      if (into.size() + waiting.size() > MAX_OPERANDS) {
        return false;
      }
    }
    return true;
  }

  private String nullness(Predicate predicate) {
    Columns.Reference column = columns.find(predicate.children()[0]);
    return column == null ? null
        : "(" + column.sql + (predicate.name().equals("IS_NULL") ? " IS NULL)" : " IS NOT NULL)");
  }

  private String matching(Predicate predicate) {
    Columns.Reference column = stored(predicate.children()[0]);
    if (column == null || !column.type.equals(DataTypes.StringType)) {
      return null;
    }
    String value = Literals.of(predicate.children()[1], DataTypes.StringType);
    return value == null ? null
        : "(" + predicate.name().toLowerCase(Locale.ROOT) + "(" + column.sql + ", " + value + "))";
  }

  private String among(Expression[] children) {
    Columns.Reference column = stored(children[0]);
    if (column == null || children.length < 2 || children.length > MAX_VALUES + 1) {
      return null;
    }
    List<String> values = new ArrayList<>();
    for (int i = 1; i < children.length; i++) {
      String value = Literals.of(children[i], column.type);
      if (value == null) {
        return null;
      }
      values.add(value);
    }
    return "(" + column.sql + " IN (" + String.join(", ", values) + "))";
  }

  private String compared(String name, Expression left, Expression right) {
    boolean nullSafe = name.equals("<=>");
    String operator = nullSafe ? "=" : COMPARISONS.get(name);
    Columns.Reference column = operand(left);
    if (operator == null || column == null) {
      return null;
    }
    String sql = Literals.isFloating(column.type) ? floating(operator, column, right) : exact(operator, column, right);
    return sql == null || !nullSafe ? sql : "(" + column.sql + " IS NOT NULL AND " + sql + ")";
  }

  private static String exact(String operator, Columns.Reference column, Expression right) {
    String value = Literals.of(right, column.type);
    return value == null ? null : "(" + column.sql + " " + operator + " " + value + ")";
  }

  private static String floating(String operator, Columns.Reference column, Expression right) {
    Double number = Literals.floating(right, column.type);
    if (number == null) {
      return null;
    }
    String plain = column.sql + " " + operator + " " + Literals.written(number, column.type);
    switch (operator) {
      case ">":
      case ">=":
        return "(" + plain + " OR isnan(" + column.sql + "))";
      case "<":
      case "<=":
        return "(" + plain + " AND NOT isnan(" + column.sql + "))";
      default:
        return "(" + plain + ")";
    }
  }

  /** Return a column, or a column cast to a wider number without loss, for which the engines' casts are equal. */
  private Columns.Reference operand(Expression expression) {
    if (!(expression instanceof Cast)) {
      return stored(expression);
    }
    Cast cast = (Cast) expression;
    Columns.Reference column = stored(cast.expression());
    String wider = column == null ? null : widened(column.type, cast.dataType());
    return wider == null ? null
        : new Columns.Reference("CAST(" + column.sql + " AS " + wider + ")", cast.dataType(), true);
  }

  private static String widened(DataType from, DataType to) {
    boolean small = Literals.isIntegral(from) && !from.equals(DataTypes.LongType);
    if (to.equals(DataTypes.LongType) && small) {
      return "BIGINT";
    }
    boolean exactly = small || from.equals(DataTypes.FloatType);
    return to.equals(DataTypes.DoubleType) && exactly ? "DOUBLE" : null;
  }

  private Columns.Reference stored(Expression expression) {
    Columns.Reference column = columns.find(expression);
    return column != null && column.asStored ? column : null;
  }
}
