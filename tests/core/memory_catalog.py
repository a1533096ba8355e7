"""A catalog in memory, unlike Hive in what it declares, and tables over it.

It has three namespace levels, keeps the case of names, and can neither rename nor alter, nor refuse
by itself to drop a namespace with something in it. Replies can be lost on the way, before or after
the effect, and other clients can step in between (:attr:`MemoryServer.fault`).

What it cannot show: how a real catalog behaves. There is no wire here, no timeout, no permission,
no stale read, no limit on sizes and no server-side paging, a call takes no time, and its errors are
right because it was written together with the tests. It shows only that core keeps to the port.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
)
from pydantic import Field, SecretStr

from lance_bridge import CatalogConfig, LanceBridgeNamespace
from lance_bridge.catalog import (
    GUARD,
    Capabilities,
    Catalog,
    CatalogColumn,
    NameRule,
    NamespaceRecord,
    TableRecord,
    select_tables,
)
from lance_bridge.catalog import (
    Path as TablePath,
)
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.errors import (
    concurrent_modification,
    display,
    namespace_already_exists,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)
from lance_bridge.testing.calls import ipc

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
    namespaces: dict[TablePath, NamespaceRecord] = field(default_factory=dict)
    tables: dict[TablePath, TableRecord] = field(default_factory=dict)
    hidden: list[TableRecord] = field(default_factory=list)
    """Entries that no namespace lists."""
    partitions: dict[TablePath, list[str]] = field(default_factory=dict)
    """Their locations by the paths of entries; no answer for an entry that is not in it."""
    columns: dict[TablePath, list[CatalogColumn]] = field(default_factory=dict)
    """Those that it stores for entries, by their paths."""
    closed: set[TablePath] = field(default_factory=set)
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

    def list_namespaces(self, parent: TablePath) -> Iterable[str]:
        self._require(parent)
        with self.server.lock:
            return sorted(p[-1] for p in self.server.namespaces if p[:-1] == parent)

    def load_namespace(self, path: TablePath) -> NamespaceRecord:
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

    def drop_namespace(self, path: TablePath) -> None:
        def effect() -> None:
            self._require(path)
            # All that is below goes with it, unasked: core must have looked.
            for entries in (self.server.namespaces, self.server.tables):
                for each in [p for p in entries if p[: len(path)] == path]:
                    del entries[each]

        self.server.change("drop_namespace", effect)

    def scan_tables(
        self, namespace: TablePath, *, lance_only: bool = False, after: str | None = None
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

    def load_table(self, path: TablePath) -> TableRecord:
        with self.server.lock:
            if path not in self.server.tables:
                raise table_not_found(path)
            return self.server.tables[path]

    def load_columns(self, path: TablePath) -> Iterable[CatalogColumn]:
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

    def rename_table(self, record: TableRecord, new_path: TablePath) -> None:
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

    def _require(self, path: TablePath) -> None:
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


# -- tables over it, and vendors of their credentials ----------------------------------------------


DATASET = ["eu", "shop", "sales"]
"""The namespace that the fixture ``server`` holds."""
TABLE = [*DATASET, "Orders"]
BUCKET = "tables"
"""What the fixture ``moto`` holds."""
ASKED: dict[str, list[Grant]] = defaultdict(list)
"""The grants that vendors were asked for, by their option ``log``."""
BEFORE: dict[str, Callable[[], None]] = {}
"""What is called before a vendor of that log answers; it may raise."""
VENDOR = f"{__name__}.NotedVendor"
LOCATION = "s3://lake/tables/t.lance"
"""Where a test's table is."""
OWN = {
    "storage.aws_access_key_id": "own",
    "storage.aws_secret_access_key": "own-secret",
    "storage.token": "own-secret",
}
"""The catalog's own credentials."""


def at(name: str) -> tuple[str, ...]:
    """Return the path of a table in ``DATASET``."""
    return (*DATASET, name)


def start_server(name: str, capabilities: Capabilities = CAPABILITIES) -> MemoryServer:
    """Return a server that connections find by its name, with one empty namespace on each level."""
    server = SERVERS[name] = MemoryServer(capabilities)
    for depth in range(1, len(DATASET) + 1):
        path = tuple(DATASET[:depth])
        server.namespaces[path] = NamespaceRecord(path)
    return server


def stream(rows: int = 3) -> bytes:
    """Return an Arrow IPC stream of one column, ``a``."""
    return ipc(pa.table({"a": list(range(rows))}))


def create(
    ns: MemoryNamespace, table: list[str], rows: int = 3, **more: Any
) -> api.CreateTableResponse:
    """Create a table with data."""
    return ns.create_table(api.CreateTableRequest(id=table, **more), stream(rows))


def count_rows(ns: MemoryNamespace, table: list[str]) -> int | None:
    """Return the number of rows of a table."""
    return ns.count_table_rows(api.CountTableRowsRequest(id=table)).count


def raiser(error: BaseException) -> Callable[..., Any]:
    """Return a function of any arguments that raises an error."""

    def act(*_: object, **__: object) -> Any:
        raise error

    return act


def at_change(
    client: Client,
    change: str,
    moment: Moment,
    act: Callable[[], object],
    *,
    number: int = 1,
) -> None:
    """Have something happen right before or after the effect of the next change of a kind.

    Args:
        number: Of the change, if it is to be a later one than the next.
    """
    server, left = server_of(client), [number]

    def fault(name: str, when: Moment) -> None:
        if (name, when) == (change, moment):
            left[0] -= 1
            if not left[0]:
                server.fault = None
                act()

    server.fault = fault


