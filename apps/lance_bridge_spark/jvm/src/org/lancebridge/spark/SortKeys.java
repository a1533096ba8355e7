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
 * The sort keys of a scan, if Lance sorts their types in the same order as Spark.
 *
 * <p>Floating point numbers are excluded: in Lance, -0.0 is less than 0.0, and NaN may be the least value. Strings with
 * a collation have another type than those without.
 */
final class SortKeys {
  private SortKeys() {}

  /** Return the keys for the source to sort by, or null if Spark must sort by one of them. */
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
