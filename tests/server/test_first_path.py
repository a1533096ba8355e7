"""The shortest way through the gateway: pylance and LanceDB write and read a table in Hive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from server.serving import serving
from servers.metastores import Metastores

import lance_bridge
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

pytestmark = pytest.mark.server

ROWS = pa.table(
    {
        "id": range(10),
        "vector": pa.array([[float(i), 0.0] for i in range(10)], pa.list_(pa.float32(), 2)),
    }
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, metastores: Metastores) -> Iterator[str]:
    port, root = metastores.get("2.3").port, tmp_path_factory.mktemp("root")
    with (
        HiveNamespace(uri=f"thrift://127.0.0.1:{port}", root=str(root)) as hive,
        serving(create_app(Gateway(hive))) as address,
    ):
        yield address


def test_pylance_writes_and_lancedb_searches(url: str, tmp_path: Path) -> None:
    database = f"films_{tmp_path.name.replace('-', '_')}".lower()
    client = lance_bridge.connect("rest", uri=url)
    client.create_namespace(api.CreateNamespaceRequest(id=[database]))
    lance.write_dataset(ROWS, namespace_client=client, table_id=[database, "t"])
    db = lancedb.connect(f"db://{database}", api_key="none", host_override=url)
    found = db.open_table("t").search([7.0, 0.0]).limit(1).to_list()
    assert [row["id"] for row in found] == [7]
    db.drop_table("t")
    assert client.list_tables(api.ListTablesRequest(id=[database])).tables == []
