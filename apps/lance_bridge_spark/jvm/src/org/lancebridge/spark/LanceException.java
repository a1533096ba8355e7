package org.lancebridge.spark;

import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.trees.Origin;
import scala.Option;

/**
 * An error of the namespace in Spark's own style: a condition, an SQL state, a message.
 *
 * <p>The message is complete, because Spark looks up conditions only in its own files. The exception is checked, like
 * all of Spark's analysis errors. Most methods of the catalog do not declare it: they throw it by {@link #unchecked}.
 */
final class LanceException extends AnalysisException {
  static final int UNSUPPORTED = 0;
  static final int NAMESPACE_NOT_FOUND = 1;
  static final int NAMESPACE_EXISTS = 2;
  static final int NAMESPACE_NOT_EMPTY = 3;
  static final int TABLE_NOT_FOUND = 4;
  static final int TABLE_EXISTS = 5;
  private static final int INVALID_INPUT = 13;
  static final int SERVICE_UNAVAILABLE = 17;
  private static final int INTERNAL = 18;

  /** The condition and the SQL state of each Lance error code. */
  private static final Map<Integer, String[]> CONDITIONS = Map.ofEntries(
      Map.entry(UNSUPPORTED, new String[] {"LANCE_UNSUPPORTED_OPERATION", "0A000"}),
      Map.entry(NAMESPACE_NOT_FOUND, new String[] {"LANCE_NAMESPACE_NOT_FOUND", "42704"}),
      Map.entry(NAMESPACE_EXISTS, new String[] {"LANCE_NAMESPACE_ALREADY_EXISTS", "42P06"}),
      Map.entry(NAMESPACE_NOT_EMPTY, new String[] {"LANCE_NAMESPACE_NOT_EMPTY", "2BP01"}),
      Map.entry(TABLE_NOT_FOUND, new String[] {"LANCE_TABLE_NOT_FOUND", "42P01"}),
      Map.entry(TABLE_EXISTS, new String[] {"LANCE_TABLE_ALREADY_EXISTS", "42P07"}),
      Map.entry(6, new String[] {"LANCE_TABLE_INDEX_NOT_FOUND", "42704"}),
      Map.entry(7, new String[] {"LANCE_TABLE_INDEX_ALREADY_EXISTS", "42710"}),
      Map.entry(8, new String[] {"LANCE_TABLE_TAG_NOT_FOUND", "42704"}),
      Map.entry(9, new String[] {"LANCE_TABLE_TAG_ALREADY_EXISTS", "42710"}),
      Map.entry(10, new String[] {"LANCE_TRANSACTION_NOT_FOUND", "42704"}),
      Map.entry(11, new String[] {"LANCE_TABLE_VERSION_NOT_FOUND", "42704"}),
      Map.entry(12, new String[] {"LANCE_TABLE_COLUMN_NOT_FOUND", "42703"}),
      Map.entry(INVALID_INPUT, new String[] {"LANCE_INVALID_INPUT", "22023"}),
      Map.entry(14, new String[] {"LANCE_CONCURRENT_MODIFICATION", "40001"}),
      Map.entry(15, new String[] {"LANCE_PERMISSION_DENIED", "42501"}),
      Map.entry(16, new String[] {"LANCE_UNAUTHENTICATED", "28000"}),
      Map.entry(SERVICE_UNAVAILABLE, new String[] {"LANCE_SERVICE_UNAVAILABLE", "08000"}),
      Map.entry(INTERNAL, new String[] {"LANCE_INTERNAL", "XX000"}),
      Map.entry(19, new String[] {"LANCE_INVALID_TABLE_STATE", "55000"}),
      Map.entry(20, new String[] {"LANCE_TABLE_SCHEMA_VALIDATION", "42K03"}),
      Map.entry(21, new String[] {"LANCE_THROTTLING", "08000"}),
      Map.entry(22, new String[] {"LANCE_TABLE_BRANCH_NOT_FOUND", "42704"}),
      Map.entry(23, new String[] {"LANCE_TABLE_BRANCH_ALREADY_EXISTS", "42710"}));

