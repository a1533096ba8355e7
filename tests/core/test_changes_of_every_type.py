"""Rows with every type of Arrow and Lance keep their values in every change of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from arrow_types import SHAPES, plain, wide
from lance_namespace.errors import TableSchemaValidationError, UnsupportedOperationError

from .building import TABLE
from .memory_catalog import MemoryNamespace, MemoryServer
from .table_data import dataset, make

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#insertintotable", "operations.md#mergeinsertintotable"),
]

NOT_REPLACED = "blob_by_metadata_in_a_list"
"""A column of which Lance takes no other rows in place of all."""
Change = Callable[[MemoryNamespace, pa.Table], Any]


def _insert(namespace: MemoryNamespace, rows: pa.Table, mode: str = "append") -> Any:
    return namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, mode=mode), rows)


def _merge(namespace: MemoryNamespace, rows: pa.Table, **more: Any) -> Any:
    request = api.MergeInsertIntoTableRequest(
        id=TABLE, on=["id"], when_matched_update_all=True, **more
    )
    return namespace.merge_insert_into_table(request, rows)


def _delete(namespace: MemoryNamespace, predicate: str) -> Any:
    return namespace.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate=predicate))


def _update(namespace: MemoryNamespace, *updates: list[str]) -> Any:
    return namespace.update_table(api.UpdateTableRequest(id=TABLE, updates=list(updates)))


def _overwrite(namespace: MemoryNamespace, rows: pa.Table) -> None:
    if NOT_REPLACED in rows.schema.names:
        with pytest.raises(TableSchemaValidationError, match=r"`blob_by_metadata_in_a_list`"):
            _insert(namespace, rows, "overwrite")
        rows = rows.drop_columns([NOT_REPLACED])
        request = api.AlterTableDropColumnsRequest(id=TABLE, columns=[NOT_REPLACED])
        namespace.alter_table_drop_columns(request)
    _insert(namespace, rows, "overwrite")


def _insert_twice(namespace: MemoryNamespace, rows: pa.Table) -> None:
    _insert(namespace, rows)
    _delete(namespace, "true")
    _insert(namespace, rows)


def _merge_nothing(namespace: MemoryNamespace, rows: pa.Table) -> None:
    _delete(namespace, "true")
    _merge(namespace, rows)
    _insert(namespace, rows)


def _update_several(namespace: MemoryNamespace, _: pa.Table) -> None:
    _update(namespace, ["n", "1"], ["id", "id"])
    with pytest.raises(UnsupportedOperationError, match="Update them one by one"):
        _update(namespace, ["n", "id + 1"], ["id", "id"])


CHANGES: dict[str, Change] = {
    "insert": _insert_twice,
    "overwrite": _overwrite,
    "update": lambda ns, _: _update(ns, ["n", "n"]),
    "update of several": _update_several,
    "delete": lambda ns, _: _delete(ns, "id < 0"),
    "merge": lambda ns, rows: _merge(ns, rows, when_not_matched_insert_all=True),
    "merge into nothing": _merge_nothing,
    "merge of some columns": lambda ns, rows: _merge(ns, rows.select(["id", "n"])),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_keeps_the_values_of_every_type(
    namespace: MemoryNamespace, server: MemoryServer, change: str, shape: str
) -> None:
    rows = wide([shape])
    make(namespace, rows)
    assert differing(rows, server) == {}
    CHANGES[change](namespace, rows)
    assert differing(rows, server) == {}


def differing(expected: pa.Table, server: MemoryServer) -> dict[str, str]:
    """Return the columns of the table whose values differ from the expected ones."""
    found = dataset(server).to_table(blob_handling="all_binary").sort_by("id")
    pairs = {name: (plain(expected[name]), plain(found[name])) for name in found.schema.names}
    assert set(expected.schema.names) - set(pairs) <= {NOT_REPLACED}
    return {name: f"{one} != {other}"[:500] for name, (one, other) in pairs.items() if one != other}
