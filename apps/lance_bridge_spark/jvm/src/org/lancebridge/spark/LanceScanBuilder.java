package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Collects what Spark pushes down to one scan; the scan that it builds shares nothing with any other. */
final class LanceScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final LanceTable table;
  private final ScanOptions options;
  private final List<String> filters = new ArrayList<>();
  private Predicate[] pushed = new Predicate[0];
  private boolean filteredBySpark;
  private StructType required;
  private Integer limit;
  private Aggregates aggregates;
  private boolean countsRows;

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

  /** Every task stops at the limit, and Spark keeps its own on top, which is what "partially pushed" means to it. */
  @Override
  public boolean pushLimit(int rows) {
    if (options.searches()) {
      return false;
    }
    limit = rows;
    return true;
  }

  /** Whole top-level columns only: nested fields are cheap in Lance's files, and Spark's types stay as analysed. */
  @Override
  public void pruneColumns(StructType wanted) {
    StructType columns = new StructType();
    for (StructField field : wanted.fields()) {
      columns = columns.add(table.schema().getFieldIndex(field.name()).isEmpty() ? field
          : table.schema().apply(field.name()));
    }
    required = columns;
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
    if (filteredBySpark || limit != null || !options.isPlain() || options.rows() == 0) {
      return false;
    }
    aggregates = Aggregates.of(aggregation, table.columnsOfLance());
    return aggregates != null;
  }

  /** COUNT(*) of a whole version stands in its metadata. */
  private boolean mayCount(Aggregation aggregation) {
    return Aggregates.isCountOfRows(aggregation) && !filteredBySpark && filters.isEmpty() && limit == null
        && options.isPlain() && options.rows() >= 0;
  }

  @Override
  public Scan build() {
    options.noteRead();
    if (countsRows) {
      return new CountScan(table.name(), options.rows());
    }
    StructType schema = aggregates == null ? required : aggregates.schema();
    options.checkSearched(schema);
    return new LanceScan(table, options, schema, request());
  }

  private ObjectNode request() {
    ObjectNode request = options.version();
    request.put("filter", filters.isEmpty() ? null : String.join(" AND ", filters));
    request.put("limit", limit);
    request.putNull("fragments");
    request.set("groups", aggregates == null ? Service.tree(null) : aggregates.groups());
    request.set("aggregate", aggregates == null ? Service.tree(null) : aggregates.functions());
    return request;
  }
}
