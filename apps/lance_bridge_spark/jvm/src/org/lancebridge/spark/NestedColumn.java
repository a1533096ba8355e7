package org.lancebridge.spark;

import java.util.List;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;

/**
 * The elements of lists, or the fields of structs. Code that Spark generates, such as that of `exists`, reads a value
 * before it asks whether that is null. Arrow raises an error then, and Spark's own arrays return any value.
 */
final class NestedColumn extends ArrowColumnVector {
  private final Parts parts;

  NestedColumn(ValueVector vector) {
    super(vector);
    this.parts = new Parts(vector);
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

  @Override
  public ColumnarArray getArray(int row) {
    return isNullAt(row) ? null : parts.array(row);
  }

  @Override
  public ColumnarMap getMap(int row) {
    return isNullAt(row) ? null : parts.map(row);
  }

  @Override
  public ArrowColumnVector getChild(int ordinal) {
    return parts.child(ordinal);
  }

  /** What is inside the values of a column: elements, keys and values, or fields. */
  static final class Parts {
    private final ValueVector vector;
    private final NestedColumn[] columns;

    Parts(ValueVector vector) {
      this.vector = vector;
      this.columns = inside(vector).stream().map(NestedColumn::new).toArray(NestedColumn[]::new);
    }

    private static List<? extends ValueVector> inside(ValueVector vector) {
      if (vector instanceof MapVector) {
        return ((StructVector) ((MapVector) vector).getDataVector()).getChildrenFromFields();
      }
      if (vector instanceof ListVector) {
        return List.of(((ListVector) vector).getDataVector());
      }
      return vector instanceof StructVector ? ((StructVector) vector).getChildrenFromFields() : List.of();
    }

    ColumnarArray array(int row) {
      return new ColumnarArray(columns[0], start(row), length(row));
    }

    ColumnarMap map(int row) {
      return new ColumnarMap(columns[0], columns[1], start(row), length(row));
    }

    NestedColumn child(int ordinal) {
      return columns[ordinal];
    }

    private int start(int row) {
      return ((ListVector) vector).getElementStartIndex(row);
    }

    private int length(int row) {
      return ((ListVector) vector).getElementEndIndex(row) - start(row);
    }
  }
}
