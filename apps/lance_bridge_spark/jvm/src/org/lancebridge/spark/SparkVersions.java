package org.lancebridge.spark;

import java.util.Set;

/** The Spark versions that this catalog is tested on; Spark's connector interfaces change in minor versions. */
final class SparkVersions {
  private static final Set<String> TESTED = Set.of("4.1", "4.2", "4.3");

  private SparkVersions() {}

  /** Refuse other versions with a clear message, instead of a linkage error during a query. */
  static void check(String version) {
    String[] parts = version.split("\\.", 3);
    if (parts.length < 2 || !TESTED.contains(parts[0] + "." + parts[1])) {
      throw LanceException.unsupported(
          "The SQL catalog of lance-bridge runs on Spark 4.1, 4.2 and 4.3, and this is Spark " + version
              + ": install one of those PySpark versions, or use the data source `lance` without the catalog");
    }
  }

  static String current() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }
}
