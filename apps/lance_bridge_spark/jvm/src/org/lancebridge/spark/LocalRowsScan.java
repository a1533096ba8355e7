package org.lancebridge.spark;

import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A read of few rows, which the plan contains, so that no task runs. */
final class LocalRowsScan implements LocalScan, SupportsReportStatistics {
  private final LanceScan scan;
  private final ReadPlan plan;

  LocalRowsScan(LanceScan scan, ReadPlan plan) {
    this.scan = scan;
    this.plan = plan;
  }

  @Override
  public StructType readSchema() {
    return scan.readSchema();
  }

  @Override
  public InternalRow[] rows() {
    return ArrowRows.of(plan.rows(), readSchema());
  }

  @Override
  public Statistics estimateStatistics() {
    return new Statistics() {
      @Override
      public OptionalLong numRows() {
        return OptionalLong.of(plan.countOfRows());
      }

      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(plan.rows().length);
      }
    };
  }

  /** A stream may read more rows later, so it uses the scan. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return scan.toMicroBatchStream(checkpoint);
  }

  @Override
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return scan.columnarSupportMode();
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  @Override
  public String description() {
    return scan.description() + " (" + plan.countOfRows() + " rows in the plan)";
  }

  @Override
  public String toString() {
    return description();
  }

  /** Equal scans return equal rows. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LocalRowsScan && ((LocalRowsScan) other).scan.equals(scan);
  }

  @Override
  public int hashCode() {
    return scan.hashCode();
  }
}