def winner_of(answers: Sequence[object], error: type[LanceNamespaceError]) -> int:
    """Require that one of several callers succeeded and that the others got this error.

    Returns:
        The number of the one that succeeded.
    """
    failed = [type(each) for each in answers if isinstance(each, LanceNamespaceError)]
    assert failed == [error] * (len(answers) - 1)
    return next(n for n, each in enumerate(answers) if not isinstance(each, LanceNamespaceError))


# -- versions, and staged manifests ----------------------------------------------------------------


def directory(ns: MemoryNamespace, table: list[str] = TABLE) -> Path:
    """Return the local directory of a table."""
    return Path(ns.describe_table(api.DescribeTableRequest(id=table)).location or "")


def dataset(ns: MemoryNamespace, table: list[str] = TABLE, **more: Any) -> lance.LanceDataset:
    """Open a table by its path."""
    return lance.dataset(str(directory(ns, table)), **more)


def append(ns: MemoryNamespace, table: list[str] = TABLE, value: int = 100) -> lance.LanceDataset:
    """Commit one more version, with one more row, by the path: as any Lance writer does."""
    return lance.write_dataset(pa.table({"a": [value]}), str(directory(ns, table)), mode="append")


def build(ns: MemoryNamespace, versions: int, table: list[str] = TABLE) -> None:
    """Create a table with this many versions, the first with three rows, each with one more."""
    create(ns, table)
    for number in range(2, versions + 1):
        append(ns, table, number)


def numbers(ns: MemoryNamespace, table: list[str] = TABLE, **more: Any) -> list[int]:
    """Return the numbers of a table's versions as the namespace lists them."""
    request = api.ListTableVersionsRequest(id=table, **more)
    return [each.version for each in ns.list_table_versions(request).versions]


def oracle(ns: MemoryNamespace, table: list[str] = TABLE) -> DirectoryNamespace:
    """Return pylance's own namespace over the same files; there, a table's id is its last name."""
    root = str(directory(ns, table).parent)
    return DirectoryNamespace(root=root)  # type: ignore[no-untyped-call]  # pylance gives it no types


def stage(ns: MemoryNamespace, table: list[str] = TABLE, value: int = 100) -> tuple[int, Path]:
    """Write what the next version would be, but its manifest under a name that is no version's.

    Returns:
        The version, and the path of the staged manifest.
    """
    place = directory(ns, table)
    copy = place.with_name(f"copy-{uuid.uuid4().hex}")
    shutil.copytree(place, copy)
    version = lance.write_dataset(pa.table({"a": [value]}), str(copy), mode="append").version
    name = f"{2**64 - 1 - version:020d}.manifest"
    staged = place / "_versions" / f"{name}-{uuid.uuid4()}"
    shutil.copy(copy / "_versions" / name, staged)
    for inside in ("data", "_transactions"):
        shutil.copytree(copy / inside, place / inside, dirs_exist_ok=True)
    shutil.rmtree(copy)
    return version, staged


def creation(
    table: list[str], version: int, staged: Path | str, **more: Any
) -> api.CreateTableVersionRequest:
    """Return a request to create a version, its path as pylance spells it."""
    return api.CreateTableVersionRequest(
        id=table, version=version, manifest_path=str(staged).lstrip("/"), **more
    )


# -- a vendor in memory ----------------------------------------------------------------------------


class NotedOptions(VendorOptions):
    """The options of a `NotedVendor`."""

    log: str = Field(description="Where it notes what it is asked for.")
    clock: float = Field(default=0.0, description="By how many seconds its clock is ahead.")


class NotedVendor(Vendor):
    """Makes numbered keys."""

    options_type = NotedOptions
    stores = frozenset({"s3"})
    options: NotedOptions
    _lock = threading.Lock()

    def vend(self, grant: Grant) -> Mapping[str, str]:
        """Return a key that names its number, its table and its right."""
        log = self.options.log
        with self._lock:
            ASKED[log].append(grant)
            number = len(ASKED[log])
        BEFORE.get(log, lambda: None)()
        right = "write" if grant.write else "read"
        options = {
            "aws_access_key_id": f"{number}-{grant.principal}-{right}",
            "aws_secret_access_key": "hidden",
        }
        now = time.time() + self.options.clock
        return expiring_options(options, now + self.options.duration_seconds)


def vendor_properties(log: str, **more: str) -> dict[str, str]:
    """Return the properties of a catalog whose credentials the vendor makes."""
    return {
        "credentials.vendor": VENDOR,
        "credentials.log": log,
        "credentials.allowed_roots": "s3://lake/tables",
        **more,
    }


def put(client: Client, name: str, location: str, **more: Any) -> None:
    """Have an entry at a location, as another client would."""
    properties = {"table_type": "lance", **more.pop("properties", {})}
    tables = server_of(client).tables
    tables[at(name)] = TableRecord(at(name), location, properties, identity=name, **more)


def connect(request: pytest.FixtureRequest, **properties: str) -> MemoryNamespace:
    return MemoryNamespace(uri=request.node.nodeid, **properties)


def described(namespace: MemoryNamespace, name: str = TABLE[-1], **more: Any) -> dict[str, str]:
    answer = namespace.describe_table(api.DescribeTableRequest(id=list(at(name)), **more))
    return answer.storage_options or {}
