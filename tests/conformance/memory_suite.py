"""The kit on a catalog in memory, noting which operations are called, and how they ended.

Not collected by itself: `test_kit` runs it in a new process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer
from servers.neighbours import Fields

from lance_bridge.catalog import Catalog, NamespaceRecord, TableRecord
from lance_bridge.catalog import Path as TablePath
from lance_bridge.locations import other_locations
from lance_bridge.testing import ConformanceSuite, Features, RawEntry, Target
from lance_bridge.testing.target import from_capabilities, inherited_operations

pytestmark = pytest.mark.slow

REPORT = "LANCE_BRIDGE_TEST_OPERATIONS"
"""Environment variable: the file to write the names of the operations to that were answered."""

ABLE = replace(CAPABILITIES, no_rename="", no_alter="")

OPERATIONS = frozenset(name for name in vars(api.LanceNamespace) if not name.startswith("_"))


class Noting:
    """A namespace that notes which of its operations gave an answer."""

    def __init__(self, namespace: api.LanceNamespace, answered: set[str]) -> None:
        self._namespace = namespace
        self._answered = answered

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._namespace, name)
        if name not in OPERATIONS:
            return member

        def call(*arguments: Any) -> Any:
            answer = member(*arguments)
            self._answered.add(name)
            return answer

        return call


class MemoryTarget(Target):
    """A catalog in memory that can rename and alter."""

    parent = ("eu", "shop")
    features = from_capabilities(
        ABLE,
        Features(
            absent=inherited_operations(MemoryNamespace),
            good_names=(*Features().good_names[:-1], "a" * 20),  # at most 40, with the kit's own
        ),
    )

    def __init__(self, root: Path) -> None:
        self.data_root = str(root)
        self.answered: set[str] = set()
        server = self._server = SERVERS[self.data_root] = MemoryServer(capabilities=ABLE)
        for path in (("eu",), self.parent):
            server.namespaces[path] = NamespaceRecord(path)

    def connect(self) -> Any:
        lake = f"{self.data_root}/lake"
        return Noting(MemoryNamespace(uri=self.data_root, root=lake), self.answered)

    def catalog(self) -> Catalog:
        return MemoryNamespace(uri=self.data_root).catalog

    def other_catalog(self) -> Catalog:
        return MemoryNamespace(uri="another").catalog

    def read_entry(self, path: TablePath) -> RawEntry:
        record = self._server.tables[path]
        return RawEntry(record.location, record.properties, record.is_external)

    def write_entry(self, path: TablePath, entry: RawEntry) -> None:
        self._server.tables[path] = TableRecord(
            path,
            entry.location,
            entry.properties,
            identity=self._server.stamp(),
            is_external=entry.is_external,
        )

    def make_foreign_table(self, namespace_id: Sequence[str], name: str, location: str) -> None:
        path = (*namespace_id, name)
        self._server.tables[path] = TableRecord(path, location, {"table_type": "parquet"})

    def make_partitioned_table(
        self, namespace_id: Sequence[str], name: str, location: str, partitions: Sequence[str]
    ) -> None:
        path = (*namespace_id, name)
        self._server.tables[path] = TableRecord(path, location, is_partitioned=True)
        self._server.partitions[path] = list(partitions)

    def add_entry(self, namespace_id: Sequence[str], name: str, fields: Fields) -> None:
        """Make an entry as another tool does."""
        path = (*namespace_id, name)
        others = other_locations(
            fields.location, fields.parameters, [fields.options], input_format=fields.input_format
        )
        self._server.tables[path] = TableRecord(
            path,
            fields.location,
            fields.parameters,
            is_partitioned=bool(fields.partitions),
            other_locations=others,
        )
        self._server.partitions[path] = list(fields.partitions)

    @contextmanager
    def unreadable(self, unreadable_type: str) -> Iterator[list[str]]:
        path = (*self.parent, f"unreadable_{unreadable_type}")
        self._server.namespaces[path] = NamespaceRecord(path)
        entry = (*path, "entry")
        if unreadable_type == "entry":
            self._server.tables[entry] = TableRecord.unreadable(entry)
        else:
            self._server.closed.add(path)
        yield list(entry if unreadable_type == "entry" else path)
        self._server.closed.discard(path)
        self._server.tables.pop(entry, None)
        del self._server.namespaces[path]

    @contextmanager
    def hidden_table(self, location: str) -> Iterator[None]:
        self._server.hidden = [TableRecord(("other", "catalog", "t"), location)]
        yield
        self._server.hidden = []

    def remove_entry(self, namespace_id: Sequence[str], name: str) -> None:
        self._server.tables.pop((*namespace_id, name), None)


class TestMemory(ConformanceSuite):
    """Every case."""

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
        target = MemoryTarget(tmp_path_factory.mktemp("memory"))
        yield target
        Path(os.environ[REPORT]).write_text(json.dumps(sorted(target.answered)))
