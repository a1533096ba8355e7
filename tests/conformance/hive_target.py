"""The Hive Metastore as a target of the conformance kit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pymetastore.hive_metastore.ttypes as hive3
from hmsclient import HMSClient
from lance_namespace import CreateNamespaceRequest, LanceNamespace
from pymetastore.hive_metastore.ThriftHiveMetastore import Client as CatalogsClient
from servers.hive_raw import BROKEN_MARKS, MARKS, raw_client, raw_table

from lance_bridge.testing import Features, Target
from lance_bridge.testing.declared import from_capabilities, inherited_operations
from lance_bridge_hive import HiveNamespace
from lance_bridge_hive.embedded import Metastore
from lance_bridge_hive.names import capabilities, database_argument

FEATURES = from_capabilities(
    capabilities(catalog_levels=False),
    Features(
        pickles=True,
        # A metastore tells several callers that drop one table at once that each of them did it.
        exclusive_changes=False,
        absent=inherited_operations(HiveNamespace),
    ),
)


class RunningHiveTarget(Target):
    """A metastore that somebody else runs: never stopped, and data where both sides see it."""

    features = FEATURES
    odd_marks = tuple(MARKS)
    broken_marks = tuple(BROKEN_MARKS)
    types: Any = hive
    client: Any = HMSClient

    def __init__(self, uri: str, data_root: Path, **properties: str) -> None:
        found = re.fullmatch(r"thrift://127\.0\.0\.1:(\d+)", uri)
        assert found, f"{uri}: tests send traffic to 127.0.0.1 only"
        self._port = int(found[1])
        self._properties = {"uri": uri, "client.retry-timeout": "3", **properties}
        self.data_root = str(data_root)

    def connect(self) -> LanceNamespace:
        return HiveNamespace(**self._properties)

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        table = raw_table(namespace_id[-1], name, location, self.types)
        table.parameters = {"EXTERNAL": "TRUE"}
        table.sd.cols = [self.types.FieldSchema("id", "int", "")]
        self._create(namespace_id, table)

    def make_marked_table(
        self, namespace_id: Sequence[str], name: str, location: str, mark: str
    ) -> None:
        table = raw_table(namespace_id[-1], name, location, self.types)
        {**MARKS, **BROKEN_MARKS}[mark](table)
        self._create(namespace_id, table)

    def _create(self, namespace_id: Sequence[str], table: Any) -> None:
        if len(namespace_id) > 1:
            table.catName = namespace_id[0]
        with raw_client(self._port, self.client) as client:
            client.create_table(table)

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        database = database_argument(tuple(namespace_id))
        with raw_client(self._port, self.client) as client:
            try:
                client.drop_table(database, name, False)
            except self.types.NoSuchObjectException:
                return


class HiveTarget(RunningHiveTarget):
    """A metastore that the tests started, and may kill."""

    def __init__(self, metastore: Metastore, data_root: Path, **properties: str) -> None:
        super().__init__(metastore.uri, data_root, **properties)
        self._metastore = metastore

    def stop_server(self) -> None:
        self._metastore.kill()

    def start_server(self) -> None:
        self._metastore.start()


class HiveCatalogTarget(HiveTarget):
    """The same with the level of catalogs, in a catalog of the kit's own."""

    parent = ("lance_kit",)
    types = hive3
    client = CatalogsClient

    def __init__(self, metastore: Metastore, data_root: Path) -> None:
        super().__init__(metastore, data_root, catalog_levels="true")
        namespace = self.connect()
        namespace.create_namespace(
            CreateNamespaceRequest(
                id=list(self.parent),
                mode="ExistOk",
                properties={"catalog.location-uri": f"file://{data_root}/catalog"},
            )
        )
