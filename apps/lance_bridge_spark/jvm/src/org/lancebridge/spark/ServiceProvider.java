package org.lancebridge.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The data source `lance` with writes that the {@link PythonService} plans and commits; tasks are Spark's own. */
final class ServiceProvider extends PythonDataSourceV2 {
  private final UserDefinedPythonDataSource source;

  ServiceProvider(Service service) {
    this.source = new Source(service, service.provider().source());
    setShortName(Service.SOURCE);
  }

  @Override
  public UserDefinedPythonDataSource source() {
    return source;
  }

  private static final class Source extends UserDefinedPythonDataSource {
    private static final long serialVersionUID = 1L;

    private final transient Service service;
    /** The transaction of the planned write, which errors of its commit name; empty if it has none. */
    private transient String transaction = "";

    Source(Service service, UserDefinedPythonDataSource source) {
      super(source.dataSourceCls());
      this.service = service;
    }

    /** Replace it with Spark's own class for executors, which may lack this one and do not need it. */
    private Object writeReplace() {
      return new UserDefinedPythonDataSource(dataSourceCls());
    }

    @Override
    public PythonDataSourceWriteInfo createWriteInfoInPython(
        String provider, StructType schema, CaseInsensitiveStringMap options, boolean overwrite, boolean streaming) {
      if (streaming) {
        return super.createWriteInfoInPython(provider, schema, options, overwrite, true);
      }
      ObjectNode arguments = Service.object().put("schema", schema.json()).put("overwrite", overwrite);
      arguments.set("options", Service.tree(options.asCaseSensitiveMap()));
      Message planned = service.ask("plan_write", arguments, List.of());
      transaction = planned.json.path("answer").path("transaction").asText();
      return new PythonDataSourceWriteInfo(planned.parts.get(0), planned.parts.get(1));
    }

    @Override
    public void commitWriteInPython(byte[] writer, WriterCommitMessage[] messages, boolean abort) {
      List<byte[]> parts = new ArrayList<>();
      parts.add(writer);
      for (WriterCommitMessage message : messages) {
        if (message != null) { // a task that failed has none
          parts.add(((PythonWriterCommitMessage) message).pickledMessage());
        }
      }
      if (abort) {
        service.ask("abort_write", Service.object(), parts);
      } else {
        service.ask("commit_write", Service.object().put("transaction", transaction), parts);
      }
    }
  }
}
