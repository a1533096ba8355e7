package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.SparkFiles;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import scala.Option;

/** Spark's Python for the data source: its executable, environment and files. It is sent to executors. */
final class PythonSetup implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final String PATH = "PYTHONPATH";

  private final String executable;
  /** May hold secrets, and is never shown. */
  private final TreeMap<String, String> environment;
  /** Names of archives that were added to the session. */
  private final ArrayList<String> archives;
  /** The directory of a client of Spark Connect among the added files, or null. */
  private final String client;

  private PythonSetup(PythonFunction function) {
    Option<JobArtifactState> state = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
    this.executable = function.pythonExec();
    this.environment = new TreeMap<>(function.envVars());
    // When Spark starts a worker with this function, to plan a stream for example, it adds variables of its own to
    // the same map, such as SPARK_BUFFER_SIZE: with them, a session would get a second process.
    environment.keySet().removeIf(name -> name.matches("(PY)?SPARK_.*|PYTHON_.*"));
    this.archives = new ArrayList<>(function.pythonIncludes());
    this.client = state.isEmpty() ? null : state.get().uuid();
  }

  static PythonSetup of(PythonDataSourceV2 provider) {
    return new PythonSetup(provider.source().dataSourceCls());
  }

  /**
   * Return how to start a process on this machine.
   *
   * @param role the argument of {@code lance_bridge_spark.processes}
   * @param need the beginning of the error message if it cannot be started
   */
  PythonLaunch launch(String role, String need) {
    Map<String, String> variables = new TreeMap<>(environment);
    List<String> path = addedFiles();
    for (String each : new String[] {
      PythonUtils.sparkPythonPath(), environment.getOrDefault(PATH, ""), System.getenv().getOrDefault(PATH, "")
    }) {
      if (!each.isEmpty()) {
        path.add(each);
      }
    }
    variables.put(PATH, String.join(File.pathSeparator, path));
    variables.put("PYTHONUNBUFFERED", "YES");
    return new PythonLaunch(executable, role, variables, need);
  }

  /** Describe the workers of jobs that Python on the driver runs. */
  void describeTo(ObjectNode access) {
    access.put("python", executable);
    archives.forEach(access.putArray("archives")::add);
  }

  /** Return the modules and archives that were added to the session, or to the Spark Connect client. */
  private List<String> addedFiles() {
    File root = new File(SparkFiles.getRootDirectory());
    File directory = client == null ? root : new File(root, client);
    List<String> path = new ArrayList<>();
    String[] modules = directory.list((in, name) -> name.endsWith(".py"));
    if (modules != null && modules.length > 0) {
      path.add(directory.getPath());
    }
    for (String archive : archives) {
      path.add(new File(directory, archive).getPath());
    }
    return path;
  }
}
