package org.lancebridge.spark;

import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.types.Decimal;

/** A column of a scan; all its batches are loaded into the same vector. */
final class ScanColumn extends ColumnWithParts {
  private final DecimalVector decimals;

  ScanColumn(ValueVector vector) {
    super(vector);
    this.decimals = vector instanceof DecimalVector ? (DecimalVector) vector : null;
  }

  /** Do nothing: Spark frees the columns of a batch after reading it, and a freed struct loses its fields. */
  @Override
  public void closeIfFreeable() {
    // The next batch is loaded into the same vector.
  }

  /** Read a decimal of up to 18 digits from its low 64 bits: Spark's own code allocates two objects per value. */
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
