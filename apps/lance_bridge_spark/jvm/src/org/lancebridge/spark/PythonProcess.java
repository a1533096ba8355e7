package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A running Python process, which handles the calls of many threads.
 *
 * <p>Calls are written to its standard input and responses are read from its standard output, in any order. No other
 * user can access these, and Python sees the end of its input however this JVM exits.
 */
final class PythonProcess {
  private static final Duration START = Duration.ofSeconds(120);
  /** How long a process may take to end. One that is stopped, or stuck in native code, does not see that it should. */
  private static final Duration GRACE = Duration.ofSeconds(5);
  private static final int ERROR_CHARACTERS = 4000;
  private static final Set<PythonProcess> RUNNING = ConcurrentHashMap.newKeySet();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(PythonProcess::endAll, "lance-bridge-python-end"));
  }

  private final PythonLaunch launch;
  private final Process process;
  private final DataOutputStream calls;
  private final Map<Long, Call> pending = new ConcurrentHashMap<>();
  private final AtomicLong ids = new AtomicLong();
  private final AtomicInteger connections = new AtomicInteger();
  private final CompletableFuture<Message> ready = new CompletableFuture<>();
  private final StringBuffer errors = new StringBuffer();
  private volatile boolean ended;
  private volatile long lastUsed = System.nanoTime();

  private PythonProcess(PythonLaunch launch, Process process) {
    this.launch = launch;
    this.process = process;
    this.calls = new DataOutputStream(new BufferedOutputStream(process.getOutputStream(), 1 << 16));
  }

  /** A call that was sent; Python sends a message when it begins with it. */
  private static final class Call {
    final CompletableFuture<Message> answer = new CompletableFuture<>();
    volatile boolean begun;
  }

  /** The process ended before it responded. */
  static final class EndedException extends Exception {
    private static final long serialVersionUID = 1L;
    /** Whether it had begun with the call, so that the call may have had effects. */
    final boolean begun;

    EndedException(boolean begun) {
      super("The Python process has ended");
      this.begun = begun;
    }
  }

  /** @throws RuntimeException a {@link LanceException} if the process does not start */
  static PythonProcess start(PythonLaunch launch) {
    PythonProcess started;
    try {
      started = new PythonProcess(launch, launch.process().start());
    } catch (IOException error) {
      throw cannotRun(launch, "cannot be started (" + error.getMessage() + ")");
    }
    RUNNING.add(started);
    daemon("errors", started::readErrors).start();
    daemon("answers", started::readAnswers).start();
    started.waitUntilReady();
    return started;
  }

  private static Thread daemon(String name, Runnable work) {
    Thread thread = new Thread(work, "lance-bridge-python-" + name);
    thread.setDaemon(true);
    return thread;
  }

  private void waitUntilReady() {
    try {
      ready.get(START.toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException error) {
      end();
      Thread.currentThread().interrupt();
      throw LanceException.unavailable("The start of Python was interrupted");
    } catch (TimeoutException error) {
      end();
      throw cannotRun(launch, "did not respond within " + START.toSeconds() + " s");
    } catch (ExecutionException error) {
      end();
      throw cannotRun(launch, "exited on start" + lastError());
    }
  }

  private String lastError() {
    String[] lines = errors.toString().strip().split("\n");
    String last = lines[lines.length - 1].strip();
    return last.isEmpty() ? "" : ": " + last;
  }

  private static RuntimeException cannotRun(PythonLaunch launch, String problem) {
    return LanceException.unsupported(
        launch.need() + ", and " + launch.executable() + " " + problem
            + ": set PYSPARK_PYTHON, before the session is started, to a Python that has lance-bridge, pylance and "
            + "pyarrow");
  }

  boolean isAlive() {
    return !ended && process.isAlive();
  }

  /** Wait for the process to end, and return whether it has ended. */
  boolean endsWithin(Duration time) {
    ended |= exitsWithin(time);
    return ended;
  }

  private boolean exitsWithin(Duration time) {
    try {
      return process.waitFor(time.toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  /** Mark the process as used, so that it is not idle when a call follows. */
  PythonProcess inUse() {
    lastUsed = System.nanoTime();
    return this;
  }

  /** Return the path of the socket that the process listens on, in a private directory. */
  Path socket() {
    return Path.of(ready.join().json.path("socket").asText());
  }

  /** Count a connection to its socket that was opened (1) or closed (-1). */
  void countConnection(int change) {
    connections.addAndGet(change);
    lastUsed = System.nanoTime();
  }

  boolean isIdle(Duration time) {
    return pending.isEmpty() && connections.get() == 0 && System.nanoTime() - lastUsed > time.toNanos();
  }

  /**
   * Send a call and wait for the response.
   *
   * <p>After a timeout the call stays pending until Python answers, so that the process does not count as idle.
   *
   * @param timeout how long to wait, or null for no limit
   */
  Message ask(ObjectNode json, List<byte[]> parts, Duration timeout) throws EndedException, TimeoutException {
    long id = ids.incrementAndGet();
    Call call = new Call();
    pending.put(id, call);
    try {
      send(new Message(json.put("id", id), parts));
      if (ended) {
        // The reader may have failed the pending calls before this one was added.
        call.answer.completeExceptionally(new EndedException(call.begun));
      }
      return timeout == null ? call.answer.get() : call.answer.get(timeout.toMillis(), TimeUnit.MILLISECONDS);
    } catch (IOException error) {
      pending.remove(id);
      throw new EndedException(false);
    } catch (ExecutionException error) {
      throw new EndedException(call.begun);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw LanceException.unavailable("The statement was interrupted while Python answered");
    } finally {
      lastUsed = System.nanoTime();
    }
  }

  private void send(Message message) throws IOException {
    synchronized (calls) {
      message.write(calls);
    }
  }

  private void readAnswers() {
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(process.getInputStream(), 1 << 16))) {
      ready.complete(Message.read(in));
      while (true) {
        take(Message.read(in));
      }
    } catch (IOException | RuntimeException error) {
      ended = true;
      RUNNING.remove(this);
      ready.completeExceptionally(error);
      pending.values().forEach(call -> call.answer.completeExceptionally(error));
      end();
      deleteSocket();
    }
  }

  /** Delete the socket, which a killed process leaves behind. */
  private void deleteSocket() {
    if (!ready.isDone() || ready.isCompletedExceptionally() || !ready.join().json.has("socket")) {
      return;
    }
    try {
      Files.deleteIfExists(socket());
      Files.deleteIfExists(socket().getParent());
    } catch (IOException error) {
      // The process is deleting it itself.
    }
  }

  private void take(Message message) {
    long id = message.json.path("id").asLong();
    if (message.json.path("begun").asBoolean()) {
      pending.get(id).begun = true;
    } else {
      lastUsed = System.nanoTime();
      pending.remove(id).answer.complete(message);
    }
  }

  /** Forward what Python logs, as Spark does for its workers, and keep the last part for error messages. */
  private void readErrors() {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.err.println(line);
        errors.append(line).append('\n');
        errors.delete(0, Math.max(0, errors.length() - ERROR_CHARACTERS));
      }
    } catch (IOException error) {
      // The process has ended.
    }
  }

  /** Close the input of the process, which makes it exit, and kill it if it does not; at once if it was never ready. */
  void end() {
    closeInput();
    if (!ready.isDone() || ready.isCompletedExceptionally()) {
      process.destroyForcibly();
    } else if (process.isAlive()) {
      CompletableFuture.delayedExecutor(GRACE.toMillis(), TimeUnit.MILLISECONDS).execute(process::destroyForcibly);
    }
  }

  /** End all processes with this JVM, which waits for them. */
  private static void endAll() {
    long deadline = System.nanoTime() + GRACE.toNanos();
    RUNNING.forEach(PythonProcess::closeInput);
    for (PythonProcess each : RUNNING) {
      if (!each.exitsWithin(Duration.ofNanos(Math.max(0, deadline - System.nanoTime())))) {
        each.process.destroyForcibly();
        each.exitsWithin(GRACE);
        each.deleteSocket();
      }
    }
  }

  private void closeInput() {
    ended = true;
    try {
      process.getOutputStream().close();
    } catch (IOException error) {
      // It has ended already.
    }
  }
}
