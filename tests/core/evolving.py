"""What the tests of columns, metadata and indices share: a table, its dataset, short requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa

from lance_bridge.testing.calls import Calls

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .writing import ipc

ROWS = 300
DIMENSION = 16


def rows(count: int = ROWS) -> pa.Table:
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


def create_table(ns: MemoryNamespace, table: pa.Table | None = None) -> None:
    """Create the table ``TABLE``."""
    table = rows() if table is None else table
    ns.create_table(api.CreateTableRequest(id=TABLE), ipc(table))


def dataset(ns: MemoryNamespace, branch: str | None = None) -> lance.LanceDataset:
    """Open the dataset of ``TABLE`` as another client would, by its path."""
    location = ns.describe_table(api.DescribeTableRequest(id=TABLE)).location
    assert location is not None
    found = lance.dataset(str(Path(location)))
    return found if branch is None else found.checkout_version((branch, None))


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
