package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One read of one version, done by a Python source of its own that gets columns and request in its options. */
final class LanceScan implements Scan, SupportsReportStatistics {
  private final LanceTable table;
  private final ScanOptions options;
  private final StructType schema;
  private final ObjectNode request;
  private ReadPlan plan;
  private Batch batch;

  LanceScan(LanceTable table, ScanOptions options, StructType schema, ObjectNode request) {
    this.table = table;
    this.options = options;
    this.schema = schema;
    this.request = request;
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  /** Spark asks more than once, and plans the same partitions then. */
  @Override
  public synchronized Batch toBatch() {
    if (batch == null) {
      batch = ColumnarTasks.areChosen() ? columnarTasks() : rowTasks();
    }
    return batch;
  }

  private Batch columnarTasks() {
    PythonSetup python = PythonSetup.of(table.service().provider());
    return new ColumnarTasks(python, plan().function(), plan().partitions());
  }

  /** Spark's own tasks for data sources in Python, which need nothing of this jar. */
  private Batch rowTasks() {
    PythonDataSourceV2 provider = table.service().provider();
    provider.setReadInfo(plan().tasks());
    return source(provider, Map.of()).toBatch();
  }

  /** A stream says itself which versions it reads; of which branch, the user does. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return source(table.service().provider(), options.references()).toMicroBatchStream(checkpoint);
  }

  /** What the data source of Python would read, with this provider's plan where it has one. */
  private Scan source(PythonDataSourceV2 provider, Map<String, String> more) {
    Map<String, String> all = table.options(options.given());
    all.putAll(more);
    return ((SupportsRead) provider.getTable(schema, new Transform[0], all))
        .newScanBuilder(new CaseInsensitiveStringMap(all)).build();
  }

  /** Plan it now, when Spark has pushed down all that it will; the rows themselves come if they are few. */
  Scan planned() {
    if (ServiceSettings.localRows() == 0) {
      return this;
    }
    ReadPlan found = ReadPlan.of(table, options, schema, request, true);
    if (found.isLocal()) {
      return new LocalRowsScan(this, found);
    }
    plan = found;
    return this;
  }

  private ReadPlan plan() {
    if (plan == null) {
      plan = ReadPlan.of(table, options, schema, request, false);
    }
    return plan;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return source(table.service().provider(), Map.of()).supportedCustomMetrics();
  }

  @Override
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.PARTITION_DEFINED;
  }

  @Override
  public Statistics estimateStatistics() {
    JsonNode limit = request.path("limit");
    long left = options.rows() < 0 ? -1 : Math.max(options.rows() - request.path("offset").asLong(), 0);
    long all = limit.isInt() ? Math.min(left, limit.asLong()) : left;
    // What an index knows of a condition.
    long rows = plan == null || plan.countOfRows() < 0 ? all : Math.min(all, plan.countOfRows());
    return new Statistics() {
      @Override
      public OptionalLong numRows() {
        return rows < 0 ? OptionalLong.empty() : OptionalLong.of(rows);
      }

      @Override
      public OptionalLong sizeInBytes() {
        return rows < 0 ? OptionalLong.empty() : OptionalLong.of(table.bytesOf(schema, rows));
      }
    };
  }

  @Override
  public String description() {
    StringBuilder text = new StringBuilder("lance ").append(table.name())
        .append(" version ").append(request.path("version").asText())
        .append(" [").append(String.join(", ", schema.fieldNames())).append(']');
    for (String part : new String[] {"filter", "order", "limit", "offset", "fragments", "groups", "aggregate"}) {
      if (!request.path(part).isNull() && !request.path(part).isMissingNode()) {
        text.append(' ').append(part).append(": ").append(request.get(part).isTextual() ? request.get(part).asText()
            : request.get(part).toString());
      }
    }
    return text.toString();
  }

  @Override
  public String toString() {
    return description();
  }

  /** Equal scans give equal rows, so that Spark may read once where a plan has a scan twice. */
  @Override
  public boolean equals(Object other) {
    if (!(other instanceof LanceScan)) {
      return false;
    }
    LanceScan scan = (LanceScan) other;
    return scan.schema.equals(schema) && scan.request.equals(request)
        && scan.table.options(scan.options.given()).equals(table.options(options.given()));
  }

  @Override
  public int hashCode() {
    return 31 * schema.hashCode() + request.hashCode();
  }
}
