package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownOffset;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Collects what Spark pushes down to one scan, and builds the scan, which shares no state with others. */
final class LanceScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownOffset, SupportsPushDownTopN, SupportsPushDownAggregates {
  /** The maximum limit to push down with a sort: Lance keeps the keys of this many rows per task in memory. */
  private static final int MOST_TOP_ROWS = 10_000;

  private final LanceTable table;
  private final ScanOptions options;
  private final List<String> filters = new ArrayList<>();
  private Predicate[] pushed = new Predicate[0];
  private boolean filteredBySpark;
  private StructType required;
  private Integer limit;
  /** How many rows are skipped in total; if it is set, the limit is for all rows, and not per task. */
  private Integer offset;
  private ArrayNode order;
  private Aggregates aggregates;
  private boolean countsRows;
  private boolean pruned;

  LanceScanBuilder(LanceTable table, ScanOptions options) {
    this.table = table;
    this.options = options;
    this.required = table.schema();
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> left = new ArrayList<>();
    List<Predicate> taken = new ArrayList<>();
    for (Predicate predicate : predicates) {
      String sql = options.searches() ? null : table.predicates().translate(predicate);
      if (sql == null) {
        left.add(predicate);
      } else {
        filters.add(sql);
        taken.add(predicate);
      }
    }
    filteredBySpark = !left.isEmpty();
    pushed = taken.toArray(new Predicate[0]);
    return left.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  /** If rows are not counted beforehand, every task stops at the limit. */
  @Override
  public boolean pushLimit(int rows) {
    if (options.searches() || countsRows || order != null || offset != null) {
      return false;
    }
    limit = rows;
    offset = rowsAreCounted() ? 0 : null;
    return true;
  }

  /** Spark calls this after pushing the limit, which includes the rows to skip. */
  @Override
  public boolean pushOffset(int rows) {
    if (limit == null ? !rowsAreCounted() : offset == null) {
      return false;
    }
    offset = rows;
    limit = limit == null ? null : Integer.valueOf(Math.max(limit - rows, 0));
    return true;
  }

  /** Return whether metadata show which fragments contain the first rows: the whole version is read. */
  private boolean rowsAreCounted() {
    return filters.isEmpty() && !filteredBySpark && !countsRows && aggregates == null && options.isPlain()
        && options.rows() >= 0;
  }

  /** Every task returns its first rows. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int rows) {
    if (options.searches() || aggregates != null || countsRows || offset != null || rows > MOST_TOP_ROWS) {
      return false;
    }
    ArrayNode keys = SortKeys.of(orders, table.columnsOfLance());
    if (keys == null) {
      return false;
    }
    order = keys;
    limit = rows;
    return true;
  }

  /** If partially pushed, Spark keeps its own limit and sort on top of the tasks'. */
  @Override
  public boolean isPartiallyPushed() {
    return offset == null;
  }

  /** Prune top-level columns only: nested fields are cheap to read, and Spark's analysed types are kept. */
  @Override
  public void pruneColumns(StructType wanted) {
    StructType columns = new StructType();
    for (StructField field : wanted.fields()) {
      columns = columns.add(table.schema().getFieldIndex(field.name()).isEmpty() ? field
          : table.schema().apply(field.name()));
    }
    required = columns;
    pruned = true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return mayCount(aggregation);
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    if (mayCount(aggregation)) {
      countsRows = true;
      return true;
    }
    if (filteredBySpark || isCut() || !options.isPlain() || options.rows() == 0) {
      return false;
    }
    aggregates = Aggregates.of(aggregation, table.columnsOfLance());
    return aggregates != null;
  }

  /** Return whether metadata answer the aggregation: it is COUNT(*) of a whole version. */
  private boolean mayCount(Aggregation aggregation) {
    return Aggregates.isCountOfRows(aggregation) && !filteredBySpark && filters.isEmpty() && !isCut()
        && options.isPlain() && options.rows() >= 0;
  }

  private boolean isCut() {
    return limit != null || offset != null;
  }

  @Override
  public Scan build() {
    options.noteRead();
    if (countsRows) {
      return new CountScan(table.name(), options.rows());
    }
    StructType schema = aggregates == null ? required : aggregates.schema();
    options.checkSearched(schema);
    LanceScan scan = new LanceScan(table, options, schema, request());
    // Spark also builds scans for statistics alone.
    return pruned || aggregates != null ? scan.planned() : scan;
  }

  private ObjectNode request() {
    ObjectNode request = options.version();
    request.put("filter", filters.isEmpty() ? null : String.join(" AND ", filters));
    request.put("limit", limit);
    request.put("offset", offset);
    request.set("order", order == null ? Service.tree(null) : order);
    request.putNull("fragments");
    request.set("groups", aggregates == null ? Service.tree(null) : aggregates.groups());
    request.set("aggregate", aggregates == null ? Service.tree(null) : aggregates.functions());
    return request;
  }
}
