package org.lancebridge.spark;

import java.util.Map;
import java.util.Objects;

/** How to start a Python process on this machine: the interpreter, the module and its environment. */
final class PythonLaunch {
  private final String executable;
  private final String module;
  /** May hold secrets, and is never shown. */
  private final Map<String, String> environment;
  private final String need;

  /** @param need the beginning of the error message if it cannot be started */
  PythonLaunch(String executable, String module, Map<String, String> environment, String need) {
    this.executable = executable;
    this.module = module;
    this.environment = environment;
    this.need = need;
  }

  /** Return a builder of the process. Its arguments contain no secret: every user of the machine can see them. */
  ProcessBuilder process() {
    ProcessBuilder builder = new ProcessBuilder(executable, "-m", module);
    builder.environment().putAll(environment);
    return builder;
  }

  String executable() {
    return executable;
  }

  String need() {
    return need;
  }

  @Override
  public boolean equals(Object other) {
    if (!(other instanceof PythonLaunch)) {
      return false;
    }
    PythonLaunch launch = (PythonLaunch) other;
    return executable.equals(launch.executable) && module.equals(launch.module)
        && environment.equals(launch.environment);
  }

  @Override
  public int hashCode() {
    return Objects.hash(executable, module, environment);
  }

  @Override
  public String toString() {
    return executable;
  }
}
