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

  private final PythonRunner runner;

  private PythonService(PythonLaunch launch) {
    this.runner = new PythonRunner(launch);
  }

  static PythonService of(PythonSetup python) {
    return SERVICES.computeIfAbsent(
        python.launch("lance_bridge_spark.sql.driver_service", "The SQL catalog needs Python on the driver"),
        PythonService::new);
  }

  /**
   * Send a call and wait for the response. If the process ends first, retry with a new one, unless that could make a
   * change twice.
   */
  Message ask(ObjectNode call, List<byte[]> parts, boolean repeatable) {
    Duration timeout = ServiceSettings.timeout();
    String operation = call.path("op").asText();
    for (int attempt = 1; ; attempt++) {
      try {
        return runner.running(ServiceSettings.idle()).ask(call, parts, timeout);
      } catch (TimeoutException error) {
        throw unknown(operation, "had no response for " + timeout.toSeconds()
            + " s (spark.lance_bridge.service.timeout)", repeatable);
      } catch (PythonProcess.EndedException error) {
        if (attempt == 2 || error.begun && !repeatable) {
          throw unknown(operation, "failed because the Python process on the driver ended", repeatable);
        }
      }
    }
  }

  private static RuntimeException unknown(String operation, String problem, boolean repeatable) {
    return LanceException.unavailable(
        "Call " + operation + " " + problem
            + (repeatable ? ": repeat the statement" : ", and its outcome is unknown: check whether the change was "
                + "made before you repeat the statement"));
  }
}
