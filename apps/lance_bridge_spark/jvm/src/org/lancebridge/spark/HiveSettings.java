package org.lancebridge.spark;

import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;

/** The settings of the session catalog that its Lance tables need: by default those of the session's Hive metastore. */
final class HiveSettings {
  /** The prefix of the options that are not the delegate's. */
  static final String OURS = "lance.";
  private static final String PREFIX = "spark.sql.catalog." + LanceSessionCatalog.NAME + "." + OURS;
  private static final String URIS = "hive.metastore.uris";

  private HiveSettings() {}

  /**
   * Return the properties among options, and set in the session what they lack, for readers of its settings.
   *
   * @param prefix what the keys of the properties begin with
   */
  static Map<String, String> complete(SparkSession session, Map<String, String> options, String prefix) {
    Map<String, String> properties = new TreeMap<>();
    // Not SQLConf.get(): while Spark resolves a view, that has only the settings of the view.
    if (!session.conf().get("spark.sql.catalogImplementation", "in-memory").equals("hive")) {
      return properties;
    }
    options.forEach((key, value) -> {
      if (key.startsWith(prefix) && !key.endsWith(OtherTables.DELEGATE)) {
        properties.put(key.substring(prefix.length()), value);
      }
    });
    if (properties.getOrDefault("impl", "hive").equals("hive") && !properties.containsKey("uri")) {
      addHive(properties, session.sparkContext().hadoopConfiguration());
    }
    properties.forEach((key, value) -> {
      if (!options.containsKey(prefix + key)) {
        session.conf().set(PREFIX + key, value);
      }
    });
    return properties;
  }

  /** Refuse to use a catalog whose metastore is not known, or is not that of Spark's own tables. */
  static Map<String, String> check(Map<String, String> properties) {
    if (!hasMetastore(properties)) {
      throw LanceException.invalid(
          "Spark's session catalog has no metastore with Lance tables: set spark.sql.catalogImplementation=hive, and "
              + "its address in spark.hadoop." + URIS + ", or " + PREFIX + "impl and its properties");
    }
    return properties;
  }

  /** Return whether the session has a metastore, and its address is known. */
  static boolean hasMetastore(Map<String, String> properties) {
    return properties.containsKey("impl");
  }

  private static void addHive(Map<String, String> properties, Configuration hive) {
    String uris = hive.get(URIS, "").trim();
    if (uris.isEmpty()) {
      return;
    }
    properties.put("impl", "hive");
    properties.put("uri", uris);
    if (hive.getBoolean("hive.metastore.use.SSL", false)) {
      properties.putIfAbsent("tls.enabled", "true");
    }
    if (hive.getBoolean("hive.metastore.thrift.framed.transport.enabled", false)) {
      properties.putIfAbsent("client.framed", "true");
    }
    if (hive.getBoolean("hive.metastore.sasl.enabled", false) && !properties.containsKey("auth.mechanism")) {
      authenticate(properties, hive);
    }
  }

  /** Use the token that Spark fetched for a job on a cluster, or else the ticket of the user. */
  private static void authenticate(Map<String, String> properties, Configuration hive) {
    if (System.getenv("HADOOP_TOKEN_FILE_LOCATION") != null) {
      properties.put("auth.mechanism", "delegation-token");
      return;
    }
    properties.put("auth.mechanism", "kerberos");
    String principal = hive.get("hive.metastore.kerberos.principal", "");
    if (principal.contains("/")) {
      properties.putIfAbsent("auth.kerberos.service-name", principal.substring(0, principal.indexOf('/')));
    }
  }
}
