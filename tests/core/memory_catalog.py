"""A catalog in memory, unlike Hive in what it declares: a double for catalogs that are to come.

It has three namespace levels, keeps the case of names, and can neither rename nor alter, nor refuse
by itself to drop a namespace with something in it. Replies can be lost on the way, before or after
the effect, and other clients can step in between (:attr:`MemoryServer.fault`).

What it cannot show: how a real catalog behaves. There is no wire here, no timeout, no permission,
no stale read, no limit on sizes and no server-side paging, a call takes no time, and its errors are
right because it was written together with the tests. It shows only that core keeps to the port.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError
from pydantic import Field, SecretStr

from lance_bridge import CatalogConfig, LanceBridgeNamespace
from lance_bridge.catalog import (
    GUARD,
    Capabilities,
    Catalog,
    CatalogColumn,
    NameRule,
    NamespaceRecord,
    Path,
    TableRecord,
    select_tables,
)
from lance_bridge.errors import (
    concurrent_modification,
    display,
    namespace_already_exists,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)

Moment = Literal["before", "after"]
Fault = Callable[[str, Moment], None]
"""Called with the name of a change and whether its effect is still to come; may raise."""

REVISION = "revision"
"""The guard of all entries."""

NO_RENAME = "it has no call for that"
NO_ALTER = "its entries never change"


def rule(noun: str) -> NameRule:
    """Names of letters, digits, ``_`` and ``-``, of at most 40 characters."""
    return NameRule(noun, re.compile(r"[A-Za-z0-9_-]+"), "letters, digits, '_' and '-'", 40)


CAPABILITIES = Capabilities(
    namespace_levels=(rule("region"), rule("project"), rule("dataset")),
    table_rule=rule("table"),
    has_partitions=True,
    hides_tables=True,
    no_rename=NO_RENAME,
    no_alter=NO_ALTER,
)


@dataclass
class MemoryServer:
    """What all connections to one name see. Its entries are open to tests, as other clients."""

    capabilities: Capabilities = CAPABILITIES
    namespaces: dict[Path, NamespaceRecord] = field(default_factory=dict)
    tables: dict[Path, TableRecord] = field(default_factory=dict)
    hidden: list[TableRecord] = field(default_factory=list)
    """Entries that no namespace lists."""
    partitions: dict[Path, list[str]] = field(default_factory=dict)
    """Their locations by the paths of entries; no answer for an entry that is not in it."""
    columns: dict[Path, list[CatalogColumn]] = field(default_factory=dict)
    """Those that it stores for entries, by their paths."""
    closed: set[Path] = field(default_factory=set)
    """Namespaces whose entries may not be read."""
    fault: Fault | None = None
    effects: list[str] = field(default_factory=list)
    """The changes that took effect, by the name of their method."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _made: count[int] = field(default_factory=lambda: count(1))

    def change(self, name: str, effect: Callable[[], None]) -> None:
        """Have one effect, with what may go wrong around it."""
        if self.fault is not None:
            self.fault(name, "before")
        with self.lock:
            effect()
            self.effects.append(name)
        if self.fault is not None:
            self.fault(name, "after")

    def stamp(self) -> str:
        """Return a new value for ``TableRecord.identity``."""
        return str(next(self._made))


SERVERS: dict[str, MemoryServer] = {}
"""Running servers by the name that the property ``uri`` holds."""


class MemoryConfig(CatalogConfig):
    """The properties of ``impl=memory``."""

    uri: str = Field(alias="uri", description="Which server.")
    token: SecretStr | None = Field(default=None, alias="token", description="Lets one in.")
    retries: int = Field(default=3, ge=0, alias="client.retries", description="A number.")


