"""What the tests over the catalog in memory share: names, data, and the two usual requests."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import lance_namespace as api
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.catalog import Capabilities, NamespaceRecord

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
    table = pa.table({"a": list(range(rows))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def create(
    ns: MemoryNamespace, table: list[str], rows: int = 3, **more: Any
) -> api.CreateTableResponse:
    """Create a table with data."""
    return ns.create_table(api.CreateTableRequest(id=table, **more), stream(rows))


def count_rows(ns: MemoryNamespace, table: list[str]) -> int | None:
    """Return the number of rows of a table."""
    return ns.count_table_rows(api.CountTableRowsRequest(id=table)).count


def raising(error: BaseException) -> Callable[..., Any]:
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
