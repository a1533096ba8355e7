"""What the tests of update and delete share: a table, the requests, and a column of it."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pyarrow as pa

from .building import TABLE
from .memory_catalog import Client, MemoryNamespace
from .writing import rows

OLD = pa.table(
    {"id": [1, 2, 3], "n": [1, 0, None], "word": ["a", "b", "7"], "s": [{"x": 1}, {"x": 2}, None]}
)


def update(
    namespace: MemoryNamespace, *updates: tuple[str, str], **more: Any
) -> api.UpdateTableResponse:
    pairs = [list(pair) for pair in updates]
    return namespace.update_table(api.UpdateTableRequest(id=TABLE, updates=pairs, **more))


def delete(namespace: MemoryNamespace, predicate: str, **more: Any) -> api.DeleteFromTableResponse:
    request = api.DeleteFromTableRequest(id=TABLE, predicate=predicate, **more)
    return namespace.delete_from_table(request)


def column(client: Client, name: str) -> list[Any]:
    return [row[name] for row in sorted(rows(client), key=lambda row: row["id"])]
