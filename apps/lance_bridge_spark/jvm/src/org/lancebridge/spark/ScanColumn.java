package org.lancebridge.spark;

import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;

/** A column of a scan, whose batches all come into the same vector. */
final class ScanColumn extends ArrowColumnVector {
  private final DecimalVector decimals;

  ScanColumn(ValueVector vector) {
    super(vector);
    this.decimals = vector instanceof DecimalVector ? (DecimalVector) vector : null;
  }

  /** Spark frees the columns of a batch that it has read, and a struct that was freed has lost its fields. */
  @Override
  public void closeIfFreeable() {
    // The next batch comes into the same vector.
  }

  /** The low half of a decimal is all of one of 18 digits: Spark's own way makes two objects of each. */
  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (decimals == null || precision > Decimal.MAX_LONG_DIGITS()) {
      return super.getDecimal(row, precision, scale);
    }
    if (isNullAt(row)) {
      return null;
    }
    long unscaled = decimals.getDataBuffer().getLong((long) row * DecimalVector.TYPE_WIDTH);
    return Decimal.createUnsafe(unscaled, precision, scale);
  }
}
