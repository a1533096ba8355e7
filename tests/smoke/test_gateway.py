"""The quickstart; and one process of the gateway, with pylance and LanceDB on a metastore."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from cli.program import run
from lance_namespace.errors import UnauthenticatedError
from server.authenticated import connect, serve
from servers.metastores import Metastores
from servers.processes import run_command

from lance_bridge_server.access.authentication import ApiKeyFile

pytestmark = pytest.mark.smoke

SCHEMA = pa.schema({"id": pa.int64(), "vector": pa.list_(pa.float32(), 2)})
ROWS = pa.table({"id": range(10), "vector": [[float(i), 0.0] for i in range(10)]}, schema=SCHEMA)
DATABASE = "smoke_gateway"


def by_key(url: str, key: str) -> Any:
    """Connect as pylance's own client does, with a key."""
    return connect(url, **{"header.x-api-key": key})


@pytest.fixture(scope="module")
def gateway(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Its address, and a key."""
    keys = ApiKeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    key, _ = keys.add("ann")
    catalog = f"prod=hive:uri={metastores.get('2.3').uri}"
    with serve("--catalog", catalog, "--api-keys", str(keys.path), "--port", "0") as served:
        client = by_key(served.url, key)
        client.create_namespace(api.CreateNamespaceRequest(id=["prod", DATABASE]))
        yield served.url, key


def test_pylance_writes_what_lancedb_searches(gateway: tuple[str, str]) -> None:
    url, key = gateway
    client = by_key(url, key)
    lance.write_dataset(ROWS, namespace_client=client, table_id=["prod", DATABASE, "t"])
    db = lancedb.connect(f"db://prod.{DATABASE}", api_key=key, host_override=url)
    found = db.open_table("t").search([7.0, 0.0]).limit(1).to_list()
    assert [row["id"] for row in found] == [7]


def test_lancedb_writes_what_pylance_reads_and_drops_it(gateway: tuple[str, str]) -> None:
    url, key = gateway
    client = by_key(url, key)
    db = lancedb.connect(f"db://prod.{DATABASE}", api_key=key, host_override=url)
    db.create_table("u", ROWS).add(ROWS)
    read = lance.dataset(namespace_client=client, table_id=["prod", DATABASE, "u"])
    assert sorted(read.to_table()["id"].to_pylist()) == sorted([*range(10)] * 2)
    db.drop_table("u")
    tables = client.list_tables(api.ListTablesRequest(id=["prod", DATABASE])).tables
    assert "u" not in tables


def test_nobody_is_let_in_without_a_key(gateway: tuple[str, str]) -> None:
    with pytest.raises(UnauthenticatedError):
        connect(gateway[0]).list_namespaces(api.ListNamespacesRequest(id=[]))


@pytest.mark.spec("cli.md#quickstart")
def test_the_quickstart_runs_the_program_that_it_shows(tmp_path: Path) -> None:
    shown = run("quickstart", str(tmp_path / "lake")).stdout
    program, printed = shown.split("Output:\n")
    assert printed.splitlines()[1:3] == ["[{'title': 'M'}, {'title': 'Faust'}]", "['M']"]
    assert str(tmp_path / "lake") in program
    assert lance.dataset(str(tmp_path / "lake" / "films.lance")).count_rows() == 3
    code = program.partition("\n\n")[2].replace(str(tmp_path), f"{tmp_path}/again")
    done = run_command(sys.executable, "-c", code)
    assert done.stdout.splitlines() == printed.splitlines()[1:3]
