package org.lancebridge.spark;

import java.util.function.Supplier;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** A write by the data source in Python, whose errors have the same conditions as those of reads. */
final class LanceWrite implements Write {
  private final Write inner;
  private final String table;
  /** Whether executors have this jar: if not, tasks throw what Python says. */
  private final boolean inTasks;

  LanceWrite(Write inner, String table) {
    this.inner = inner;
    this.table = table;
    this.inTasks = ColumnarTasks.executorsHaveJar();
  }

  @Override
  public String description() {
    return inner.description();
  }

  @Override
  public BatchWrite toBatch() {
    return new Batch(inner.toBatch());
  }

  @Override
  public StreamingWrite toStreaming() {
    return new Stream(inner.toStreaming());
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return inner.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return inner.reportDriverMetrics();
  }

  /** Return its name in plans. */
  @Override
  public String toString() {
    return inner.toString();
  }

  private <T> T named(Supplier<T> call) {
    try {
      return call.get();
    } catch (Throwable thrown) {
      throw LanceException.ofWrite(thrown, table);
    }
  }

  private final class Batch implements BatchWrite {
    private final BatchWrite batch;

    Batch(BatchWrite batch) {
      this.batch = batch;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      DataWriterFactory factory = batch.createBatchWriterFactory(info);
      return inTasks ? new LanceWriter.OfBatch(factory, table) : factory;
    }

    @Override
    public boolean useCommitCoordinator() {
      return batch.useCommitCoordinator();
    }

    @Override
    public void onDataWriterCommit(WriterCommitMessage message) {
      batch.onDataWriterCommit(message);
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      batch.commit(messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      batch.abort(messages);
    }
  }

  /** Spark's own workers plan and commit the batches of a stream. */
  private final class Stream implements StreamingWrite {
    private final StreamingWrite stream;

    Stream(StreamingWrite stream) {
      this.stream = stream;
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      StreamingDataWriterFactory factory = named(() -> stream.createStreamingWriterFactory(info));
      return inTasks ? new LanceWriter.OfStream(factory, table) : factory;
    }

    @Override
    public boolean useCommitCoordinator() {
      return stream.useCommitCoordinator();
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      named(() -> {
        stream.commit(batch, messages);
        return null;
      });
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      stream.abort(batch, messages);
    }
  }
}
