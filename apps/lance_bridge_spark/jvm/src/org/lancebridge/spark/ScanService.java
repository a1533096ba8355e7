package org.lancebridge.spark;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The Python process that reads for the tasks of this executor, with one connection per task. */
final class ScanService {
  private static final Map<PythonLaunch, ScanService> SERVICES = new ConcurrentHashMap<>();

  private final PythonRunner runner;

  private ScanService(PythonLaunch launch) {
    this.runner = new PythonRunner(launch);
  }

  static ScanService of(PythonSetup python) {
    return SERVICES.computeIfAbsent(
        python.launch("executor", "Reads of Lance need Python on each executor"),
        ScanService::new);
  }

  /**
   * Start a scan.
   *
   * @param call the function and its partition, both pickled
   * @throws RuntimeException a {@link LanceException} if Python cannot be started or refuses the call
   */
  ScanConnection open(List<byte[]> call, Duration idle) throws IOException {
    PythonProcess process = runner.running(idle);
    try {
      return ScanConnection.open(process, call);
    } catch (IOException error) {
      if (!process.endsWithin(Duration.ofSeconds(5))) {
        throw error;
      }
      // The process was ending: use a new one.
      return ScanConnection.open(runner.running(idle), call);
    }
  }
}
