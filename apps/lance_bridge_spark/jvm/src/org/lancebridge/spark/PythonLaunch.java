package org.lancebridge.spark;

import java.util.Map;

/**
 * How to start a Python process on this machine.
 *
 * @param role the argument of {@code lance_bridge_spark.processes}
 * @param environment may hold secrets, and is never shown
 * @param need the beginning of the error message if it cannot be started
 */
record PythonLaunch(String executable, String role, Map<String, String> environment, String need) {

  /** Return a builder of the process. Its arguments contain no secret: every user of the machine can see them. */
  ProcessBuilder process() {
    ProcessBuilder builder = new ProcessBuilder(executable, "-m", "lance_bridge_spark.processes", role);
    builder.environment().putAll(environment);
    return builder;
  }

  @Override
  public String toString() {
    return executable;
  }
}
