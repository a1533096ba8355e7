package org.lancebridge.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.apache.spark.JobArtifactSet;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Tasks that hand over columns, which the {@link ScanService} of their executor reads.
 *
 * <p>Spark's own tasks for data sources in Python make a row of each value, which costs more than all else.
 */
final class ColumnarTasks implements Batch {
  private final Factory factory;
  private final List<byte[]> partitions;

  /** @param function what Python does for each partition; it and they are pickled */
  ColumnarTasks(PythonSetup python, byte[] function, List<byte[]> partitions) {
    this.factory = new Factory(python, function, ServiceSettings.idle());
    this.partitions = partitions;
  }

  /** Whether executors have what these tasks need, as far as the driver knows; a setting may say it. */
  static boolean areChosen() {
    Optional<Boolean> chosen = ServiceSettings.columnar();
    SparkContext context = SparkSession.active().sparkContext();
    boolean hasUnixSockets = java.io.File.separatorChar == '/';
    return chosen.orElseGet(() -> hasUnixSockets && (context.isLocal() || executorsHaveJar(context)));
  }

  /** Jars of the session; on YARN, and on the executors' own path, they are known by their settings alone. */
  private static boolean executorsHaveJar(SparkContext context) {
    String location = ColumnarTasks.class.getProtectionDomain().getCodeSource().getLocation().getPath();
    String jar = location.substring(location.lastIndexOf('/') + 1);
    return JobArtifactSet.getActiveOrDefault(context).jars().keySet().exists(url -> url.endsWith("/" + jar))
        || context.conf().get("spark.yarn.dist.jars", "").contains(jar)
        || context.conf().get("spark.executor.extraClassPath", "").contains(jar);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return partitions.stream().map(Partition::new).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return factory;
  }

  private static final class Partition implements InputPartition {
    private static final long serialVersionUID = 1L;

    private final byte[] pickled;

    Partition(byte[] pickled) {
      this.pickled = pickled;
    }
  }

  private static final class Factory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    private final PythonSetup python;
    private final byte[] function;
    private final Duration idle;

    Factory(PythonSetup python, byte[] function, Duration idle) {
      this.python = python;
      this.function = function;
      this.idle = idle;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      try {
        List<byte[]> call = List.of(function, ((Partition) partition).pickled);
        return new ColumnarReader(ScanService.of(python).open(call, idle));
      } catch (IOException error) {
        throw new UncheckedIOException("Python cannot be reached to read a table", error);
      }
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("These tasks read columns");
    }
  }
}
