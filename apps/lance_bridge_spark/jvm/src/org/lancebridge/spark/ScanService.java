package org.lancebridge.spark;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The Python that reads for the tasks of this executor: one process, with a connection for each task. */
final class ScanService {
  private static final Map<PythonLaunch, ScanService> SERVICES = new ConcurrentHashMap<>();

  private final PythonRunner runner;

  private ScanService(PythonLaunch launch) {
    this.runner = new PythonRunner(launch);
  }

  static ScanService of(PythonSetup python) {
    return SERVICES.computeIfAbsent(
        python.launch("lance_bridge_spark.source.scan_service", "Reads of Lance need Python on each executor"),
        ScanService::new);
  }

  /**
   * Begin a scan.
   *
   * @param call what Python does and for which partition, both pickled
   * @throws RuntimeException a {@link LanceException} where Python cannot be started, or refuses it
   */
  ScanConnection open(List<byte[]> call, Duration idle) throws IOException {
    PythonProcess process = runner.running(idle);
    try {
      return ScanConnection.open(process, call);
    } catch (IOException error) {
      if (!process.endsWithin(Duration.ofSeconds(5))) {
        throw error;
      }
      // It was ending when it was asked.
      return ScanConnection.open(runner.running(idle), call);
    }
  }
}
