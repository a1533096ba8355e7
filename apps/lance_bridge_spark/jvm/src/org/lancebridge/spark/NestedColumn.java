package org.lancebridge.spark;

import org.apache.arrow.vector.ValueVector;

/**
 * The elements of lists, or the fields of structs. Code that Spark generates, such as that of `exists`, reads a value
 * before it asks whether that is null. Arrow raises an error then, and Spark's own arrays return any value.
 */
final class NestedColumn extends ColumnWithParts {
  NestedColumn(ValueVector vector) {
    super(vector);
  }

  @Override
  public boolean getBoolean(int row) {
    return !isNullAt(row) && super.getBoolean(row);
  }

  @Override
  public byte getByte(int row) {
    return isNullAt(row) ? 0 : super.getByte(row);
  }

  @Override
  public short getShort(int row) {
    return isNullAt(row) ? 0 : super.getShort(row);
  }

  @Override
  public int getInt(int row) {
    return isNullAt(row) ? 0 : super.getInt(row);
  }

  @Override
  public long getLong(int row) {
    return isNullAt(row) ? 0 : super.getLong(row);
  }

  @Override
  public float getFloat(int row) {
    return isNullAt(row) ? 0 : super.getFloat(row);
  }

  @Override
  public double getDouble(int row) {
    return isNullAt(row) ? 0 : super.getDouble(row);
  }
}
