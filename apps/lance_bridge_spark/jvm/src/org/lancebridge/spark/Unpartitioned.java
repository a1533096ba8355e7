package org.lancebridge.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.types.StructType;

/**
 * A table that could have partitions and has none, so that SHOW PARTITIONS says what it says of any such table:
 * that it is not partitioned, and not that partitions are unknown.
 */
interface Unpartitioned extends SupportsPartitionManagement {
  @Override
  default StructType partitionSchema() {
    return new StructType();
  }

  @Override
  default void createPartition(InternalRow key, Map<String, String> properties) {
    throw refused();
  }

  @Override
  default boolean dropPartition(InternalRow key) {
    throw refused();
  }

  @Override
  default void replacePartitionMetadata(InternalRow key, Map<String, String> properties) {
    throw refused();
  }

  @Override
  default Map<String, String> loadPartitionMetadata(InternalRow key) {
    throw refused();
  }

  @Override
  default InternalRow[] listPartitionIdentifiers(String[] names, InternalRow key) {
    return new InternalRow[0];
  }

  private static RuntimeException refused() {
    return LanceException.unsupported("Lance tables have no partitions");
  }
}
