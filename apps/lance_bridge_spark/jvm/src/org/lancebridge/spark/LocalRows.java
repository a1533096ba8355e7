package org.lancebridge.spark;

import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** Rows that Python returns in one message: of a procedure, or of a metadata table. */
final class LocalRows implements LocalScan {
  private final String description;
  private final StructType columns;
  private final Supplier<Message> answer;
  private InternalRow[] rows;

  /** @param answer asks for the rows, when the plan needs them; its first part is an Arrow stream */
  LocalRows(String description, StructType columns, Supplier<Message> answer) {
    this.description = description;
    this.columns = columns;
    this.answer = answer;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public synchronized InternalRow[] rows() {
    if (rows == null) {
      rows = ArrowRows.of(answer.get().parts.get(0), columns);
    }
    return rows;
  }

  @Override
  public String description() {
    return description;
  }
}
