package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The arguments of `lance_search`: the table by position, all others by name. */
final class SearchArguments {
  private static final String ADVICE =
      "lance_search('catalog.namespace.table', vector => array(...), text => '...', k => 10, ...)";
  /** The read option for each argument of a search by vector. */
  private static final Map<String, String> OF_VECTOR = Map.of(
      "vector", "nearest.query", "vector_column", "nearest.column", "metric", "nearest.metric",
      "nprobes", "nearest.nprobes", "refine", "nearest.refine", "prefilter", "nearest.prefilter",
      "k", "nearest.k", "filter", "filter");
  /** The read option for each argument of a search by text. */
  private static final Map<String, String> OF_TEXT = Map.of(
      "text", "full_text.query", "text_columns", "full_text.columns", "k", "full_text.k", "filter", "filter");
  private static final String TABLE = "table";
  private static final String VERSION = "version";
  private static final String TIMESTAMP = "timestamp";
  private static final String DEFAULT_K = "10";

  private final Map<String, String> values = new TreeMap<>();
  private Expression timestamp;

  SearchArguments(Seq<Expression> given) {
    for (Expression each : CollectionConverters.asJava(given)) {
      if (each instanceof NamedArgumentExpression) {
        NamedArgumentExpression named = (NamedArgumentExpression) each;
        add(named.key().toLowerCase(Locale.ROOT), named.value());
      } else if (!values.containsKey(TABLE)) {
        add(TABLE, each);
      } else {
        throw LanceException.invalid("lance_search takes all arguments but the table by name: " + ADVICE);
      }
    }
    values.putIfAbsent("k", DEFAULT_K);
    check();
  }

  private void add(String name, Expression value) {
    boolean isKnown = OF_VECTOR.containsKey(name) || OF_TEXT.containsKey(name) || name.equals(TABLE)
        || name.equals(VERSION) || name.equals(TIMESTAMP);
    if (!isKnown) {
      throw LanceException.invalid("lance_search has no argument '" + name + "': " + ADVICE);
    }
    if (!value.foldable()) {
      throw LanceException.invalid("Argument '" + name + "' of lance_search must be a constant");
    }
    Object found = value.eval(null);
    if (found != null && values.put(name, text(name, found, value.dataType())) != null) {
      throw LanceException.invalid("Argument '" + name + "' of lance_search is given twice");
    }
    if (found != null && name.equals(TIMESTAMP)) {
      timestamp = value;
    }
  }

  private void check() {
    if (!values.containsKey(TABLE)) {
      throw LanceException.invalid("lance_search needs the name of a table: " + ADVICE);
    }
    if (!searchesVectors() && !searchesText()) {
      throw LanceException.invalid("lance_search needs a vector, a text, or both to search for: " + ADVICE);
    }
    for (String name : values.keySet()) {
      boolean isOfVector = !searchesVectors() && OF_VECTOR.containsKey(name) && !OF_TEXT.containsKey(name);
      boolean isOfText = !searchesText() && OF_TEXT.containsKey(name) && !OF_VECTOR.containsKey(name);
      if (isOfVector || isOfText) {
        throw LanceException.invalid(
            "Argument '" + name + "' of lance_search needs '" + (isOfVector ? "vector" : "text") + "' beside it");
      }
    }
    if (!values.get("k").matches("[1-9][0-9]{0,8}")) {
      throw LanceException.invalid("Argument 'k' of lance_search must be a whole number above 0");
    }
  }

  private static String text(String name, Object value, DataType type) {
    if (!(type instanceof ArrayType)) {
      return value.toString();
    }
    ArrayNode list = Service.object().putArray(name);
    DataType element = ((ArrayType) type).elementType();
    for (Object each : ((ArrayData) value).toObjectArray(element)) {
      if (each instanceof Float || each instanceof Double) {
        list.add(((Number) each).doubleValue());
      } else if (each instanceof Number) {
        list.add(((Number) each).longValue());
      } else if (each instanceof org.apache.spark.sql.types.Decimal) {
        list.add(((org.apache.spark.sql.types.Decimal) each).toJavaBigDecimal());
      } else if (each != null && !name.equals("vector")) {
        list.add(each.toString());
      } else {
        throw LanceException.invalid("Argument '" + name + "' of lance_search must be an array of "
            + (name.equals("vector") ? "numbers" : "names") + ", without nulls");
      }
    }
    return list.toString();
  }

  String table() {
    return values.get(TABLE);
  }

  String k() {
    return values.get("k");
  }

  boolean searchesVectors() {
    return values.containsKey("vector");
  }

  boolean searchesText() {
    return values.containsKey("text");
  }

  /** A number, or the name of a tag or branch. */
  Optional<String> version() {
    return Optional.ofNullable(values.get(VERSION));
  }

  Optional<Expression> timestamp() {
    return Optional.ofNullable(timestamp);
  }

  Map<String, String> vectorOptions() {
    return options(OF_VECTOR);
  }

  Map<String, String> textOptions() {
    return options(OF_TEXT);
  }

  private Map<String, String> options(Map<String, String> names) {
    Map<String, String> options = new LinkedHashMap<>();
    values.forEach((name, value) -> {
      if (names.containsKey(name)) {
        options.put(names.get(name), value);
      }
    });
    return options;
  }
}
