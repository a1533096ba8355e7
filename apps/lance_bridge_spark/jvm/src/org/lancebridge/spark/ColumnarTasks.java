package org.lancebridge.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.JobArtifactSet;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tasks that return columns, which the {@link ScanService} of their executor reads.
 *
 * <p>Spark's own tasks for data sources in Python convert all values to rows, which takes most of their time.
 */
final class ColumnarTasks implements Batch {
  private final Factory factory;
  private final List<byte[]> partitions;

  /** @param function the pickled function that Python calls for each pickled partition */
  ColumnarTasks(PythonSetup python, byte[] function, List<byte[]> partitions) {
    this.factory = new Factory(python, function, ServiceSettings.idle());
    this.partitions = partitions;
  }

  /** Return whether to use these tasks: by the setting, or by whether executors meet their requirements. */
  static boolean areChosen() {
    Optional<Boolean> chosen = ServiceSettings.columnar();
    boolean hasUnixSockets = java.io.File.separatorChar == '/';
    return chosen.orElseGet(() -> hasUnixSockets && executorsHaveJar());
  }

  /** Return whether executors have this jar; on YARN, and on their own class path, only settings show it. */
  static boolean executorsHaveJar() {
    SparkContext context = SparkSession.active().sparkContext();
    if (context.isLocal()) {
      return true;
    }
    String location = ColumnarTasks.class.getProtectionDomain().getCodeSource().getLocation().getPath();
    String jar = location.substring(location.lastIndexOf('/') + 1);
    Set<String> urls = CollectionConverters.asJava(JobArtifactSet.getActiveOrDefault(context).jars()).keySet();
    return urls.stream().anyMatch(url -> url.endsWith("/" + jar))
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
