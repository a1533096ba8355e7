"""The Hive Metastore as a target of the conformance kit."""

from __future__ import annotations

import copy
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pymetastore.hive_metastore.ttypes as hive3
from conftest import external_metastores
from hmsclient import HMSClient
from lance_namespace import (
    CreateNamespaceRequest,
    DeregisterTableRequest,
    DropNamespaceRequest,
    LanceNamespace,
    RegisterTableRequest,
)
from pymetastore.hive_metastore.ThriftHiveMetastore import Client as CatalogsClient
from servers.hive_entries import BROKEN_MARKS, MARKS, raw_client, raw_entry, raw_table
from servers.metastores import Metastores
from servers.neighbours import EXTERNAL, FORMATS, MANAGED, ORC, Fields, neighbours_at, uri
from servers.proxy import Fault, Hold, Refusal, ThriftProxy

from lance_bridge.catalog import Catalog
from lance_bridge.catalog import Path as TablePath
from lance_bridge.testing import Faults, Features, HeldChange, Neighbour, RawEntry, Target
from lance_bridge.testing.target import from_capabilities, inherited_operations
from lance_bridge_hive import HiveNamespace
from lance_bridge_hive.mapping import capabilities, database_argument
from lance_bridge_metastore import Metastore

from .faulty_servers import AnsweredFaults

_STARTS = ("create_", "alter_", "drop_")
_CHANGES = tuple(f"{start}*" for start in _STARTS)
_PROBE = b"lance_bridge_probe"
"""In calls that only find out what the metastore can do, and change nothing."""

_READS_OF_ENTRIES = ("get_table_req", "get_table_objects_by_name_req")
_READS_OF_DATABASES = (*_READS_OF_ENTRIES, "get_all_tables", "get_table*_by_*")

FEATURES = from_capabilities(
    capabilities(catalog_levels=False),
    Features(
        pickles=True,
        # Of several callers that drop one table at once, each may get a success.
        exclusive_changes=False,
        absent=inherited_operations(HiveNamespace),
    ),
)


