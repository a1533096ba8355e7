package org.lancebridge.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A batch write whose writers accept rows one by one, as UPDATE and MERGE need: see {@link RowAtATimeWriter}. */
final class RowAtATimeWrite implements BatchWrite {
  private final BatchWrite inner;

  RowAtATimeWrite(BatchWrite inner) {
    this.inner = inner;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return new Factory(inner.createBatchWriterFactory(info));
  }

  @Override
  public boolean useCommitCoordinator() {
    return inner.useCommitCoordinator();
  }

  @Override
  public void onDataWriterCommit(WriterCommitMessage message) {
    inner.onDataWriterCommit(message);
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    inner.commit(messages);
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    inner.abort(messages);
  }

  /** Is sent to executors, with the factory of the Python writer. */
  private static final class Factory implements DataWriterFactory {
    private static final long serialVersionUID = 1L;

    private final DataWriterFactory inner;

    Factory(DataWriterFactory inner) {
      this.inner = inner;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new RowAtATimeWriter(inner.createWriter(partition, task));
    }
  }
}
