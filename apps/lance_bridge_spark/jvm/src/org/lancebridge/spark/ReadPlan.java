package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Python's plan of a read: its tasks, or its rows if there are few. */
final class ReadPlan {
  private final Message answer;

  private ReadPlan(Message answer) {
    this.answer = answer;
  }

  /** @param local whether Python may return the rows instead of tasks */
  static ReadPlan of(LanceTable table, ScanOptions options, StructType schema, ObjectNode request, boolean local) {
    ObjectNode scan = request.deepCopy();
    scan.put("parallelism", SparkSession.active().sparkContext().defaultParallelism());
    Map<String, String> all = table.options(options.given());
    all.put(Service.SCAN, scan.toString());
    ObjectNode arguments = Service.object().put("schema", schema.json());
    arguments.set("options", Service.tree(all));
    arguments.set("loaded", options.loaded());
    arguments.set("settings", Service.tree(ServiceSettings.memory(SparkSession.active())));
    if (local) {
      arguments.put("local_rows", ServiceSettings.localRows()).put("local_bytes", ServiceSettings.localBytes());
    }
    return new ReadPlan(table.service().ask("plan_read", arguments, List.of()));
  }

  boolean isLocal() {
    return answer.json.path("answer").path("local").asBoolean();
  }

  /** The number of local rows, or the maximum number of rows to read; negative if unknown. */
  long countOfRows() {
    return answer.json.path("answer").path("rows").asLong(-1);
  }

  /** The local rows, as an Arrow stream. */
  byte[] rows() {
    return answer.parts.get(0);
  }

  /** The pickled function that Python calls for each partition. */
  byte[] function() {
    return answer.parts.get(0);
  }

  /** The pickled partitions, one for each task. */
  List<byte[]> partitions() {
    return answer.parts.subList(1, answer.parts.size());
  }

  PythonDataSourceReadInfo tasks() {
    Seq<byte[]> tasks = scala.collection.immutable.List.from(CollectionConverters.asScala(partitions()));
    return new PythonDataSourceReadInfo(function(), tasks);
  }
}
