package org.lancebridge.spark;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * `lance_search(table, ...)` in FROM: a query on the table with the options of a search, best rows first.
 *
 * <p>It is replaced with that query, so that scans, versions and options work as in any other read.
 */
final class SearchFunction {
  static final FunctionIdentifier NAME = new FunctionIdentifier("lance_search");
  static final ExpressionInfo INFO = new ExpressionInfo(SearchFunction.class.getName(), NAME.funcName());

  private static final String BY_VECTOR = "SELECT *, _distance FROM by_vector ORDER BY _distance";
  private static final String BY_TEXT = "SELECT *, _score FROM by_text ORDER BY _score DESC";
  /** Reciprocal rank fusion, as in the namespace's own query: 1 / (60 + rank), with ranks from 0. */
  private static final String HYBRID =
      "SELECT found.*, _distance, _score, _relevance_score FROM ("
          + "SELECT id, first(found) AS found, max(_distance) AS _distance, max(_score) AS _score, "
          + "float(sum(1D / (60 + rank))) AS _relevance_score FROM ("
          + "SELECT struct(*) AS found, _rowid AS id, _distance, float(NULL) AS _score, "
          + "row_number() OVER (ORDER BY _distance, _rowid) - 1 AS rank FROM by_vector UNION ALL "
          + "SELECT struct(*) AS found, _rowid AS id, float(NULL) AS _distance, _score, "
          + "row_number() OVER (ORDER BY _score DESC, _rowid) - 1 AS rank FROM by_text"
          + ") GROUP BY id) ORDER BY _relevance_score DESC, id LIMIT ";

  private SearchFunction() {}

  static LogicalPlan plan(Seq<Expression> given) {
    SearchArguments arguments = new SearchArguments(given);
    if (!arguments.searchesVectors()) {
      return parse(BY_TEXT, name -> relation(arguments, arguments.textOptions()));
    }
    if (!arguments.searchesText()) {
      return parse(BY_VECTOR, name -> relation(arguments, arguments.vectorOptions()));
    }
    return parse(HYBRID + arguments.k(), name -> relation(arguments,
        name.equals("by_text") ? arguments.textOptions() : arguments.vectorOptions()));
  }

  private static LogicalPlan relation(SearchArguments arguments, Map<String, String> options) {
    Seq<String> name = CatalystSqlParser$.MODULE$.parseMultipartIdentifier(arguments.table());
    requireLance(name);
    LogicalPlan table = new UnresolvedRelation(SearchName.of(name), new CaseInsensitiveStringMap(options), false);
    Optional<String> version = arguments.version();
    Optional<Expression> timestamp = arguments.timestamp();
    return version.isEmpty() && timestamp.isEmpty() ? table
        : new RelationTimeTravel(table, Option.apply(timestamp.orElse(null)), Option.apply(version.orElse(null)));
  }

  /** Refuse tables of other catalogs, which would ignore the options. */
  private static void requireLance(Seq<String> name) {
    String catalog = CollectionConverters.asJava(name).get(0);
    String implementation = SQLConf.get().getConfString("spark.sql.catalog." + catalog, null);
    boolean isOurs = Set.of(LanceCatalog.class.getName(), LanceSessionCatalog.class.getName()).contains(String.valueOf(implementation));
    if (!isOurs && (implementation != null || catalog.equals(LanceSessionCatalog.NAME))) {
      throw LanceException.invalid(
          "lance_search needs a table of a catalog of lance-bridge, and catalog " + catalog + " is another");
    }
  }

  /** Parse a query and replace its tables with plans. */
  @SuppressWarnings("unchecked") // B is a plan, as otherwise returns one.
  private static LogicalPlan parse(String query, Function<String, LogicalPlan> tables) {
    return CatalystSqlParser$.MODULE$.parsePlan(query).transformUp(
        new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
          @Override
          public boolean isDefinedAt(LogicalPlan plan) {
            return plan instanceof UnresolvedRelation;
          }

          @Override
          public <A extends LogicalPlan, B> B applyOrElse(A plan, Function1<A, B> otherwise) {
            return isDefinedAt(plan) ? (B) tables.apply(((UnresolvedRelation) plan).name()) : otherwise.apply(plan);
          }
        });
  }
}
