package org.lancebridge.spark;

import java.time.Duration;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.internal.SQLConf;

/** The settings of a session about its Python service and what that answers without a task, and about its scans. */
final class ServiceSettings {
  private static final String PREFIX = "spark.lance_bridge.";

  private ServiceSettings() {}

  /** How long one call may take. */
  static Duration timeout() {
    return Duration.ofMillis(JavaUtils.timeStringAsMs(valueOf("service.timeout", "1h")));
  }

  /** How long the process stays when nothing is asked. */
  static Duration idle() {
    return Duration.ofMillis(JavaUtils.timeStringAsMs(valueOf("service.idle", "30min")));
  }

  /** How many rows a read may have that needs no task; 0 for none. */
  static long localRows() {
    return Long.parseLong(valueOf("local.rows", "10000"));
  }

  /** How many bytes these rows may have. */
  static long localBytes() {
    return JavaUtils.byteStringAsBytes(valueOf("local.bytes", "4m"));
  }

  /** Whether tasks hand over columns; empty where that depends on what executors have. */
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