  /** What an error of the data source in Python looks like, as its module `worker_calls` writes it. */
  private static final Pattern IN_PYTHON = Pattern.compile("Lance(?:Value)?Error: \\[(LANCE_[A-Z_]+)\\] ([^\\n]+)");
  /** What Spark says of a worker that was killed. */
  private static final String KILLED = "Python worker exited unexpectedly";

  private final int code;

  LanceException(int code, String message) {
    super(
        "[" + conditionOf(code)[0] + "] " + message + (message.endsWith(".") ? "" : ".") + " SQLSTATE: "
            + conditionOf(code)[1],
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.apply(conditionOf(code)[0]),
        scala.collection.immutable.Map$.MODULE$.<String, String>empty(),
        new QueryContext[0],
        Option.apply(conditionOf(code)[1]),
        Option.empty());
    this.code = code;
  }

  /**
   * Throw an error of a Python worker that writes: as that of Lance if its text has one, otherwise unchanged. The
   * return type lets callers write {@code throw}.
   */
  static RuntimeException ofWrite(Throwable thrown, String table) {
    for (Throwable each = thrown; each != null; each = each.getCause()) {
      String text = String.valueOf(each.getMessage());
      Matcher error = IN_PYTHON.matcher(text);
      if (error.find()) {
        throw new LanceException(codeOf(error.group(1)), error.group(2)).unchecked();
      }
      if (text.contains(KILLED)) {
        throw unavailable(
            "A Python worker of a task that writes table " + table + " ended, perhaps for lack of memory: give executors "
                + "more (spark.executor.memoryOverhead), or write with more and smaller tasks");
      }
    }
    throw LanceException.<RuntimeException>hurl(thrown);
  }

  private static int codeOf(String condition) {
    return CONDITIONS.entrySet().stream()
        .filter(entry -> entry.getValue()[0].equals(condition)).map(Map.Entry::getKey).findFirst().orElse(INTERNAL);
  }

  private static String[] conditionOf(int code) {
    return CONDITIONS.getOrDefault(code, CONDITIONS.get(INTERNAL));
  }

  /** Throw the error of an unsupported operation; nothing must have been changed before. */
  static RuntimeException unsupported(String message) {
    return new LanceException(UNSUPPORTED, message).unchecked();
  }

  static RuntimeException invalid(String message) {
    return new LanceException(INVALID_INPUT, message).unchecked();
  }

  static RuntimeException unavailable(String message) {
    return new LanceException(SERVICE_UNAVAILABLE, message).unchecked();
  }

  static RuntimeException internal(String message) {
    return new LanceException(INTERNAL, message).unchecked();
  }

  /** Return this exception: Spark's copy with a position would look up the condition and not find it. */
  @Override
  public AnalysisException withPosition(Origin place) {
    return this;
  }

  boolean is(int other) {
    return code == other;
  }

  /** Throw the exception without declaring it; the return type lets callers write {@code throw}. */
  RuntimeException unchecked() {
    return LanceException.<RuntimeException>hurl(TaskContext.get() == null ? this : ofSpark());
  }

  /** Return the error as Spark's own class: the driver may not find this class for the error of a task. */
  private AnalysisException ofSpark() {
    return new AnalysisException(
        getMessage(),
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.apply(conditionOf(code)[0]),
        scala.collection.immutable.Map$.MODULE$.<String, String>empty(),
        new QueryContext[0],
        Option.apply(conditionOf(code)[1]),
        Option.empty());
  }

  @SuppressWarnings("unchecked") // The cast is erased at run time, so that a checked exception passes.
  static <E extends Throwable> E hurl(Throwable thrown) throws E {
    throw (E) thrown;
  }
}
