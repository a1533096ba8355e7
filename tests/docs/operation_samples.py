"""One request of each operation inside a table: valid, and made to be varied."""

from __future__ import annotations

import shutil
import typing
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from core.memory_catalog import SERVERS, MemoryNamespace, MemoryServer
from lance_namespace import LanceNamespace
from pydantic import BaseModel

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.testing.calls import ipc

DATABASE = ["eu", "shop", "sales"]
TABLE = [*DATABASE, "orders"]
ROWS = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "price": [float(i) for i in range(8)],
        "text": [f"word{i} and more" for i in range(8)],
        "vector": pa.array([[float(i), 1.0] for i in range(8)], pa.list_(pa.float32(), 2)),
    }
)
COMPUTED, INDEX, TAG, BRANCH = "twice", "id_idx", "first", "dev"
"""What the table of `fill` has."""

_QUERY: dict[str, Any] = {"k": 3, "vector": {}, "filter": "id > 1"}
_NEXT = "the next version"
"""Stands for a version and the path of a manifest that is staged for it."""

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "new", "expression": "id + 1"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "price", "rename": "cost"}]},
    "alter_table_backfill_columns": {"column": COMPUTED},
    "alter_table_drop_columns": {"columns": ["price"]},
    "alter_transaction": {"actions": [{"set_status_action": {"status": "Succeeded"}}]},
    "analyze_table_query_plan": _QUERY,
    "batch_commit_tables": {_NEXT: "create_table_version"},
    "batch_create_table_versions": {_NEXT: "entries"},
    "batch_delete_table_versions": {"ranges": [{"start_version": 2, "end_version": 3}]},
    "count_table_rows": {"predicate": "id > 1"},
    "create_table_branch": {"name": "new"},
    "create_table_index": {"column": "price", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "price", "index_type": "BITMAP"},
    "create_table_tag": {"tag": "new", "version": 1},
    "create_table_version": {_NEXT: ""},
    "delete_from_table": {"predicate": "id = 1"},
    "delete_table_branch": {"name": BRANCH},
    "delete_table_tag": {"tag": TAG},
    "describe_table_index_stats": {"index_name": INDEX},
    "describe_table_version": {"version": 1},
    "describe_transaction": {},
    "drop_table_index": {"index_name": INDEX},
    "explain_table_query_plan": {"query": _QUERY},
    "get_table_stats": {},
    "get_table_tag_version": {"tag": TAG},
    "insert_into_table": {},
    "list_table_branches": {},
    "list_table_indices": {},
    "list_table_tags": {},
    "list_table_versions": {},
    "merge_insert_into_table": {"on": ["id"], "when_matched_update_all": True},
    "query_table": _QUERY,
    "restore_table": {"version": 1},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {"a": "b"}}]},
    "update_table": {"updates": [["price", "price + 1"]]},
    "update_table_schema_metadata": {"metadata": {"a": "b"}},
    "update_table_tag": {"tag": TAG, "version": 1},
}
"""By method: the fields of a request beside its identifier."""

TAKE_ROWS = ("insert_into_table", "merge_insert_into_table")
BATCHES = ("batch_commit_tables", "batch_create_table_versions")
TRANSACTIONS = ("alter_transaction", "describe_transaction")


def request_type(method: str) -> type[BaseModel]:
    """Return the type of a method's request, as the interface declares it."""
    hints = typing.get_type_hints(getattr(LanceNamespace, method))
    found: type[BaseModel] = hints["request"]
    return found


def new_namespace(root: Path) -> tuple[MemoryNamespace, MemoryServer]:
    """Return a namespace over an empty catalog of its own, and that catalog."""
    name = f"docs-{uuid.uuid4()}"
    server = SERVERS[name] = MemoryServer()
    for depth in range(1, len(DATABASE) + 1):
        path = tuple(DATABASE[:depth])
        server.namespaces[path] = NamespaceRecord(path)
    return MemoryNamespace(uri=name, root=str(root)), server


def fill(ns: api.LanceNamespace, table: Sequence[str] = TABLE) -> None:
    """Create a table with three versions, an index, a computed column, a tag and a branch."""
    named = list(table)
    ns.create_table(api.CreateTableRequest(id=named), ipc(ROWS))
    call(ns, "alter_table_add_columns", named, new_columns=[{"name": COMPUTED, "computed": "id*2"}])
    call(ns, "create_table_index", named, column="id", name=None)
    call(ns, "create_table_tag", named, tag=TAG)
    call(ns, "create_table_branch", named, name=BRANCH)


def call(
    ns: Any, method: str, table: Sequence[str] = TABLE, rows: Any = None, **fields: Any
) -> Any:
    """Call an operation with its request, in which ``fields`` are added or replaced."""
    wanted = {**FIELDS[method], **fields}
    if method in BATCHES or method == "create_table_version":
        body = _creation(method, wanted, table)
    elif method in TRANSACTIONS:
        body = {"id": [*table, "1"] if table else [], **wanted}
    else:
        body = {"id": list(table), **wanted}
    request = request_type(method).model_validate(body)
    data = (rows if rows is not None else ipc(ROWS),) if method in TAKE_ROWS else ()
    return getattr(ns, method)(request, *data)


def stage(place: Path) -> dict[str, Any]:
    """Stage the manifest of a table's next version; return the fields that name it."""
    copy = place.with_name(f"copy-{uuid.uuid4().hex}")
    shutil.copytree(place, copy)
    version = int(lance.dataset(str(copy)).latest_version) + 1
    lance.dataset(str(copy), version=1).restore()  # type: ignore[no-untyped-call]  # pylance's
    name = f"{2**64 - 1 - version:020d}.manifest"
    staged = place / "_versions" / f"{name}-{uuid.uuid4()}"
    shutil.copy(copy / "_versions" / name, staged)
    shutil.copytree(copy / "_transactions", place / "_transactions", dirs_exist_ok=True)
    shutil.rmtree(copy)
    return {"version": version, "manifest_path": str(staged).lstrip("/")}


def _creation(method: str, wanted: dict[str, Any], table: Sequence[str]) -> dict[str, Any]:
    kind = wanted.pop(_NEXT)
    one = {"id": list(table), "version": 4, "manifest_path": "nowhere", **wanted}
    if method == "create_table_version":
        return one
    return {"entries": [one]} if kind == "entries" else {"operations": [{kind: one}]}