class RunningHiveTarget(Target):
    """A metastore that runs already: never stopped, and its data is where both sides see it."""

    features = FEATURES
    identity_resolution = 1.1  # the time of creation, in seconds
    other_entry_types = tuple(MARKS)
    broken_entry_types = tuple(BROKEN_MARKS)
    unreadable_types = ("entry", "database")
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

    def make_entry(
        self, namespace_id: Sequence[str], name: str, location: str, entry_type: str
    ) -> None:
        table = raw_table(namespace_id[-1], name, location, self.types)
        {**MARKS, **BROKEN_MARKS}[entry_type](table)
        self._create(namespace_id, table)

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        table = raw_table(namespace_id[-1], name, location, self.types)
        table.parameters = {"EXTERNAL": "TRUE"}
        table.partitionKeys = [self.types.FieldSchema("day", "string", "")]
        self._create(namespace_id, table)
        self._add_partitions(table, [uri(place) for place in partitions])

    def _add_partitions(self, table: Any, partitions: Sequence[str]) -> None:
        found = [
            self.types.Partition(
                values=[str(number)],
                dbName=table.dbName,
                tableName=table.tableName,
                sd=copy.copy(table.sd),
                parameters={},
                createTime=1,
                lastAccessTime=1,
            )
            for number, _ in enumerate(partitions)
        ]
        for each, place in zip(found, partitions, strict=True):
            each.sd.location = place
            each.catName = getattr(table, "catName", None)
        if found:
            with raw_client(self._port, self.client) as client:
                client.add_partitions(found)

    def inhabit(self, namespace_id: Sequence[str], location: str) -> list[Neighbour]:
        made = []
        for neighbour, fields in neighbours_at(location, odd_name="odd/name"):
            self.add_entry(namespace_id, neighbour.name, fields)
            made.append(neighbour)
        place = f"{location}/acid"
        acid = Fields(uri(place), {"transactional": "true"}, input_format=ORC, entry_type=MANAGED)
        insert_only = {**acid.parameters, "transactional_properties": "insert_only"}
        kinds = (replace(acid, parameters=insert_only), acid)
        # The bindings with catalogs have errors that a context manager cannot pass on.
        for fields in kinds if self.types is hive else ():
            try:
                self.add_entry(namespace_id, "acid", fields)
            except self.types.MetaException:
                continue  # Hive 2 has no insert-only ones, and Hive 4 wants none of other clients
            return [*made, Neighbour("acid", [place])]
        return made

    def add_entry(self, namespace_id: Sequence[str], name: str, fields: Fields) -> None:
        """Make an entry as another tool does."""
        table = raw_table(namespace_id[-1], name, fields.location or "", self.types)
        table.tableType, table.sd.inputFormat = fields.entry_type, fields.input_format
        table.sd.serdeInfo.parameters = dict(fields.options)
        table.sd.cols = [self.types.FieldSchema("id", "int", "")]
        table.parameters = dict(fields.parameters)
        if fields.entry_type == EXTERNAL:
            table.parameters["EXTERNAL"] = "TRUE"
        if fields.entry_type == MANAGED:  # ACID, which Hive 2 wants in buckets
            table.sd.outputFormat = ORC.replace("Input", "Output")
            table.sd.numBuckets, table.sd.bucketCols = 1, ["id"]
        if fields.location is None:
            table.sd.location = None
            table.viewOriginalText = table.viewExpandedText = "select 1"
        if fields.partitions:
            table.partitionKeys = [self.types.FieldSchema("day", "string", "")]
        self._create(namespace_id, table)
        self._add_partitions(table, fields.partitions)

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[list[str]]:
        name = f"unreadable_{uuid.uuid4().hex[:8]}"
        database, address = [*self.parent, name], self._properties["uri"]
        with (
            HiveNamespace(**self._properties) as namespace,
            ThriftProxy("127.0.0.1", self._port) as proxy,
        ):
            namespace.create_namespace(CreateNamespaceRequest(id=database))
            for table in ("a", f"{name}_t", "z"):
                self.add_entry(database, table, FORMATS["parquet"](f"{self.data_root}/{table}"))
            is_entry = unreadable_type == "entry"
            found = [*database, f"{name}_t"] if is_entry else database
            refusal = Refusal("java.lang.RuntimeException: out of order")
            # A batch of entries fails with the entry that is among them.
            for method in _READS_OF_ENTRIES if is_entry else _READS_OF_DATABASES:
                proxy.fail_next(method, refusal, times=float("inf"), having=found[-1].encode())
            self._properties["uri"] = proxy.uri
            try:
                yield found
            finally:
                self._properties["uri"] = address
                for table in ("a", f"{name}_t", "z"):
                    self.remove_entry(database, table)
                namespace.drop_namespace(DropNamespaceRequest(id=database))

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

    def other_catalog(self) -> Catalog:
        return HiveNamespace(**{**self._properties, "uri": "thrift://127.0.0.1:1"}).catalog

    def read_entry(self, path: TablePath) -> RawEntry:
        table = raw_entry(self._port, *path)
        parameters = dict(table.parameters)
        marks = (table.tableType, parameters.get("EXTERNAL"))
        of_hive = {"external.table.purge", "TRANSLATED_TO_EXTERNAL"} & set(parameters)
        is_external = marks == ("EXTERNAL_TABLE", "TRUE") and not of_hive
        return RawEntry(table.sd.location, parameters, is_external)

    def write_entry(self, path: TablePath, entry: RawEntry) -> None:
        table = raw_table(path[-2], path[-1], entry.location or "", self.types)
        if entry.location is None:
            table.tableType, table.sd.location = "VIRTUAL_VIEW", None
            table.viewOriginalText = table.viewExpandedText = "SELECT 1"
        table.parameters = dict(entry.properties)
        if entry.is_external and entry.location is not None:
            table.parameters["EXTERNAL"] = "TRUE"
        elif not entry.is_external:
            table.tableType = "MANAGED_TABLE"
        self._create(path[:-1], table)

    @contextmanager
    def faults(self) -> Iterator[Faults]:
        with ThriftProxy("127.0.0.1", self._port) as proxy:
            own = {"uri": proxy.uri, "client.retry-timeout": "0"}
            namespace = HiveNamespace(**{**self._properties, **own})
            yield HiveFaults(proxy, namespace.catalog)
            namespace.close()

    def stop_server(self) -> None:
        self._metastore.kill()

    def start_server(self) -> None:
        self._metastore.start()


