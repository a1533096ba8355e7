package org.lancebridge.spark;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.DataSourceManager;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Registers the data source `lance` with the catalogs of a session's settings when these have changed.
 *
 * <p>As an analyzer rule it runs on every plan before Spark resolves its data source, and does not change the plan.
 */
final class SessionCatalogs extends Rule<LogicalPlan> {
  private static final String PREFIX = "spark.sql.catalog.";
  private static final String TIME_ZONE = "spark.sql.session.timeZone";
  private static final String SESSION_CATALOG = PREFIX + LanceSessionCatalog.NAME;
  private static final String CLASS = LanceCatalog.class.getName();
  private static final String MAKER = "lance_bridge_spark.source.datasource\nwith_settings\n";

  private final SparkSession session;
  private volatile Map<String, String> registered = Map.of();

  SessionCatalogs(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    Map<String, String> settings = settings();
    if (LanceSessionCatalog.class.getName().equals(settings.get(SESSION_CATALOG))) {
      String prefix = SESSION_CATALOG + "." + HiveSettings.OURS;
      HiveSettings.complete(session, settings, prefix).forEach((key, value) -> settings.put(prefix + key, value));
    }
    if (!settings.equals(registered) && settings.entrySet().stream().anyMatch(SessionCatalogs::isOurs)) {
      registered = settings;
      register(settings);
    }
    return plan;
  }

  private Map<String, String> settings() {
    Map<String, String> found = new TreeMap<>(ServiceSettings.memory(session));
    found.put(TIME_ZONE, session.conf().get(TIME_ZONE));
    CollectionConverters.asJava(session.conf().getAll()).forEach((key, value) -> {
      if (key.startsWith(PREFIX)) {
        found.put(key, value);
      }
    });
    return found;
  }

  private static boolean isOurs(Map.Entry<String, String> setting) {
    return setting.getKey().endsWith(".impl") || setting.getValue().equals(CLASS);
  }

  private void register(Map<String, String> settings) {
    DataSourceManager sources =
        ((org.apache.spark.sql.classic.SparkSession) session).sessionState().dataSourceManager();
    if (!sources.dataSourceExists(Service.SOURCE)) {
      return; // The driver's Python lacks lance-bridge: Spark reports that when the source is used.
    }
    PythonFunction known = sources.lookupDataSource(Service.SOURCE).dataSourceCls();
    PythonFunction source = new SimplePythonFunction(
        pickle(Service.tree(settings).toString()), known.envVars(), known.pythonIncludes(), known.pythonExec(),
        known.pythonVer(), known.broadcastVars(), known.accumulator());
    sources.registerDataSource(Service.SOURCE, new UserDefinedPythonDataSource(source));
  }

  /** Return a pickle that calls a Python function with one string. */
  private static byte[] pickle(String text) {
    byte[] argument = text.getBytes(StandardCharsets.UTF_8);
    ByteBuffer size = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(argument.length);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(new byte[] {(byte) 0x80, 2, 'c'}); // protocol 2; a global name
    out.writeBytes(MAKER.getBytes(StandardCharsets.US_ASCII));
    out.write('X'); // a string
    out.writeBytes(size.array());
    out.writeBytes(argument);
    out.writeBytes(new byte[] {(byte) 0x85, 'R', '.'}); // a tuple with it; call; end
    return out.toByteArray();
  }
}
