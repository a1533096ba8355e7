"""Calls of a namespace's methods, with the rows of a request and of a result as streams."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.dataset import Rows
from lance_bridge.errors import invalid
from lance_bridge.requests import require_extensions
from lance_bridge_federated import FederatedNamespace

from ..access.permissions import catalog_of
from ..operations import Answer, Body, Operation
from . import directories
from .directories import directory_of
from .native_errors import NATIVE_ERRORS, readable_error
from .scans import with_first_batch
from .sql import check_request

Method = Callable[[LanceNamespace, Any], Any]
"""Runs a request on a namespace."""

_MOST_BYTES = 1 << 30
"""The most bytes of rows for a catalog that takes them in memory."""


def call_namespace(
    namespace: LanceNamespace,
    operation: Operation,
    arguments: list[Any],
    method: Method | None = None,
) -> Any:
    """Call the method of an operation, and return its result.

    Args:
        arguments: The request model, and rows as a file or as bytes.
        method: Replaces the namespace's own method.

    Raises what the namespace does, UnsupportedOperation (0) for fields that it does not have, and
    InvalidInput (13) for SQL that `sql` refuses.
    """
    if operation.is_query:
        check_request(arguments[0])
    require_extensions(namespace, arguments[0])
    try:
        return _call(namespace, operation, arguments, method)
    except (LanceNamespaceError, *NATIVE_ERRORS) as error:
        readable = readable_error(operation.name, error)
        if readable is error:
            raise
        raise readable from error


def _call(
    namespace: LanceNamespace, operation: Operation, arguments: list[Any], method: Method | None
) -> Any:
    if method is not None:
        return method(namespace, *arguments)
    if operation.body is Body.ROWS and not _streams_rows(namespace, arguments[0].id):
        arguments = [arguments[0], *map(_to_bytes, arguments[1:])]
    own = directories.METHODS.get(operation.name)
    if own is not None and (found := directory_of(namespace, arguments[0].id or ())):
        return own(namespace, found, *arguments)
    if operation.answer is Answer.ROWS and hasattr(namespace, "query_table_reader"):
        return with_first_batch(namespace.query_table_reader(*arguments))
    return getattr(namespace, operation.name)(*arguments)


def _streams_rows(namespace: LanceNamespace, id: list[str] | None) -> bool:
    """Return whether a catalog reads rows from a file; other libraries take bytes."""
    catalog, path = namespace, tuple(id or ())
    while isinstance(catalog, FederatedNamespace) and path:
        catalog, path = catalog_of(catalog, path), path[1:]
    return isinstance(catalog, (FederatedNamespace, LanceBridgeNamespace))


def _to_bytes(rows: Any) -> bytes:
    """Return rows as an Arrow IPC stream in memory, which other libraries need.

    They are read and written once more: on the bytes of a client these libraries panic, and they
    would take any memory for compressed ones.

    Raises:
        InvalidInputError: (13) there are too many rows, or they are not what Lance can store.
    """
    checked = Rows.from_data(rows)
    checked.require_storable()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, checked.schema) as writer, checked.reraise_source_error():
        for batch in checked.reader():
            writer.write_batch(batch)
            if sink.tell() > _MOST_BYTES:
                raise invalid(
                    f"This catalog takes at most {_MOST_BYTES >> 20} MiB of rows at once, without "
                    "compression: send them in several requests"
                )
    return sink.getvalue()
