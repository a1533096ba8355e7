package org.lancebridge.spark;

import java.time.LocalDate;
import java.util.Locale;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.filter.AlwaysFalse;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/** Literals in Lance's SQL with exactly the type of the column; null if a value cannot be written exactly. */
final class Literals {
  /** The dates that Lance's parser accepts: it does not support years of five digits. */
  private static final long FIRST_DAY = LocalDate.of(1, 1, 1).toEpochDay();
  private static final long LAST_DAY = LocalDate.of(9999, 12, 31).toEpochDay();

  private Literals() {}

  /** Return the value as SQL of a column's type, or null. For floating point values see {@link #floating}. */
  static String of(Expression expression, DataType type) {
    if (expression instanceof AlwaysTrue || expression instanceof AlwaysFalse) {
      return type.equals(DataTypes.BooleanType) ? Boolean.toString(expression instanceof AlwaysTrue) : null;
    }
    if (!(expression instanceof Literal)) {
      return null;
    }
    Literal<?> literal = (Literal<?>) expression;
    if (literal.value() == null || !literal.dataType().equals(type)) {
      return null;
    }
    return written(literal.value(), type);
  }

  private static String written(Object value, DataType type) {
    if (type.equals(DataTypes.StringType)) {
      return quoted(value.toString());
    }
    if (isIntegral(type)) {
      // Lance reads -2^63 as a floating point number, and then refuses it.
      return ((Number) value).longValue() == Long.MIN_VALUE ? null : value.toString();
    }
    if (type.equals(DataTypes.BooleanType)) {
      return value.toString();
    }
    if (type.equals(DataTypes.DateType)) {
      long day = ((Number) value).longValue();
      return day < FIRST_DAY || day > LAST_DAY ? null : "date '" + LocalDate.ofEpochDay(day) + "'";
    }
    if (type.equals(DataTypes.TimestampType)) {
      return instant(value, "Some(\"UTC\")");
    }
    if (type.equals(DataTypes.TimestampNTZType)) {
      return instant(value, "None");
    }
    if (type instanceof DecimalType) {
      return decimal(value, (DecimalType) type);
    }
    return type.equals(DataTypes.BinaryType) ? hexadecimal((byte[]) value) : null;
  }

  /** Return a finite number, or null; -0.0 is returned as 0.0. */
  static Double floating(Expression expression, DataType type) {
    if (!(expression instanceof Literal)) {
      return null;
    }
    Literal<?> literal = (Literal<?>) expression;
    if (literal.value() == null || !literal.dataType().equals(type) || !isFloating(type)) {
      return null;
    }
    double value = ((Number) literal.value()).doubleValue();
    return Double.isNaN(value) || Double.isInfinite(value) ? null : Double.valueOf(value + 0.0);
  }

  /** Return a number as SQL of a floating point type. */
  static String written(double value, DataType type) {
    return type.equals(DataTypes.FloatType) ? "arrow_cast('" + (float) value + "', 'Float32')"
        : "arrow_cast('" + value + "', 'Float64')";
  }

  static boolean isIntegral(DataType type) {
    return type.equals(DataTypes.ByteType) || type.equals(DataTypes.ShortType) || type.equals(DataTypes.IntegerType)
        || type.equals(DataTypes.LongType);
  }

  static boolean isFloating(DataType type) {
    return type.equals(DataTypes.FloatType) || type.equals(DataTypes.DoubleType);
  }

  private static String quoted(String text) {
    // Some of Lance's parsers end a string at a NUL.
    return text.indexOf('\0') >= 0 ? null : "'" + text.replace("'", "''") + "'";
  }

  private static String instant(Object micros, String zone) {
    long value = ((Number) micros).longValue();
    return value == Long.MIN_VALUE ? null : "arrow_cast(" + value + ", 'Timestamp(Microsecond, " + zone + ")')";
  }

  private static String decimal(Object value, DecimalType type) {
    if (!(value instanceof Decimal)) {
      return null;
    }
    String digits = ((Decimal) value).toJavaBigDecimal().setScale(type.scale()).toPlainString();
    return String.format(Locale.ROOT, "arrow_cast('%s', 'Decimal128(%d, %d)')", digits, type.precision(), type.scale());
  }

  private static String hexadecimal(byte[] bytes) {
    StringBuilder text = new StringBuilder("X'");
    for (byte one : bytes) {
      text.append(String.format(Locale.ROOT, "%02x", one));
    }
    return text.append('\'').toString();
  }
}
