"""The table that tests write, change and query: its rows, its dataset, and requests as keywords."""

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

from lance_bridge.testing.calls import Calls

from .memory_catalog import TABLE, Client, MemoryNamespace, server_of

ROWS = 300
DIMENSION = 16

# -- rows and writes -------------------------------------------------------------------------------


def typed_rows(count: int = ROWS) -> pa.Table:
    """Return rows of many types: numbers, text, nulls, vectors, lists, and a struct."""
    numbers = pa.array([((i * 37) % 101) / 101 for i in range(count * DIMENSION)], pa.float32())
    struct = pa.struct([("x", pa.int64()), ("a.b", pa.string()), ("c`d", pa.int32())])
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "text": [f"word{i % 7} and more" for i in range(count)],
            "odd": pa.array([None if i % 2 else i for i in range(count)], pa.int32()),
            "vector": pa.FixedSizeListArray.from_arrays(numbers, DIMENSION),
            "tags": [["a", f"t{i % 3}"] for i in range(count)],
            "st": pa.array([{"x": i, "a.b": str(i), "c`d": 1} for i in range(count)], struct),
        }
    )


def ipc(table: pa.Table, *, chunk: int | None = None) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def make(namespace: MemoryNamespace, table: pa.Table | None = None) -> None:
    """Create ``TABLE`` with data, which is that of `typed_rows` unless given."""
    data = ipc(typed_rows() if table is None else table)
    namespace.create_table(api.CreateTableRequest(id=TABLE), data)


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


# -- columns, metadata and indices -----------------------------------------------------------------


def last_transaction(ns: MemoryNamespace) -> str | None:
    """Return the identifier of the transaction that made the latest version."""
    found = dataset(ns)
    transaction = found.read_transaction(found.version)
    return None if transaction is None else transaction.uuid


def values(ns: MemoryNamespace, column: str) -> list[Any]:
    """Return a column's values, in order of ``id`` where there is one."""
    table = dataset(ns).to_table()
    return list((table.sort_by("id") if "id" in table.column_names else table)[column].to_pylist())


def add(ns: MemoryNamespace, *entries: dict[str, Any], **more: Any) -> Any:
    """Call AlterTableAddColumns."""
    return Calls(ns).call("alter_table_add_columns", TABLE, new_columns=entries, **more)


def alter(ns: MemoryNamespace, *entries: dict[str, Any], **more: Any) -> Any:
    """Call AlterTableAlterColumns."""
    return Calls(ns).call("alter_table_alter_columns", TABLE, alterations=entries, **more)


def drop(ns: MemoryNamespace, *columns: str, **more: Any) -> Any:
    """Call AlterTableDropColumns."""
    return Calls(ns).call("alter_table_drop_columns", TABLE, columns=columns, **more)


def backfill(ns: MemoryNamespace, column: str, **more: Any) -> Any:
    """Call AlterTableBackfillColumns and return the job's identifier."""
    return Calls(ns).call("alter_table_backfill_columns", TABLE, column=column, **more).job_id


def set_field_metadata(ns: MemoryNamespace, *entries: dict[str, Any], **more: Any) -> Any:
    """Call UpdateFieldMetadata."""
    return Calls(ns).call("update_field_metadata", TABLE, updates=entries, **more)


def build_index(ns: MemoryNamespace, column: str, index_type: str, **more: Any) -> Any:
    """Call CreateTableIndex."""
    fields = {"column": column, "index_type": index_type, **more}
    return Calls(ns).call("create_table_index", TABLE, **fields)


def list_indices(ns: MemoryNamespace, **more: Any) -> Any:
    """Call ListTableIndices."""
    return Calls(ns).call("list_table_indices", TABLE, **more)


# -- queries ---------------------------------------------------------------------------------------


def put(ns: MemoryNamespace, table: pa.Table, at: list[str] = TABLE) -> None:
    """Create a table with rows, or replace them."""
    ns.create_table(api.CreateTableRequest(id=at, mode="Overwrite"), ipc(table))


def request(at: list[str] = TABLE, k: int = 10, **options: Any) -> api.QueryTableRequest:
    """Return a query: ``vector`` is one vector, ``vectors`` several, ``columns`` names or aliases.

    ``text`` is a string query or a structured one.
    """
    given = {"vector": {"single_vector": options.pop("vector", None)}}
    if (several := options.pop("vectors", None)) is not None:
        given["vector"] = {"multi_vector": several}
    if (columns := options.pop("columns", None)) is not None:
        form = "column_aliases" if isinstance(columns, dict) else "column_names"
        options["columns"] = {form: columns}
    if (text := options.pop("text", None)) is not None:
        structured = {"structured_query": {"query": text}}
        options["full_text_query"] = (
            structured if isinstance(text, dict) else {"string_query": {"query": text}}
        )
    return api.QueryTableRequest.model_validate({"id": at, "k": k, **given, **options})


def answer(response: api.QueryTableResponse) -> pa.Table:
    """Return the rows in the Arrow IPC file of an answer."""
    return pa.ipc.open_file(response.data).read_all()


def ask(ns: api.LanceNamespace, at: list[str] = TABLE, k: int = 10, **options: Any) -> pa.Table:
    """Run a query and return its rows."""
    return answer(ns.query_table(request(at, k, **options)))


def vectors(rows: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of vectors of one length; None is a row without one."""
    dimension = len(next(row for row in rows if row is not None))
    of = kind or pa.float32()
    return pa.array([None if row is None else list(row) for row in rows], pa.list_(of, dimension))
