package org.lancebridge.spark;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * Passes rows that are written one by one to a writer that needs an iterator.
 *
 * <p>Spark's Python writer only accepts an iterator of all rows: its `write(row)` drops the row, in some versions
 * without an error, so that an UPDATE would leave an empty table. The writer runs in a separate thread, and reads the
 * rows from a bounded queue.
 */
final class RowAtATimeWriter implements DataWriter<InternalRow> {
  private static final int ROWS_AT_ONCE = 128;
  /** Rows are handed over when they have this many bytes, so that large rows do not fill the heap. */
  private static final long BYTES_AT_ONCE = 4L << 20;
  private static final int QUEUED = 8;
  private static final long LOOK_AGAIN_MS = 50;
  private static final List<InternalRow> END = new ArrayList<>();

  private final DataWriter<InternalRow> inner;
  private final BlockingQueue<List<InternalRow>> queue = new ArrayBlockingQueue<>(QUEUED);
  private List<InternalRow> collected = new ArrayList<>(ROWS_AT_ONCE);
  private long collectedBytes;
  private volatile Throwable failure;
  private Thread thread;

  RowAtATimeWriter(DataWriter<InternalRow> inner) {
    this.inner = inner;
  }

  @Override
  public void write(InternalRow row) throws IOException {
    collected.add(row.copy()); // Spark reuses the row object.
    collectedBytes += RowSizes.of(row);
    if (collected.size() == ROWS_AT_ONCE || collectedBytes >= BYTES_AT_ONCE) {
      hand(collected);
      collected = new ArrayList<>(ROWS_AT_ONCE);
      collectedBytes = 0;
    }
  }

  @Override
  public void write(InternalRow metadata, InternalRow row) throws IOException {
    write(row);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    if (!collected.isEmpty()) {
      hand(collected);
    }
    hand(END);
    try {
      thread.join();
    } catch (InterruptedException error) {
      throw interrupted(error);
    }
    check();
    return inner.commit();
  }

  @Override
  public void abort() throws IOException {
    stop();
    inner.abort();
  }

  @Override
  public void close() throws IOException {
    stop();
    inner.close();
  }

  private void stop() {
    if (thread != null) {
      thread.interrupt();
    }
  }

  private void hand(List<InternalRow> rows) throws IOException {
    if (thread == null) {
      start();
    }
    try {
      boolean taken = false;
      while (!taken) {
        check();
        if (!thread.isAlive()) {
          throw new IOException("The Python writer ended before it had all rows");
        }
        taken = queue.offer(rows, LOOK_AGAIN_MS, TimeUnit.MILLISECONDS);
      }
    } catch (InterruptedException error) {
      throw interrupted(error);
    }
  }

  private void check() throws IOException {
    if (failure != null) {
      if (failure instanceof AnalysisException) {
        throw LanceException.<RuntimeException>hurl(failure); // an error of Lance, with its condition
      }
      throw new IOException("The Python writer failed: " + failure.getMessage(), failure);
    }
  }

  private static IOException interrupted(InterruptedException error) {
    Thread.currentThread().interrupt();
    InterruptedIOException interrupted = new InterruptedIOException("The task was stopped while it wrote");
    interrupted.initCause(error);
    return interrupted;
  }

  private void start() {
    TaskContext context = TaskContext.get();
    thread = new Thread(() -> run(context), "lance-row-writer");
    thread.setDaemon(true);
    thread.setContextClassLoader(Thread.currentThread().getContextClassLoader());
    thread.start();
  }

  private void run(TaskContext context) {
    TaskContext$.MODULE$.setTaskContext(context);
    try {
      inner.writeAll(new Rows());
    } catch (Throwable error) {
      failure = error;
    } finally {
      TaskContext$.MODULE$.unset();
    }
  }

  private final class Rows implements Iterator<InternalRow> {
    private Iterator<InternalRow> rows = END.iterator();
    private boolean ended;

    @Override
    public boolean hasNext() {
      while (!ended && !rows.hasNext()) {
        try {
          List<InternalRow> next = queue.take();
          ended = next == END;
          rows = next.iterator();
        } catch (InterruptedException error) {
          Thread.currentThread().interrupt();
          throw new IllegalStateException("The task was stopped while it wrote", error);
        }
      }
      return !ended;
    }

    @Override
    public InternalRow next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      return rows.next();
    }
  }
}