class MemoryCatalog(Catalog):
    """One connection to a :class:`MemoryServer`."""

    def __init__(self, config: MemoryConfig) -> None:
        self.config = config

    @property
    def server(self) -> MemoryServer:
        return SERVERS[self.config.uri]

    @property
    def capabilities(self) -> Capabilities:
        server = SERVERS.get(self.config.uri)
        return server.capabilities if server is not None else CAPABILITIES

    def describe_connection(self) -> str:
        return f"uri={self.config.uri}"

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        self._require(parent)
        with self.server.lock:
            return sorted(p[-1] for p in self.server.namespaces if p[:-1] == parent)

    def load_namespace(self, path: Path) -> NamespaceRecord:
        self._require(path)
        return self.server.namespaces[path]

    def create_namespace(self, record: NamespaceRecord) -> None:
        def effect() -> None:
            self._require(record.path[:-1])
            if record.path in self.server.namespaces:
                raise namespace_already_exists(record.path)
            self.server.namespaces[record.path] = record

        self.server.change("create_namespace", effect)

    def alter_namespace(self, record: NamespaceRecord) -> None:
        def effect() -> None:
            self._require(record.path)
            self.server.namespaces[record.path] = record

        self.server.change("alter_namespace", effect)

    def drop_namespace(self, path: Path) -> None:
        def effect() -> None:
            self._require(path)
            # All that is below goes with it, unasked: core must have looked.
            for entries in (self.server.namespaces, self.server.tables):
                for each in [p for p in entries if p[: len(path)] == path]:
                    del entries[each]

        self.server.change("drop_namespace", effect)

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        self._require(namespace)
        if namespace in self.server.closed:
            raise PermissionDeniedError(f"'{display(namespace)}' may not be read")
        with self.server.lock:
            found = [r for p, r in self.server.tables.items() if p[:-1] == namespace]
        return select_tables(found, lance_only=lance_only, after=after)

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        return list(self.server.hidden)

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        if record.path not in {*self.server.tables, *(each.path for each in self.server.hidden)}:
            return []
        if record.path not in self.server.partitions:
            raise PermissionDeniedError("partitions may not be read")
        return self.server.partitions[record.path]

    def load_table(self, path: Path) -> TableRecord:
        with self.server.lock:
            if path not in self.server.tables:
                raise table_not_found(path)
            return self.server.tables[path]

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:
        self.load_table(path)
        return self.server.columns.get(path, ())

    def create_table(self, record: TableRecord) -> TableRecord:
        def effect() -> None:
            self._require(record.path[:-1])
            if record.path in self.server.tables:
                raise table_already_exists(record.path)
            self._put(record)

        self.server.change("create_table", effect)
        return self.server.tables.get(record.path, record)

    def copy_table(self, record: TableRecord, copy: TableRecord) -> None:
        def effect() -> None:
            self._require(copy.path[:-1])
            self.load_table(record.path)
            if copy.path in self.server.tables:
                raise table_already_exists(copy.path)
            self._put(copy)

        self.server.change("copy_table", effect)

    def alter_table(self, record: TableRecord) -> None:
        def effect() -> None:
            self._compare(record)
            changed = replace(record, revision=self.server.stamp(), is_external=True)
            self.server.tables[record.path] = changed

        self.server.change("alter_table", effect)

    def commit_guard(self, record: TableRecord) -> str:
        self.load_table(record.path)
        return REVISION

    def _compare(self, record: TableRecord) -> None:
        found = self.load_table(record.path)
        for each in (record, found):
            if each.properties.get(GUARD, REVISION) != REVISION:
                raise InvalidTableStateError(f"'{display(record.path)}' has an unknown guard")
        is_guarded = GUARD in found.properties or GUARD in record.properties
        if is_guarded and found.revision != record.revision:
            raise concurrent_modification(record.path)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        def effect() -> None:
            self._require(new_path[:-1])
            self._compare(record)
            found = self.load_table(record.path)
            if new_path in self.server.tables:
                raise table_already_exists(new_path)
            del self.server.tables[record.path]
            renamed = replace(found, path=new_path, revision=self.server.stamp())
            self.server.tables[new_path] = renamed

        self.server.change("rename_table", effect)

    def drop_table(self, record: TableRecord) -> None:
        def effect() -> None:
            self.load_table(record.path)
            del self.server.tables[record.path]

        self.server.change("drop_table", effect)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _require(self, path: Path) -> None:
        if path and path not in self.server.namespaces:
            raise namespace_not_found(path)

    def _put(self, record: TableRecord) -> None:
        stamped = replace(
            record,
            properties=dict(record.properties),
            entry_type="TABLE",
            revision=None,
            identity=self.server.stamp(),
        )
        self.server.tables[record.path] = stamped


class MemoryNamespace(LanceBridgeNamespace):
    """``impl=memory``."""

    impl = "memory"
    config_type = MemoryConfig

    def open_catalog(self, config: MemoryConfig) -> Catalog:
        return MemoryCatalog(config)

    @property
    def server(self) -> MemoryServer:
        """What the namespace is connected to."""
        return SERVERS[self._properties["uri"]]


Client = MemoryServer | MemoryNamespace
"""A client, or the server that it is connected to."""


def server_of(client: Client) -> MemoryServer:
    """Return the server of a client, or the server itself."""
    return client.server if isinstance(client, MemoryNamespace) else client
