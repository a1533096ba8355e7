"""Rows of many megabytes that compress to no fewer, through a gateway to every kind of catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import lance
import lance_namespace as api
import lancedb
import numpy as np
import pyarrow as pa
import pytest
from conformance.unity_target import CATALOG
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from server.authenticated import connect, serve, write_config
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing.calls import ipc

pytestmark = [
    pytest.mark.spec("server.md#clients", "server.md#requests", "server.md#queries"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

DATABASE = f"large_{uuid.uuid4().hex[:12]}"
PARENTS: Mapping[str, list[str]] = {
    "hive": ["hive"],
    "glue": ["glue"],
    "unity": ["unity", CATALOG],
    "dir": ["dir"],
}
"""The identifier of the namespace that has the database, by catalog."""
ROW_BYTES = 1 << 10
NO_RETRIES = {"retry_config": {"retries": 0}}


def random_rows(first: int, megabytes: int) -> pa.Table:
    """Return rows of random bytes, with ids from the first on."""
    count = megabytes * 1_000_000 // ROW_BYTES
    data = np.random.default_rng(first).bytes(count * ROW_BYTES)
    values = [data[at : at + ROW_BYTES] for at in range(0, len(data), ROW_BYTES)]
    return pa.table({"id": range(first, first + count), "data": values})


class Client(Protocol):
    """A client, and its table."""

    url: str
    id: list[str]

    def create(self, rows: pa.Table) -> None: ...

    def insert(self, rows: pa.Table) -> None: ...

    def merge(self, rows: pa.Table) -> None:
        """Replace the rows whose ids the table has, and add the others."""

    def query(self) -> pa.Table:
        """Return all rows."""


@dataclass
class Pylance:
    """pylance's client."""

    url: str
    id: list[str]

    @property
    def namespace(self) -> Any:
        return connect(self.url)

    def create(self, rows: pa.Table) -> None:
        self.namespace.create_table(api.CreateTableRequest(id=self.id), ipc(rows))

    def insert(self, rows: pa.Table) -> None:
        self.namespace.insert_into_table(api.InsertIntoTableRequest(id=self.id), ipc(rows))

    def merge(self, rows: pa.Table) -> None:
        request = api.MergeInsertIntoTableRequest(
            id=self.id, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        )
        self.namespace.merge_insert_into_table(request, ipc(rows))

    def query(self) -> pa.Table:
        vector = QueryTableRequestVector()
        request = api.QueryTableRequest(id=self.id, k=0, vector=vector)
        return pa.ipc.open_file(self.namespace.query_table(request).data).read_all()


@dataclass
class LanceDB:
    """LanceDB's client."""

    url: str
    id: list[str]
    table: Any = None

    def create(self, rows: pa.Table) -> None:
        *database, name = self.id
        options: Any = {"host_override": self.url, "client_config": NO_RETRIES}
        connected = lancedb.connect(f"db://{'.'.join(database)}", api_key="k", **options)
        self.table = connected.create_table(name, rows)

    def insert(self, rows: pa.Table) -> None:
        self.table.add(rows)

    def merge(self, rows: pa.Table) -> None:
        merge = self.table.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(rows)

    def query(self) -> pa.Table:
        found: pa.Table = self.table.search().to_arrow()
        return found


@pytest.fixture(scope="module")
def url(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The installed program, with a catalog of each kind that has the database."""
    root = tmp_path_factory.mktemp("large")
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog(CATALOG)
        catalogs: dict[str, dict[str, str]] = {
            "hive": {"uri": metastores.get("2.3").uri},
            "glue": glue.properties,
            "unity": {"endpoint": unity.url},
            "dir": {},
        }
        settings = {
            name: {"impl": name, "root": str(root / name), **properties}
            for name, properties in catalogs.items()
        }
        config = write_config(root, catalogs=settings, listeners=[{"port": 0}])
        with serve("--config", str(config)) as program:
            namespace = connect(program.url)
            for parent in PARENTS.values():
                namespace.create_namespace(api.CreateNamespaceRequest(id=[*parent, DATABASE]))
            yield program.url


@pytest.mark.parametrize("client_type", [Pylance, LanceDB])
@pytest.mark.parametrize(
    "megabytes",
    [pytest.param(5, marks=pytest.mark.servers), pytest.param(50, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("catalog", PARENTS)
def test_rows_arrive_and_return_unchanged(
    url: str, catalog: str, megabytes: int, client_type: type[Pylance] | type[LanceDB]
) -> None:
    table_id = [*PARENTS[catalog], DATABASE, client_type.__name__.lower()]
    client: Client = client_type(url, table_id)
    first = random_rows(0, megabytes)
    count = first.num_rows
    second, third = (random_rows(at, megabytes) for at in (count, 3 * count // 2))
    client.create(first)
    require_rows(client, first)
    client.insert(second)
    client.merge(third)  # half of its rows are new
    require_rows(client, pa.concat_tables([first, second.slice(0, count // 2), third]))
    connect(url).drop_table(api.DropTableRequest(id=table_id))


def require_rows(client: Client, expected: pa.Table) -> None:
    """Require that a query returns these rows, and that the table's own files have them."""
    described = connect(client.url).describe_table(api.DescribeTableRequest(id=client.id))
    for found in (client.query(), lance.dataset(described.location).to_table()):
        assert found.schema.names == expected.schema.names
        assert found.sort_by("id").combine_chunks().equals(expected.combine_chunks())
