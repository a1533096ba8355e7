"""Fixtures of the command line's tests: a metastore, and a configuration file that names it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from servers.hive_entries import raw_client
from servers.metastores import Metastores

from lance_bridge.testing.calls import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

ORDERS = pa.table(
    {
        "id": pa.array(range(5), pa.int64()),
        "price": pa.array([0.5, 1.5, 2.5, 3.5, 4.5], pa.float32()),
        "vector": pa.array([[float(i), 0.0] for i in range(5)], pa.list_(pa.float32(), 2)),
    }
)


@dataclass
class Lake:
    """A configured catalog ``prod``, and a database of the test's own on it."""

    metastore: Metastore
    root: Path
    config: Path
    database: str
    namespace: HiveNamespace
    databases: list[str] = field(default_factory=list)

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"

    def create(self, table: str, rows: pa.Table = ORDERS, **properties: str) -> str:
        """Create a table, and return its name."""
        request = api.CreateTableRequest(id=[self.database, table], properties=properties or None)
        self.namespace.create_table(request, ipc(rows))
        return self.name(table)

    def place(self, table: str) -> Path:
        """Return where a table's files are."""
        request = api.DescribeTableRequest(id=[self.database, table])
        return Path(self.namespace.describe_table(request).location or "")

    def append(self, table: str, rows: pa.Table = ORDERS) -> Any:
        """Append straight to the storage, as others do who know nothing of the catalog."""
        return lance.write_dataset(rows, str(self.place(table)), mode="append")

    def tables(self) -> list[str]:
        return list(self.namespace.list_tables(api.ListTablesRequest(id=[self.database])).tables)

    def set(self, catalog: str, **properties: str) -> None:
        """Put a catalog's properties into the configuration file."""
        content = yaml.safe_load(self.config.read_text()) if self.config.exists() else {}
        content.setdefault("catalogs", {})[catalog] = properties
        self.config.write_text(yaml.safe_dump(content))


@pytest.fixture(scope="session")
def own_metastore(metastores: Metastores) -> Metastore:
    """A metastore 2.3 of these tests' own: the doctor looks at all that is in one."""
    return metastores.new("2.3")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file, which does not exist yet."""
    path = tmp_path / "catalogs.yaml"
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    return path


@pytest.fixture
def lake(own_metastore: Metastore, tmp_path: Path, config: Path) -> Iterator[Lake]:
    """A catalog ``prod`` with a database; entries are dropped afterwards, and no file."""
    root = tmp_path / "lake"
    with HiveNamespace(uri=own_metastore.uri, root=str(root)) as namespace:
        made = Lake(own_metastore, root, config, f"db_{uuid.uuid4().hex[:8]}", namespace)
        made.databases.append(made.database)
        made.set("prod", impl="hive", uri=own_metastore.uri, root=str(root))
        properties = {"database.location-uri": f"file:{tmp_path}/{made.database}"}
        namespace.create_namespace(
            api.CreateNamespaceRequest(id=[made.database], properties=properties)
        )
        yield made
        _clear(own_metastore, made.databases)


def _clear(metastore: Metastore, databases: list[str]) -> None:
    with raw_client(metastore.port) as client:
        for database in databases:
            if database in client.get_all_databases():
                for table in client.get_all_tables(database):
                    client.drop_table(database, table, False)
                client.drop_database(database, False, False)
