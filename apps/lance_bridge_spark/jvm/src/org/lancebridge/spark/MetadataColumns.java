package org.lancebridge.spark;

import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Columns that every table has and SELECT * omits: a row's id and address, and the result of a search. */
final class MetadataColumns {
  static final String ROW_ID = "_rowid";

  private MetadataColumns() {}

  static MetadataColumn[] all() {
    return new MetadataColumn[] {
      new Hidden(ROW_ID, DataTypes.LongType, "The row's id in its table"),
      new Hidden("_rowaddr", DataTypes.LongType, "The row's fragment and its offset there"),
      new Hidden("_distance", DataTypes.FloatType, "How far the row is from the query of a nearest search"),
      new Hidden("_score", DataTypes.FloatType, "How well the row fits the query of a full text search"),
    };
  }

  /** Return the prefix of the search options that a column requires, or null. */
  static String searchOf(String column) {
    return column.equals("_distance") ? "nearest." : column.equals("_score") ? "full_text." : null;
  }

  private static final class Hidden implements MetadataColumn {
    private final String name;
    private final DataType type;
    private final String comment;

    Hidden(String name, DataType type, String comment) {
      this.name = name;
      this.type = type;
      this.comment = comment;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public DataType dataType() {
      return type;
    }

    @Override
    public String comment() {
      return comment;
    }
  }
}
