"""Tables over the catalog in memory: names, requests, versions, staged manifests, and a vendor."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import LanceNamespaceError
from pydantic import Field

from lance_bridge.catalog import Capabilities, NamespaceRecord, TableRecord
from lance_bridge.credentials import Grant, Vendor, VendorOptions, expiring_options
from lance_bridge.testing.calls import ipc

from .memory_catalog import (
    CAPABILITIES,
    SERVERS,
    Client,
    MemoryNamespace,
    MemoryServer,
    Moment,
    server_of,
)

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
