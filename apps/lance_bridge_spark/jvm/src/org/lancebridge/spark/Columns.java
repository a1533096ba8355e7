package org.lancebridge.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns that predicates and aggregates can refer to in Lance's SQL, with their types in Spark. */
final class Columns {
  /** Names that Lance's parser resolves; Lance can store others that it cannot resolve. */
  private static final Pattern SAFE = Pattern.compile("[\\p{L}\\p{N}_ -]+");

  private final StructType schema;
  private final Set<String> converted;
  private final Set<String> opaque;

  /**
   * @param converted top-level columns whose values in Spark differ from the stored ones
   * @param opaque top-level columns that Lance's SQL cannot refer to at all
   */
  Columns(StructType schema, Set<String> converted, Set<String> opaque) {
    this.schema = schema;
    this.converted = converted;
    this.opaque = opaque;
  }

  /** A column with its name in Lance's SQL. */
  static final class Reference {
    final String sql;
    final DataType type;
    /** Whether its stored values equal those in Spark, so that Lance can compare them for Spark. */
    final boolean asStored;

    Reference(String sql, DataType type, boolean asStored) {
      this.sql = sql;
      this.type = type;
      this.asStored = asStored;
    }
  }

  /** Return the column or nested field, or null if it is not in the table or its name is not safe. */
  Reference find(Expression expression) {
    if (!(expression instanceof NamedReference)) {
      return null;
    }
    String[] path = ((NamedReference) expression).fieldNames();
    if (opaque.contains(path[0])) {
      return null;
    }
    StringBuilder sql = new StringBuilder();
    DataType type = schema;
    for (String part : path) {
      StructField field = type instanceof StructType ? named((StructType) type, part) : null;
      if (field == null || !SAFE.matcher(part).matches()) {
        return null;
      }
      sql.append(sql.length() == 0 ? "`" : ".`").append(part).append('`');
      type = field.dataType();
    }
    return new Reference(sql.toString(), type, !converted.contains(path[0]));
  }

  /** Return the type of a top-level column whose stored values equal those in Spark, or null. */
  DataType typeOfTopLevel(Expression expression) {
    Reference found = find(expression);
    boolean usable = found != null && found.asStored && ((NamedReference) expression).fieldNames().length == 1;
    return usable ? found.type : null;
  }

  /** Return two fields of one struct whose names differ only in letter case, or null. */
  static String[] alike(DataType type) {
    if (type instanceof ArrayType) {
      return alike(((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      String[] ofKey = alike(((MapType) type).keyType());
      return ofKey == null ? alike(((MapType) type).valueType()) : ofKey;
    }
    Map<String, String> known = new HashMap<>();
    for (StructField field : type instanceof StructType ? ((StructType) type).fields() : new StructField[0]) {
      String other = known.put(field.name().toLowerCase(Locale.ROOT), field.name());
      String[] inside = other == null ? alike(field.dataType()) : new String[] {other, field.name()};
      if (inside != null) {
        return inside;
      }
    }
    return null;
  }

  private static StructField named(StructType struct, String name) {
    for (StructField field : struct.fields()) {
      if (field.name().equals(name)) {
        return field;
      }
    }
    return null;
  }
}
