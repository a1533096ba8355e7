package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeoutException;

/**
 * The Python that answers this driver: one process for all sessions that would run the same.
 *
 * <p>Calls carry all that they need, so that nothing is lost with a process.
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
   * Ask and wait for the answer; where the process ends in between, ask another one, unless that could do a change
   * twice.
   */
  Message ask(ObjectNode call, List<byte[]> parts, boolean repeatable) {
    Duration timeout = ServiceSettings.timeout();
    String operation = call.path("op").asText();
    for (int attempt = 1; ; attempt++) {
      try {
        return runner.running(ServiceSettings.idle()).ask(call, parts, timeout);
      } catch (TimeoutException error) {
        throw unknown(operation, "has not been answered for " + timeout.toSeconds()
            + " s (spark.lance_bridge.service.timeout)", repeatable);
      } catch (PythonProcess.EndedException error) {
        if (attempt == 2 || error.begun && !repeatable) {
          throw unknown(operation, "was not answered, since the Python process on the driver ended", repeatable);
        }
      }
    }
  }

  private static RuntimeException unknown(String operation, String problem, boolean repeatable) {
    return LanceException.unavailable(
        "Call " + operation + " " + problem
            + (repeatable ? ": repeat the statement" : ", and whether its change was made is not known: check, then "
                + "repeat the statement if it was not"));
  }
}
