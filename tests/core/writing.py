"""What the tests of writing share: making a table with data, and reading what it holds after."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import LanceNamespaceError

from .building import TABLE
from .memory_catalog import Client, MemoryNamespace, server_of


def ipc(table: pa.Table, *, chunk: int | None = None) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def make(namespace: MemoryNamespace, table: pa.Table) -> None:
    """Create ``TABLE`` with data."""
    namespace.create_table(api.CreateTableRequest(id=TABLE), ipc(table))


def create(namespace: MemoryNamespace, data: Any) -> None:
    """Create ``TABLE`` with rows of any form, and so do the others below write them."""
    namespace.create_table(api.CreateTableRequest(id=TABLE), data)


def overwrite(namespace: MemoryNamespace, data: Any) -> None:
    namespace.create_table(api.CreateTableRequest(id=TABLE, mode="Overwrite"), data)


def insert(namespace: MemoryNamespace, data: Any, mode: str = "Append") -> None:
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, mode=mode), data)


def merge(namespace: MemoryNamespace, data: Any, on: str = "id") -> None:
    """Merge new rows into ``TABLE``."""
    request = api.MergeInsertIntoTableRequest(id=TABLE, on=[on], when_not_matched_insert_all=True)
    namespace.merge_insert_into_table(request, data)


def place(client: Client) -> str:
    """Return where ``TABLE`` is."""
    return (server_of(client).tables[tuple(TABLE)].location or "").removeprefix("file://")


def directory(root: Path) -> api.LanceNamespace:
    """Return pylance's own namespace."""
    return api.connect("dir", {"root": str(root)})


def dataset(client: Client, branch: str | None = None) -> lance.LanceDataset:
    """Return the latest version of ``TABLE``, past the namespace."""
    found = lance.dataset(place(client))
    return found if branch is None else found.checkout_version((branch, None))


def rows(client: Client, branch: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of ``TABLE``, in no order that matters."""
    return sorted(dataset(client, branch).to_table().to_pylist(), key=repr)


@contextmanager
def unchanged(
    client: Client, error: type[LanceNamespaceError], match: str | None = None
) -> Iterator[None]:
    """Require an error, and that ``TABLE`` and the catalog are as they were."""
    before = dataset(client).version, rows(client), list(server_of(client).effects)
    with pytest.raises(error, match=match) as caught:
        yield
    assert type(caught.value) is error
    assert not re.search(r"/home/|/rustc/|\.rs:\d", str(caught.value))
    assert (dataset(client).version, rows(client), list(server_of(client).effects)) == before
