"""Databases are namespaces: found by a rule, listed by name, created and dropped in a catalog."""

from __future__ import annotations

import re

import lance_namespace as api
import lancedb
import pytest
from lance_namespace.errors import InvalidInputError
from server.lancedb_clients.operations_table import SPEC
from server.lancedb_clients.trials import rows
from server.serving import serving_namespace
from starlette.requests import HTTPConnection

from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.lancedb import DatabasePaths, database_of, pages_by_name

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#databases")]


def _make(hive: HiveNamespace, name: str, *tables: str) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=[name]))
    for table in tables:
        hive.declare_table(api.DeclareTableRequest(id=[name, table]))


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", "a."])
def test_an_empty_name_in_a_database_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="empty name"):
        DatabasePaths()(name)


def test_the_path_after_the_database_is_below_it() -> None:
    headers = {"x-lancedb-database": "prod", "x-lancedb-database-prefix": "films/old"}
    assert database_of(_request(headers), DatabasePaths()) == ["prod", "films", "old"]
    headers["x-lancedb-database-prefix"] = "films//old"
    with pytest.raises(InvalidInputError, match="empty name"):
        database_of(_request(headers), DatabasePaths())
    assert database_of(_request({}), DatabasePaths()) is None


def _request(headers: dict[str, str]) -> HTTPConnection:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": raw, "query_string": b""})


def test_pages_by_name_read_all_pages_of_the_namespace() -> None:
    def list_page(request: api.ListTablesRequest) -> api.ListTablesResponse:
        assert request.limit is None
        pages = {None: (["d", "b"], "2"), "2": (["a"], "3"), "3": (["c"], None)}
        names, token = pages[request.page_token]
        return api.ListTablesResponse(tables=names, page_token=token)

    page = pages_by_name(list_page)
    with pytest.raises(InvalidInputError, match="limit must be 1 or more"):
        page(api.ListTablesRequest(limit=0))
    answer = page(api.ListTablesRequest(limit=2, page_token="a"))
    assert (answer.tables, answer.page_token) == (["b", "c"], "c")
    answer = page(api.ListTablesRequest(limit=2, page_token="c"))
    assert (answer.tables, answer.page_token) == (["d"], None)


def test_a_catalogs_databases_are_below_the_prefix(hive: HiveNamespace) -> None:
    with serving_namespace(
        FederatedNamespace({"prod": hive}), databases=DatabasePaths(prefix=["prod"])
    ) as url:
        catalog = lancedb.connect_catalog(url, api_key="k")
        catalog.create_database("prefixed").create_table("t", rows(3))
        assert hive.list_tables(api.ListTablesRequest(id=["prefixed"])).tables == ["t"]
        assert "prefixed" in catalog.list_databases().databases
        db = lancedb.connect("db://prefixed", api_key="k", host_override=url)
        assert db.open_table("t").count_rows() == 3
        db.drop_table("t")
        catalog.drop_database("prefixed")
    assert "prefixed" not in hive.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces


def test_a_namespace_client_of_lancedb_speaks_the_specification(
    hive: HiveNamespace, url: str
) -> None:
    _make(hive, "spoken")
    db = lancedb.connect("db://spoken", api_key="k", host_override=url)
    db.create_table("t", rows(1))
    client = db.namespace_client()
    request = api.DescribeTableRequest(id=["t"], load_detailed_metadata=True)
    described = client.describe_table(request)
    assert [each.type.type for each in described.var_schema.fields[:2]] == ["int64", "utf8"]
    assert client.list_all_tables(api.ListTablesRequest()).tables == ["t"]


def test_a_declared_table_says_that_it_has_no_data(hive: HiveNamespace, url: str) -> None:
    _make(hive, "declared", "t")
    db = lancedb.connect("db://declared", api_key="k", host_override=url)
    with pytest.raises(Exception, match="declared, but has no data yet"):
        db.open_table("t")
    assert db.create_table("t", rows(2)).count_rows() == 2


@pytest.mark.spec("server.md#lancedb")
def test_the_lines_for_python_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    [lines] = re.findall(r"```python\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL)
    exec(lines.replace("https://gateway.example.com", url).replace("…", "k"), {})
    assert "Alien" in capsys.readouterr().out
