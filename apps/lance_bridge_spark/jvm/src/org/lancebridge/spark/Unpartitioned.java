package org.lancebridge.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.types.StructType;

/**
 * A table that supports partitions and has none, so that SHOW PARTITIONS reports that it is not partitioned, instead of
 * that it does not support partitions.
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
