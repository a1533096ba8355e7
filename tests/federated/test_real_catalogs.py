"""A federation of a real metastore, Glue and a directory, used by unmodified clients."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pytest
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.processes import run_command

import lance_bridge
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace

pytestmark = pytest.mark.servers

CATALOGS = ("aws", "files", "prod")


@dataclass
class Federation:
    """Three catalogs, with an empty namespace ``db`` of one test's own in each."""

    properties: dict[str, str]
    db: str

    def connect(self) -> FederatedNamespace:
        namespace = lance_bridge.connect("federated", self.properties)
        assert isinstance(namespace, FederatedNamespace)
        return namespace

    def id(self, catalog: str, table: str = "t") -> list[str]:
        return [catalog, self.db, table]


@pytest.fixture(scope="module")
def properties(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("federation")
    with GlueServer() as glue:
        yield {
            **{f"catalog.aws.{key}": value for key, value in glue.properties.items()},
            "catalog.aws.impl": "glue",
            "catalog.aws.root": str(root / "aws"),
            "catalog.files.impl": "dir",
            "catalog.files.root": str(root / "files"),
            "catalog.prod.impl": "hive",
            "catalog.prod.uri": metastores.get("2.3").uri,
            "catalog.prod.root": str(root / "prod"),
            "catalog.prod.client.retry-timeout": "0",
        }


@pytest.fixture
def federation(properties: dict[str, str]) -> Iterator[Federation]:
    made = Federation(properties, f"db_{uuid.uuid4().hex[:12]}")
    with made.connect() as namespace:
        for catalog in CATALOGS:
            namespace.create_namespace(api.CreateNamespaceRequest(id=[catalog, made.db]))
        yield made
        # Other tests have the metastore, too.
        request = api.DropNamespaceRequest(id=["prod", made.db], behavior="Cascade")
        namespace.drop_namespace(request)


@pytest.mark.spec("federated.md#connecting", "federated.md#operations")
@pytest.mark.parametrize("catalog", CATALOGS)
def test_lancedb_and_pylance_work_in_each_catalog(catalog: str, federation: Federation) -> None:
    db = lancedb.connect_namespace("federated", federation.properties)
    path = [catalog, federation.db]
    assert catalog in db.list_namespaces().namespaces
    assert federation.db in db.list_namespaces([catalog]).namespaces
    table = db.create_table("t", rows(range(5)), namespace_path=path)
    table.add(rows(range(5, 8)))
    table.delete("id = 0")
    opened = db.open_table("t", namespace_path=path)
    assert opened.count_rows() == 7
    assert [row["id"] for row in opened.search().where("id > 5").to_list()] == [6, 7]
    assert db.list_tables(path).tables == ["t"]
    with federation.connect() as namespace:
        at: dict[str, Any] = {"namespace_client": namespace, "table_id": federation.id(catalog)}
        lance.write_dataset(rows(range(8, 9)), mode="append", **at)
        assert lance.dataset(**at).count_rows() == 8
    db.drop_table("t", namespace_path=path)
    assert db.list_tables(path).tables == []


READER = """
import pickle, sys, lance
namespace = pickle.load(open(sys.argv[1], "rb"))
print(lance.dataset(namespace_client=namespace, table_id=sys.argv[2].split(".")).count_rows())
"""


@pytest.mark.spec("federated.md#threads-processes-and-secrets")
def test_a_pickle_reads_in_another_process_where_one_catalog_lacks_its_secret(
    federation: Federation, tmp_path: Path
) -> None:
    with federation.connect() as namespace:
        Calls(namespace).create_table(federation.id("prod"), rows(range(4)))
        pickled = tmp_path / "namespace"
        pickled.write_bytes(pickle.dumps(namespace))
    read = run_command(sys.executable, "-c", READER, pickled, ".".join(federation.id("prod")))
    assert read.stdout.strip() == "4"


@pytest.mark.spec("federated.md#connecting")
def test_what_needs_one_catalog_takes_it_from_the_federation(federation: Federation) -> None:
    with federation.connect() as namespace:
        Calls(namespace).create_table(federation.id("prod"), rows(range(2)))
        hive = namespace.child("prod")
        assert isinstance(hive, HiveNamespace)
        assert hive.tables.load((federation.db, "t")).open().count_rows() == 2
        request: Any = {"id": federation.id("prod"), "k": 5, "vector": {}}
        assert namespace.query_table_reader(request).read_all().num_rows == 2
