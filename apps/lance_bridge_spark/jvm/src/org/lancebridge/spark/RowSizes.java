package org.lancebridge.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;

/** About how many bytes rows have in memory. */
final class RowSizes {
  private static final long FIXED = 8;

  private RowSizes() {}

  static long of(InternalRow row) {
    if (row instanceof UnsafeRow unsafe) {
      return unsafe.getSizeInBytes();
    }
    if (!(row instanceof ProjectingInternalRow projecting)) {
      return FIXED * row.numFields();
    }
    long size = 0;
    int at = 0;
    for (StructField field : projecting.schema().fields()) {
      size += row.isNullAt(at) ? 0 : ofValue(row, at, field.dataType());
      at++;
    }
    return size;
  }

  private static long ofValue(InternalRow row, int at, DataType type) {
    if (type instanceof StringType) {
      return row.getUTF8String(at).numBytes();
    }
    if (type instanceof BinaryType) {
      return row.getBinary(at).length;
    }
    if (type instanceof ArrayType) {
      ArrayData values = row.getArray(at);
      return values instanceof UnsafeArrayData unsafe ? unsafe.getSizeInBytes() : FIXED * values.numElements();
    }
    return FIXED;
  }
}
