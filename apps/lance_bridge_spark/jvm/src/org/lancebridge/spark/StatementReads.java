package org.lancebridge.spark;

import java.util.Collections;
import java.util.Map;
import java.util.OptionalLong;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/**
 * The versions of tables that a statement reads, for the write of the same statement.
 *
 * <p>Spark does not tell a writer which query its rows come from. It plans the scans of a statement and then its write
 * with the same tracker, which is not a public interface.
 */
final class StatementReads {
  private static final Map<QueryPlanningTracker, Map<String, Long>> VERSIONS =
      Collections.synchronizedMap(new WeakHashMap<>());

  private StatementReads() {}

  /** Record that the statement that this thread plans reads a table at its latest version. */
  static void add(String table, long version) {
    Option<QueryPlanningTracker> statement = QueryPlanningTracker.get();
    if (statement.isDefined()) {
      VERSIONS.computeIfAbsent(statement.get(), key -> new ConcurrentHashMap<>()).merge(table, version, Math::min);
    }
  }

  /** Return the oldest version of a table that the statement reads, which this thread plans. */
  static OptionalLong of(String table) {
    Option<QueryPlanningTracker> statement = QueryPlanningTracker.get();
    Long version = statement.isEmpty() ? null : VERSIONS.getOrDefault(statement.get(), Map.of()).get(table);
    return version == null ? OptionalLong.empty() : OptionalLong.of(version);
  }
}