class HiveWithOtherCatalogsTarget(HiveTarget):
    """A release with catalogs, of which the namespace shows one."""

    @contextmanager
    def hidden_table(self, location: str) -> Iterator[None]:
        catalog = f"cat_{uuid.uuid4().hex[:12]}"
        path = [catalog, "sales", "t"]
        with HiveNamespace(**{**self._properties, "catalog_levels": "true"}) as namespace:
            place = {"catalog.location-uri": f"file://{self.data_root}/catalog"}
            namespace.create_namespace(CreateNamespaceRequest(id=path[:1], properties=place))
            namespace.create_namespace(CreateNamespaceRequest(id=path[:2]))
            namespace.register_table(RegisterTableRequest(id=path, location=location))
            yield
            namespace.deregister_table(DeregisterTableRequest(id=path))
            namespace.drop_namespace(DropNamespaceRequest(id=path[:1], behavior="Cascade"))


class HiveFaults(AnsweredFaults):
    """Trouble on the wire to a metastore."""

    refusal = Refusal("AccessControlException: Permission denied: user=somebody")
    busy = Fault.DROP_REQUEST
    failure = Refusal("java.lang.RuntimeException: out of order")

    def __init__(self, proxy: ThriftProxy, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._proxy = proxy

    @contextmanager
    def answered(self, answer: Fault | Refusal, passing: int = 0) -> Iterator[None]:
        self._proxy.fail_next("*", answer, times=float("inf"), passing=passing)
        try:
            yield
        finally:
            self._proxy.reset()

    @contextmanager
    def lose_next_reply(self) -> Iterator[None]:
        for change in _CHANGES:
            self._proxy.fail_next(change, Fault.LOSE_REPLY, without=_PROBE)
        yield
        # What was received is still to be counted.
        self._proxy.clear_rules()

    @contextmanager
    def hold_next_change(self) -> Iterator[HeldChange]:
        held = HeldChange()
        for change in _CHANGES:
            self._proxy.fail_next(change, Hold(held.arrived, held.release), without=_PROBE)
        yield held
        self._proxy.clear_rules()

    def changes_received(self) -> int:
        calls = self._proxy.calls
        return sum(n for name, n in calls.items() if name.startswith(_STARTS))


class HiveCatalogTarget(RunningHiveTarget):
    """One with the level of catalogs, in a catalog of the kit's own.

    It is not restarted: the connections are those of the target without catalogs.
    """

    parent = ("lance_kit",)
    types = hive3
    client = CatalogsClient

    def __init__(self, metastore: Metastore, data_root: Path) -> None:
        super().__init__(metastore.uri, data_root, catalog_levels="true")
        namespace = self.connect()
        namespace.create_namespace(
            CreateNamespaceRequest(
                id=list(self.parent),
                mode="ExistOk",
                properties={"catalog.location-uri": f"file://{data_root}/catalog"},
            )
        )


def hive_target(release: str, metastores: Metastores, data_root: Path) -> Target:
    """Return a release as a target: one that the environment names, or one that tests started."""
    external = external_metastores().get(release)
    if external is not None:
        return RunningHiveTarget(external, Path(os.environ["LANCE_BRIDGE_TEST_WAREHOUSE"]))
    return HiveTarget(metastores.get(release), data_root)
