package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeoutException;

/**
 * The Python process that handles this driver's calls, shared by all sessions with the same {@link PythonLaunch}.
 *
 * <p>Calls contain everything that they need, so that no state is lost when a process ends.
 */
final class PythonService {
  private static final Map<PythonLaunch, PythonService> SERVICES = new ConcurrentHashMap<>();

  /** What a call changes: whether it is safe to send it again, and what to say if it has no response. */
  enum Effect {
    /** Nothing. */
    NONE,
    /** Something, and a repeated call changes nothing more. */
    REPEATABLE,
    /** Something, which a repeated call could change twice. */
    ONCE
  }

  private final PythonRunner runner;

  private PythonService(PythonLaunch launch) {
    this.runner = new PythonRunner(launch);
  }

  static PythonService of(PythonSetup python) {
    return SERVICES.computeIfAbsent(
        python.launch("driver", "The SQL catalog needs Python on the driver"),
        PythonService::new);
  }

  /**
   * Send a call and wait for the response. If the process ends first, retry with a new one, unless that could make a
   * change twice.
   *
   * @param timeout how long to wait, or null for no limit
   */
  Message ask(ObjectNode call, List<byte[]> parts, Effect effect, Duration timeout) {
    for (int attempt = 1; ; attempt++) {
      try {
        return runner.running(ServiceSettings.idle()).ask(call, parts, timeout);
      } catch (TimeoutException error) {
        throw noResponse(call, "had no response for " + timeout.toSeconds()
            + " s (spark.lance_bridge.service.timeout) and may still be running", effect);
      } catch (PythonProcess.EndedException error) {
        if (attempt == 2 || error.begun && effect == Effect.ONCE) {
          throw noResponse(call, "failed because the Python process on the driver ended", effect);
        }
      }
    }
  }

  /** A repeated statement has another transaction, so it can make a change twice even if the call cannot. */
  private static RuntimeException noResponse(ObjectNode call, String problem, Effect effect) {
    String failure = "Call " + call.path("op").asText() + " " + problem;
    if (effect == Effect.NONE) {
      return LanceException.unavailable(failure + ": repeat the statement");
    }
    String transaction = call.path("args").path("transaction").asText();
    return LanceException.unavailable(
        failure + ", and its outcome is unknown: "
            + (transaction.isEmpty() ? "check whether the change was made"
                : "the change is committed if a version of the table has the transaction " + transaction
                    + ". Check that")
            + " before you repeat the statement");
  }
}
