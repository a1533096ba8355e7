"""What the versions of a table changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace.errors import TableVersionNotFoundError
from server.policies import memory_namespace

from lance_bridge.credentials import Caller, acting_for
from lance_bridge.dataset import change_of_version
from lance_bridge.testing.build import ipc

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#versions-on-a-page")]

TABLE = ["db", "t"]


def _rows(start: int, end: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64()), "v": ["a"] * (end - start)})


@pytest.fixture
def namespace(tmp_path: Path) -> MemoryNamespace:
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(api.CreateNamespaceRequest(id=TABLE[:1]))
    return namespace


def _changes(namespace: Any, *versions: int, branch: str | None = None) -> list[Any]:
    table = namespace.tables.load_by_id(TABLE)
    found = [change_of_version(table, each, branch) for each in versions]
    return [(each.operation, each.added, each.removed) for each in found]


def _dataset(namespace: Any) -> lance.LanceDataset:
    return lance.dataset(namespace_client=namespace, table_id=TABLE)


def test_rows_added_and_removed_are_apart(namespace: Any) -> None:
    client = {"namespace_client": namespace, "table_id": TABLE}
    lance.write_dataset(_rows(0, 100), **client)
    lance.write_dataset(_rows(100, 120), mode="append", **client)
    _dataset(namespace).delete("id < 5")
    _dataset(namespace).update({"v": "'b'"}, where="id >= 50 AND id < 60")
    merge = _dataset(namespace).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(_rows(110, 130))
    _dataset(namespace).optimize.compact_files()
    lance.write_dataset(_rows(0, 7), mode="overwrite", **client)
    latest = _dataset(namespace).version
    assert _changes(namespace, *range(1, 6), latest - 1, latest) == [
        ("Overwrite", 100, 0),
        ("Append", 20, 0),
        ("Delete", 0, 5),
        ("Update", 10, 10),
        ("Update", 20, 10),
        ("Rewrite", 0, 0),
        ("Overwrite", 7, 125),
    ]


def test_a_version_without_the_one_before_has_no_numbers(namespace: Any) -> None:
    client = {"namespace_client": namespace, "table_id": TABLE}
    for start in range(3):
        lance.write_dataset(_rows(start, start + 1), mode="append" if start else "create", **client)
    _dataset(namespace).cleanup_old_versions(retain_versions=2)
    assert _changes(namespace, 2, 3) == [("Append", None, None), ("Append", 1, 0)]
    with pytest.raises(TableVersionNotFoundError):
        _changes(namespace, 1)


def test_branches_have_changes_of_their_own(namespace: Any) -> None:
    lance.write_dataset(_rows(0, 9), namespace_client=namespace, table_id=TABLE)
    namespace.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    request = api.InsertIntoTableRequest(id=TABLE, branch="b")
    namespace.insert_into_table(request, ipc(_rows(9, 12)))
    assert _changes(namespace, 1, 2, branch="b") == [("Clone", 0, 0), ("Append", 3, 0)]


def test_rows_that_are_written_for_a_caller_are_recorded_as_its(namespace: Any) -> None:
    with acting_for(Caller("ann", lambda _write: True)):
        namespace.create_table(api.CreateTableRequest(id=TABLE), ipc(_rows(0, 3)))
        namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), ipc(_rows(3, 5)))
        request = api.CreateTableRequest(id=TABLE, mode="Overwrite")
        namespace.create_table(request, ipc(_rows(0, 2)))
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), ipc(_rows(2, 3)))
    table = namespace.tables.load_by_id(TABLE)
    found = [dict(change_of_version(table, each).properties) for each in range(1, 5)]
    assert found == [{"lance_bridge.principal": "ann"}] * 3 + [{}]
