package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.SparkSession;
import py4j.ClientServer;

/**
 * Gives the Python process of the driver a session, for procedures that run Spark jobs.
 *
 * <p>Python connects to a port of 127.0.0.1 with a secret, as it does in every PySpark program. The port is opened with
 * the first such procedure, and closed with the JVM. It must be a public class: Python calls it.
 */
public final class SessionGateway {
  /** Properties that a job takes from its statement, so that cancelling the statement cancels the job. */
  private static final List<String> JOB_PROPERTIES = List.of(
      "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", "spark.job.tags",
      "spark.scheduler.pool");
  private static final int SECRET_BYTES = 32;
  private static SessionGateway gateway;

  private final Map<String, SparkSession> sessions = new ConcurrentHashMap<>();
  private final AtomicLong ids = new AtomicLong();
  private final String secret;
  private final ClientServer server;

  private SessionGateway() {
    byte[] random = new byte[SECRET_BYTES];
    new SecureRandom().nextBytes(random);
    this.secret = HexFormat.of().formatHex(random);
    // It listens on 127.0.0.1 by default.
    this.server = new ClientServer.ClientServerBuilder(this)
        .authToken(secret).javaPort(0).autoStartJavaServer(false).build();
  }

  private static synchronized SessionGateway running() {
    if (gateway == null) {
      SessionGateway started = new SessionGateway();
      // Threads that a daemon starts are daemons, which do not keep the JVM from ending.
      Thread starter = new Thread(started.server::startServer, "lance-bridge-gateway");
      starter.setDaemon(true);
      starter.start();
      join(starter);
      gateway = started;
    }
    return gateway;
  }

  private static void join(Thread starter) {
    try {
      starter.join();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw LanceException.unavailable("The statement was interrupted before its job began");
    }
  }

  /** Return what Python needs to use the active session, until {@link #close} is called with it. */
  static ObjectNode open(PythonSetup python) {
    SessionGateway running = running();
    SparkSession session = SparkSession.active();
    String id = String.valueOf(running.ids.incrementAndGet());
    running.sessions.put(id, session);
    ObjectNode access = Service.object().put("port", running.server.getJavaServer().getListeningPort());
    access.put("secret", running.secret).put("session", id);
    ObjectNode properties = access.putObject("properties");
    JOB_PROPERTIES.forEach(key -> properties.put(key, session.sparkContext().getLocalProperty(key)));
    python.describeTo(access);
    return access;
  }

  static void close(ObjectNode access) {
    running().sessions.remove(access.path("session").asText());
  }

  /** Return an open session. Python calls it. */
  public SparkSession session(String id) {
    return sessions.get(id);
  }
}
