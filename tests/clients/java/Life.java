import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.lance.namespace.client.apache.ApiClient;
import org.lance.namespace.client.apache.ApiException;
import org.lance.namespace.client.apache.api.NamespaceApi;
import org.lance.namespace.client.apache.api.TableApi;
import org.lance.namespace.model.CountTableRowsRequest;
import org.lance.namespace.model.CreateNamespaceRequest;
import org.lance.namespace.model.DescribeTableRequest;
import org.lance.namespace.model.DropNamespaceRequest;
import org.lance.namespace.model.ExplainTableQueryPlanRequest;
import org.lance.namespace.model.QueryTableRequest;
import org.lance.namespace.model.QueryTableRequestVector;
import org.lance.namespace.model.RenameTableRequest;

/** The life of a table: created at a location, described, filled, queried and dropped. */
public class Life {
  public static void main(String[] arguments) throws Exception {
    String uri = arguments[0];
    String database = arguments[1];
    byte[] rows = Files.readAllBytes(Path.of(arguments[2]));
    String location = arguments[3];
    Path answer = Path.of(arguments[4]);

    ApiClient client = new ApiClient().setBasePath(uri).setApiKey("key-of-the-test");
    NamespaceApi namespaces = new NamespaceApi(client);
    TableApi tables = new TableApi(client);
    String table = database + "$t";

    namespaces.createNamespace(database, new CreateNamespaceRequest(), null);
    check(namespaces.listNamespaces("$", null, null, 1000).getNamespaces().contains(database));

    Map<String, String> headers =
        Map.of(
            "x-lance-table-location", location,
            "x-lance-table-properties", "{\"owner\": \"ada\"}");
    tables.createTable(table, rows, null, "Create", null, null, headers);
    var described =
        tables.describeTable(table, new DescribeTableRequest(), null, true, true, false);
    check(described.getLocation().endsWith(location));
    check(described.getProperties().get("owner").equals("ada"));
    check(tables.listTables(database, null, null, null, null).getTables().contains("t"));

    tables.insertIntoTable(table, rows, null, "append");
    check(tables.countTableRows(table, new CountTableRowsRequest(), null) == 6);
    var query = new QueryTableRequest().k(10).filter("id >= 1").vector(new QueryTableRequestVector());
    Files.write(answer, tables.queryTable(table, query, null));

    var plan = new ExplainTableQueryPlanRequest().query(query);
    check(tables.explainTableQueryPlan(table, plan, null).contains("LanceRead"));
    tables.renameTable(table, new RenameTableRequest().newTableName("renamed"), null);
    check(tables.listTables(database, null, null, null, null).getTables().contains("renamed"));
    tables.renameTable(database + "$renamed", new RenameTableRequest().newTableName("t"), null);

    tables.dropTable(table, null);
    try {
      tables.describeTable(table, new DescribeTableRequest(), null, false, false, false);
      check(false);
    } catch (ApiException error) {
      check(error.getCode() == 404);
      check(error.getResponseBody().contains("\"code\":4"));
    }
    namespaces.dropNamespace(database, new DropNamespaceRequest(), null);
  }

  private static void check(boolean holds) {
    if (!holds) {
      throw new AssertionError();
    }
  }
}
