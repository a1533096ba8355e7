package org.lancebridge.spark;

import java.util.List;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;

/** A column whose parts, elements, keys and values, or fields, are columns of {@link NestedColumn}. */
abstract class ColumnWithParts extends ArrowColumnVector {
  private final ValueVector vector;
  private final NestedColumn[] parts;

  ColumnWithParts(ValueVector vector) {
    super(vector);
    this.vector = vector;
    this.parts = partsOf(vector).stream().map(NestedColumn::new).toArray(NestedColumn[]::new);
  }

  private static List<? extends ValueVector> partsOf(ValueVector vector) {
    if (vector instanceof MapVector) {
      return ((StructVector) ((MapVector) vector).getDataVector()).getChildrenFromFields();
    }
    if (vector instanceof ListVector) {
      return List.of(((ListVector) vector).getDataVector());
    }
    return vector instanceof StructVector ? ((StructVector) vector).getChildrenFromFields() : List.of();
  }

  @Override
  public ColumnarArray getArray(int row) {
    return isNullAt(row) ? null : new ColumnarArray(parts[0], start(row), length(row));
  }

  @Override
  public ColumnarMap getMap(int row) {
    return isNullAt(row) ? null : new ColumnarMap(parts[0], parts[1], start(row), length(row));
  }

  @Override
  public ArrowColumnVector getChild(int ordinal) {
    return parts[ordinal];
  }

  private int start(int row) {
    return ((ListVector) vector).getElementStartIndex(row);
  }

  private int length(int row) {
    return ((ListVector) vector).getElementEndIndex(row) - start(row);
  }
}
