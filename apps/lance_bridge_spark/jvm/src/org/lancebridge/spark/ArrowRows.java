package org.lancebridge.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Converts an Arrow stream of rows to Spark's rows. */
final class ArrowRows {
  private ArrowRows() {}

  static InternalRow[] of(byte[] stream, StructType schema) {
    List<InternalRow> rows = new ArrayList<>();
    UnsafeProjection copying = UnsafeProjection.create(schema);
    try (BufferAllocator allocator =
            ArrowUtils.rootAllocator().newChildAllocator("rows of lance-bridge", 0, Long.MAX_VALUE);
        ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(stream), allocator)) {
      while (reader.loadNextBatch()) {
        batch(reader.getVectorSchemaRoot()).rowIterator()
            .forEachRemaining(row -> rows.add(copying.apply(row).copy()));
      }
    } catch (IOException error) {
      throw new IllegalStateException("The rows from Python are no stream of Arrow", error);
    }
    return rows.toArray(new InternalRow[0]);
  }

  /** Return the current batch. Its vectors belong to the reader, which releases them. */
  private static ColumnarBatch batch(VectorSchemaRoot root) {
    ColumnVector[] columns =
        root.getFieldVectors().stream().map(ArrowColumnVector::new).toArray(ColumnVector[]::new);
    return new ColumnarBatch(columns, root.getRowCount());
  }
}
