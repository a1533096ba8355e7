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

/** A read of one version by its own Python data source, which gets the columns and the request as options. */
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

  /** Return the same batch for every call: Spark calls this several times and expects the same partitions. */
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

  /** Return Spark's own tasks for data sources in Python, which do not need this jar. */
  private Batch rowTasks() {
    PythonDataSourceV2 provider = table.service().provider();
    provider.setReadInfo(plan().tasks());
    return source(provider, Map.of()).toBatch();
  }

  /** A stream chooses the versions it reads; the user's options choose the branch. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return source(table.service().provider(), options.references()).toMicroBatchStream(checkpoint);
  }

  /** Return the scan of Spark's Python data source, with the plan of this provider if it has one. */
  private Scan source(PythonDataSourceV2 provider, Map<String, String> more) {
    Map<String, String> all = table.options(options.given());
    all.putAll(more);
    return ((SupportsRead) provider.getTable(schema, new Transform[0], all))
        .newScanBuilder(new CaseInsensitiveStringMap(all)).build();
  }

  /** Plan the read, after all pushdowns; if it has few rows, return a scan of the rows themselves. */
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
    // An index may know how many rows match the filter.
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

  /** Equal scans return equal rows, so that Spark can reuse one if a plan contains it twice. */
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
