package org.lancebridge.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** COUNT(*) of a table, read from its metadata without tasks. */
final class CountScan implements LocalScan {
  private final String table;
  private final long rows;

  CountScan(String table, long rows) {
    this.table = table;
    this.rows = rows;
  }

  @Override
  public StructType readSchema() {
    return new StructType().add("count", DataTypes.LongType, false);
  }

  @Override
  public InternalRow[] rows() {
    return new InternalRow[] {new GenericInternalRow(new Object[] {rows})};
  }

  @Override
  public String description() {
    return "lance " + table + " COUNT(*) from metadata";
  }
}
