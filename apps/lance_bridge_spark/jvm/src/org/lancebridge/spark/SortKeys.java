package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

/**
 * The columns that rows are sorted by, where Lance sorts their values as Spark does.
 *
 * <p>It does not sort floating point numbers so: to Lance, -0.0 is less than 0.0, and a NaN may be the least of all.
 * Strings with a collation are of another type than those without.
 */
final class SortKeys {
  private SortKeys() {}

  /** Return what the source has to sort by, or null where one of the keys is Spark's to sort by. */
  static ArrayNode of(SortOrder[] orders, Columns columns) {
    ArrayNode keys = Service.object().putArray("order");
    for (SortOrder order : orders) {
      DataType type = columns.typeOfTopLevel(order.expression());
      if (type == null || !isSortedAlike(type)) {
        return null;
      }
      keys.addObject()
          .put("column", ((NamedReference) order.expression()).fieldNames()[0])
          .put("descending", order.direction() == SortDirection.DESCENDING)
          .put("nulls_first", order.nullOrdering() == NullOrdering.NULLS_FIRST);
    }
    return keys;
  }

  private static boolean isSortedAlike(DataType type) {
    return Literals.isIntegral(type) || type instanceof DecimalType || type.equals(DataTypes.BooleanType)
        || type.equals(DataTypes.StringType) || type.equals(DataTypes.BinaryType) || type.equals(DataTypes.DateType)
        || type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
  }
}
