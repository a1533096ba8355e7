package org.lancebridge.spark;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads a scan as columns, in the memory that they were received into. */
final class ColumnarReader implements PartitionReader<ColumnarBatch> {
  private final ScanConnection connection;
  private final BufferAllocator allocator;
  private final ArrowStreamReader stream;
  private ColumnarBatch batch;

  ColumnarReader(ScanConnection connection) {
    this.connection = connection;
    this.allocator = ArrowUtils.rootAllocator().newChildAllocator("scan of lance-bridge", 0, Long.MAX_VALUE);
    this.stream = new ArrowStreamReader(connection.stream(), allocator);
  }

  @Override
  public boolean next() throws IOException {
    while (loadNextBatch()) {
      VectorSchemaRoot root = stream.getVectorSchemaRoot();
      if (root.getRowCount() > 0) {
        batch().setNumRows(root.getRowCount());
        return true;
      }
    }
    connection.readMessage();
    return false;
  }

  private boolean loadNextBatch() throws IOException {
    try {
      return stream.loadNextBatch();
    } catch (ClosedChannelException cancelled) {
      throw cancelled;
    } catch (IOException cut) {
      throw ScanConnection.ended(cut);
    }
  }

  /** Return the batch: all batches of a stream are loaded into the same vectors, which the stream owns. */
  private ColumnarBatch batch() throws IOException {
    if (batch == null) {
      batch = new ColumnarBatch(stream.getVectorSchemaRoot().getFieldVectors().stream()
          .map(ScanColumn::new).toArray(ColumnVector[]::new));
    }
    return batch;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    try (connection; allocator) {
      stream.close();
    }
  }
}
