"""Gateways side by side, as behind a load balancer: one goes on where another has begun."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

import httpx
import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace

from .authenticated import connect, serve

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#freshness")]

DATABASE = ["prod", "side_by_side"]
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(scope="module")
def gateways(
    tmp_path_factory: pytest.TempPathFactory, metastores: Metastores
) -> Iterator[list[str]]:
    """Two gateways to one metastore."""
    uri, root = metastores.get("2.3").uri, tmp_path_factory.mktemp("root")
    catalog = ["--catalog", f"prod=hive:uri={uri}", "-p", f"prod.root={root}", "--port", "0"]
    with serve(*catalog) as one, serve(*catalog) as other:
        yield [one.url, other.url]


@pytest.fixture
def urls(gateways: list[str], metastores: Metastores) -> Iterator[list[str]]:
    """Their addresses; the database is dropped afterwards."""
    yield gateways
    with HiveNamespace(uri=metastores.get("2.3").uri) as namespace:
        request = api.DropNamespaceRequest(id=DATABASE[1:], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


def test_requests_may_go_to_either(urls: list[str]) -> None:
    one, other = (connect(url) for url in urls)
    one.create_namespace(api.CreateNamespaceRequest(id=DATABASE))
    for name in "abc":
        table = [*DATABASE, name]
        lance.write_dataset(ROWS, namespace_client=other, table_id=table)
        assert lance.dataset(namespace_client=one, table_id=table).count_rows() == 3

    first = one.list_tables(api.ListTablesRequest(id=DATABASE, limit=2))
    second = api.ListTablesRequest(id=DATABASE, limit=2, page_token=first.page_token)
    assert [*first.tables, *other.list_tables(second).tables] == ["a", "b", "c"]

    tables = [
        lancedb.connect("db://prod.side_by_side", api_key="k", host_override=url).open_table("a")
        for url in urls
    ]
    for number, table in enumerate(tables):
        table.add([{"id": 10 + number}])
        assert [each.count_rows() for each in tables] == [4 + number] * 2


def test_what_one_has_written_is_read_from_the_other(urls: list[str]) -> None:
    """The headers are those that LanceDB's client sends after a write, to whichever server."""
    connect(urls[0]).create_namespace(api.CreateNamespaceRequest(id=DATABASE))
    db = lancedb.connect("db://prod.side_by_side", api_key="k", host_override=urls[0])
    table = db.create_table("t", ROWS)
    headers = {"x-lancedb-database": "prod.side_by_side", "user-agent": "LanceDB-Test"}
    for number in range(3):
        version = table.add(ROWS).version
        assert version == 2 + number
        headers["x-lancedb-min-version"] = str(version)
        headers["x-lancedb-min-timestamp"] = datetime.now(timezone.utc).isoformat()
        answer = httpx.post(f"{urls[1]}/v1/table/t/count_rows/", headers=headers, json={})
        assert (answer.json(), answer.headers["x-lancedb-version"]) == (
            6 + 3 * number,
            str(version),
        )
