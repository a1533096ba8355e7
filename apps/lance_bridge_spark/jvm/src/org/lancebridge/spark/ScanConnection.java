package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;

/**
 * The connection of one scan: it sends a call, and receives a message, an Arrow stream and another message.
 *
 * <p>The last message confirms that the stream is complete, because an Arrow stream may end anywhere.
 */
final class ScanConnection implements AutoCloseable {
  private static final ScheduledThreadPoolExecutor CANCELLATION = cancellation();

  private final PythonProcess process;
  private final SocketChannel channel;
  private final DataInputStream messages;
  private Future<?> watch;

  private ScanConnection(PythonProcess process) throws IOException {
    this.process = process;
    this.channel = SocketChannel.open(UnixDomainSocketAddress.of(process.socket()));
    this.messages = new DataInputStream(Channels.newInputStream(channel));
    process.countConnection(1);
  }

  static ScanConnection open(PythonProcess process, List<byte[]> call) throws IOException {
    ScanConnection connection = new ScanConnection(process);
    try {
      new Message(Service.object(), call).write(new DataOutputStream(Channels.newOutputStream(connection.channel)));
      connection.readMessage();
      connection.watchCancellation();
      return connection;
    } catch (IOException | RuntimeException error) {
      connection.close();
      throw error;
    }
  }

  ReadableByteChannel stream() {
    return channel;
  }

  /**
   * Read the message before or after the stream.
   *
   * @throws RuntimeException the {@link LanceException} of an error in the message
   */
  void readMessage() throws IOException {
    JsonNode error;
    try {
      error = Message.read(messages).json.path("error");
    } catch (EOFException end) {
      throw ended(end);
    }
    if (!error.isMissingNode()) {
      throw new LanceException(error.path("code").asInt(), error.path("message").asText()).unchecked();
    }
  }

  /** Return the error of a task whose stream ended before its last message. */
  static IOException ended(IOException cause) {
    return new IOException("The Python process that reads Lance ended in the middle of a scan", cause);
  }

  /** Close the channel if the task is killed: Spark does not always interrupt its thread, which may wait here. */
  private void watchCancellation() {
    TaskContext task = TaskContext.get();
    if (task != null) {
      watch = CANCELLATION.scheduleWithFixedDelay(() -> {
        if (task.isInterrupted()) {
          closeChannel();
        }
      }, 1, 1, TimeUnit.SECONDS);
    }
  }

  private static ScheduledThreadPoolExecutor cancellation() {
    ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1, work -> {
      Thread thread = new Thread(work, "lance-bridge-scan-cancellation");
      thread.setDaemon(true);
      return thread;
    });
    executor.setRemoveOnCancelPolicy(true);
    return executor;
  }

  private void closeChannel() {
    try {
      channel.close();
    } catch (IOException error) {
      // The channel is unusable, as intended.
    }
  }

  @Override
  public void close() {
    if (watch != null) {
      watch.cancel(false);
    }
    closeChannel();
    process.countConnection(-1);
  }
}
