package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * UPDATE, MERGE and those DELETEs that Lance's SQL cannot express: fragments with a matching row are read completely
 * and replaced.
 *
 * <p>The commit names the version that was read and the fragments to remove, so that a concurrent change of one of
 * them is a conflict, and no row is lost.
 */
final class FragmentRewrite implements RowLevelOperation {
  private final LanceTable table;
  private final RowLevelOperationInfo info;
  private JsonNode fragments;

  FragmentRewrite(LanceTable table, RowLevelOperationInfo info) {
    this.table = table;
    this.info = info;
  }

  @Override
  public Command command() {
    return info.command();
  }

  @Override
  public String description() {
    return "lance " + table.name() + " " + info.command();
  }

  /** Require a metadata column: without one, Spark 4.1 writes its own column instead of the table's first. */
  @Override
  public NamedReference[] requiredMetadataAttributes() {
    return new NamedReference[] {Expressions.column(MetadataColumns.ROW_ID)};
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new WholeFragments();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo write) {
    return new WriteBuilder() {
      @Override
      public Write build() {
        Write inner = table.writeBuilder(write).asking(replacement()).build();
        return new Write() {
          @Override
          public BatchWrite toBatch() {
            return new RowAtATimeWrite(inner.toBatch());
          }
        };
      }
    };
  }

  private ObjectNode replacement() {
    if (fragments == null) {
      throw LanceException.internal("The rows to replace in table " + table.name() + " have not been read");
    }
    ObjectNode request = Service.object().put("mode", "replace_fragments");
    request.set("version", table.state().path("version"));
    request.set("fragments", fragments);
    // MERGE inserts rows that are missing: they must not be added concurrently in any fragment.
    return request.put("guard", info.command() == Command.MERGE);
  }

  /** Reads all rows of the fragments with a matching row: the other rows are written again unchanged. */
  private final class WholeFragments implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
    private final List<String> filters = new ArrayList<>();
    private Predicate[] pushed = new Predicate[0];
    private StructType required = table.schema();

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
      List<Predicate> taken = new ArrayList<>();
      for (Predicate predicate : predicates) {
        String sql = table.predicates().translate(predicate);
        if (sql != null) {
          filters.add(sql);
          taken.add(predicate);
        }
      }
      pushed = taken.toArray(new Predicate[0]);
      return predicates;
    }

    @Override
    public Predicate[] pushedPredicates() {
      return pushed;
    }

    @Override
    public void pruneColumns(StructType wanted) {
      required = wanted;
    }

    @Override
    public Scan build() {
      ScanOptions options = new ScanOptions(table, java.util.Map.of());
      ObjectNode request = options.version();
      ObjectNode arguments = table.arguments();
      arguments.setAll(request.deepCopy());
      arguments.put("filter", filters.isEmpty() ? null : String.join(" AND ", filters));
      fragments = table.service().ask("fragments", arguments).get("fragments");
      request.putNull("filter").putNull("limit").putNull("aggregate").set("fragments", fragments);
      return new LanceScan(table, options, required, request);
    }
  }
}
