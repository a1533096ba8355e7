"""What the tests of merging share: its usual request, and how to read the answer."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pyarrow as pa

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .writing import ipc

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("w", pa.int64())])
OLD = pa.table({"k": [1, 2, None], "j": ["a", "b", "c"], "w": [1, 2, 3]}, schema=SCHEMA)


def merge(namespace: MemoryNamespace, data: Any, **more: Any) -> api.MergeInsertIntoTableResponse:
    """Merge into ``TABLE``, by ``k`` where nothing else is said."""
    data = ipc(data) if isinstance(data, pa.Table) else data
    request = api.MergeInsertIntoTableRequest(id=TABLE, **{"on": ["k"], **more})
    return namespace.merge_insert_into_table(request, data)


def counts(answer: api.MergeInsertIntoTableResponse) -> tuple[int | None, ...]:
    """Return how many rows were updated, inserted and deleted."""
    return answer.num_updated_rows, answer.num_inserted_rows, answer.num_deleted_rows
