package org.lancebridge.spark;

import java.io.IOException;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** The writer of a task: it throws the errors of Lance with their conditions, and not as the text of Python. */
final class LanceWriter implements DataWriter<InternalRow> {
  private final DataWriter<InternalRow> inner;
  private final String table;

  private LanceWriter(DataWriter<InternalRow> inner, String table) {
    this.inner = inner;
    this.table = table;
  }

  @Override
  public void write(InternalRow row) throws IOException {
    inner.write(row);
  }

  @Override
  public void write(InternalRow metadata, InternalRow row) throws IOException {
    inner.write(metadata, row);
  }

  @Override
  public void writeAll(Iterator<InternalRow> rows) throws IOException {
    try {
      inner.writeAll(rows);
    } catch (Throwable thrown) {
      throw LanceException.ofWrite(thrown, table);
    }
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    return inner.commit();
  }

  @Override
  public void abort() throws IOException {
    inner.abort();
  }

  @Override
  public void close() throws IOException {
    inner.close();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return inner.currentMetricsValues();
  }

  /** Is sent to executors, with the factory of the Python writer. */
  static final class OfBatch implements DataWriterFactory {
    private static final long serialVersionUID = 1L;

    private final DataWriterFactory inner;
    private final String table;

    OfBatch(DataWriterFactory inner, String table) {
      this.inner = inner;
      this.table = table;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new LanceWriter(inner.createWriter(partition, task), table);
    }
  }

  /** The same for the batches of a stream. */
  static final class OfStream implements StreamingDataWriterFactory {
    private static final long serialVersionUID = 1L;

    private final StreamingDataWriterFactory inner;
    private final String table;

    OfStream(StreamingDataWriterFactory inner, String table) {
      this.inner = inner;
      this.table = table;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
      return new LanceWriter(inner.createWriter(partition, task, batch), table);
    }
  }
}
