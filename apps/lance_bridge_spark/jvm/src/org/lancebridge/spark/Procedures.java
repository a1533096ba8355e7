package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The procedures in the namespace `system` of a catalog, which Python declares and runs. */
final class Procedures {
  private static final String[] NAMESPACE = {"system"};
  /** What Python declares; it is the same for all catalogs. */
  private static volatile JsonNode declared;

  private Procedures() {}

  static boolean isNamespace(String[] namespace) {
    return Arrays.equals(namespace, NAMESPACE);
  }

  static Identifier[] list(Service service) {
    return names(service).stream().map(name -> Identifier.of(NAMESPACE, name)).toArray(Identifier[]::new);
  }

  /** Return a procedure, or null if there is none of this name. */
  static UnboundProcedure find(Service service, Identifier name) {
    JsonNode found = isNamespace(name.namespace()) ? declared(service).get(name.name()) : null;
    return found == null ? null : new OfPython(service, name.name(), found);
  }

  static UnboundProcedure load(Service service, Identifier name) {
    UnboundProcedure found = find(service, name);
    if (found == null) {
      throw LanceException.invalid(
          "Catalog " + service.catalogName() + " has no procedure " + name + ": in namespace system there are "
              + String.join(", ", names(service)));
    }
    return found;
  }

  private static List<String> names(Service service) {
    List<String> names = new ArrayList<>();
    declared(service).fieldNames().forEachRemaining(names::add);
    return names;
  }

  private static JsonNode declared(Service service) {
    if (declared == null) {
      declared = service.ask("describe_procedures", Service.object()).get("procedures");
    }
    return declared;
  }

  private static final class OfPython implements UnboundProcedure, BoundProcedure {
    private final Service service;
    private final String name;
    private final JsonNode declaration;

    OfPython(Service service, String name, JsonNode declaration) {
      this.service = service;
      this.name = name;
      this.declaration = declaration;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return declaration.get("comment").asText();
    }

    @Override
    public BoundProcedure bind(StructType given) {
      return this;
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public ProcedureParameter[] parameters() {
      List<ProcedureParameter> parameters = new ArrayList<>();
      for (JsonNode each : declaration.get("parameters")) {
        ProcedureParameter.Builder builder =
            ProcedureParameter.in(each.get("name").asText(), DataType.fromDDL(each.get("type").asText()))
                .comment(each.get("comment").asText());
        if (each.hasNonNull("default")) {
          builder.defaultValue(each.get("default").asText());
        }
        parameters.add(builder.build());
      }
      return parameters.toArray(new ProcedureParameter[0]);
    }

    @Override
    public Iterator<Scan> call(InternalRow given) {
      ObjectNode arguments = Service.object();
      ProcedureParameter[] parameters = parameters();
      for (int i = 0; i < parameters.length; i++) {
        put(arguments, parameters[i], given, i);
      }
      ObjectNode call = Service.object().put("name", name);
      call.set("arguments", arguments);
      Message answer = declaration.path("runs_jobs").asBoolean() ? runJobs(call) : ask(call);
      StructType columns = StructType.fromDDL(declaration.get("columns").asText());
      return List.<Scan>of(new LocalRows("the result of " + name, columns, () -> answer)).iterator();
    }

    private Message ask(ObjectNode call) {
      return service.ask("call_procedure", call, List.of());
    }

    /** Call a procedure that runs Spark jobs in the session of the statement. */
    private Message runJobs(ObjectNode call) {
      ObjectNode access = SessionGateway.open(service.python());
      try {
        call.set("spark", access);
        return service.runJobs("call_procedure", call);
      } finally {
        SessionGateway.close(access);
      }
    }

    private static void put(ObjectNode arguments, ProcedureParameter parameter, InternalRow given, int at) {
      if (given.isNullAt(at)) {
        arguments.putNull(parameter.name());
      } else if (parameter.dataType().equals(DataTypes.LongType)) {
        arguments.put(parameter.name(), given.getLong(at));
      } else if (parameter.dataType().equals(DataTypes.BooleanType)) {
        arguments.put(parameter.name(), given.getBoolean(at));
      } else {
        arguments.put(parameter.name(), given.getUTF8String(at).toString());
      }
    }
  }
}
