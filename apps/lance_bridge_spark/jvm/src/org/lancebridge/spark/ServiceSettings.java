package org.lancebridge.spark;

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;

/** The settings of a session for its Python service, reads without tasks, and scans. */
final class ServiceSettings {
  private static final String PREFIX = "spark.lance_bridge.";

  private ServiceSettings() {}

  /** The timeout of a call. */
  static Duration timeout() {
    return Duration.ofMillis(JavaUtils.timeStringAsMs(valueOf("service.timeout", "1h")));
  }

  /** How long an idle process is kept. */
  static Duration idle() {
    return Duration.ofMillis(JavaUtils.timeStringAsMs(valueOf("service.idle", "30min")));
  }

  /** The maximum number of rows of a read without tasks; 0 disables such reads. */
  static long localRows() {
    return Long.parseLong(valueOf("local.rows", "10000"));
  }

  /** The maximum size of these rows in bytes. */
  static long localBytes() {
    return JavaUtils.byteStringAsBytes(valueOf("local.bytes", "4m"));
  }

  /** The settings by which Python divides the memory of scans among the tasks of an executor. */
  static Map<String, String> memory(SparkSession session) {
    Map<String, String> found = new TreeMap<>();
    for (String key : List.of(PREFIX + "scan.memory", "spark.master", "spark.executor.cores", "spark.task.cpus")) {
      String value = session.conf().get(key, "");
      if (!value.isEmpty()) {
        found.put(key, value);
      }
    }
    return found;
  }

  /** Whether tasks return columns; empty if that depends on the executors. */
  static Optional<Boolean> columnar() {
    String value = valueOf("columnar", "auto").toLowerCase(Locale.ROOT);
    if (!Set.of("auto", "true", "false").contains(value)) {
      throw LanceException.invalid("Setting " + PREFIX + "columnar is '" + value + "', and not auto, true or false");
    }
    return value.equals("auto") ? Optional.empty() : Optional.of(value.equals("true"));
  }

  private static String valueOf(String name, String otherwise) {
    return SQLConf.get().getConfString(PREFIX + name, otherwise);
  }
}
