package org.lancebridge.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The name of a table in one search. Before 4.3, Spark treats all reads of one name in a statement as the same read,
 * with the options of one of them, so that each search needs a unique name.
 */
final class SearchName {
  private static final AtomicLong COUNT = new AtomicLong();
  /** No catalog allows such a name for a table. */
  private static final Pattern ENDING = Pattern.compile(" \\(lance_search [0-9]+\\)$");

  private SearchName() {}

  static Seq<String> of(Seq<String> table) {
    if (SparkVersions.current().startsWith("4.3")) {
      return table;
    }
    List<String> parts = new ArrayList<>(CollectionConverters.asJava(table));
    int last = parts.size() - 1;
    parts.set(last, parts.get(last) + " (lance_search " + COUNT.incrementAndGet() + ")");
    return scala.collection.immutable.List.from(CollectionConverters.asScala(parts));
  }

  /** Return the table for a name, with or without the ending that {@link #of} adds. */
  static Identifier table(Identifier name) {
    return Identifier.of(name.namespace(), ENDING.matcher(name.name()).replaceFirst(""));
  }
}
