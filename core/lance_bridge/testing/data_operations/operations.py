"""One good request for every operation inside a table, to be sent with any identifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lance_namespace import ErrorCode

from ..calls import Calls, Id, request_model
from .items import items

Call = Callable[[Calls, Id, Mapping[str, Any]], object]

_STAGED = {"version": 2, "manifest_path": "no/such/manifest"}
_QUERY: dict[str, Any] = {"k": 10, "vector": {}}
_RANGES = [{"start_version": 1, "end_version": 2}]
_PLAIN: dict[str, dict[str, Any]] = {
    "alter_table_add_columns": {"new_columns": [{"name": "twice", "expression": "id * 2"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "word", "rename": "noun"}]},
    "alter_table_backfill_columns": {"column": "word"},
    "alter_table_drop_columns": {"columns": ["word"]},
    "analyze_table_query_plan": _QUERY,
    "batch_delete_table_versions": {"ranges": _RANGES},
    "count_table_rows": {},
    "create_table_branch": {"name": "twig"},
    "create_table_index": {"column": "id", "index_type": "BTREE"},
    "create_table_scalar_index": {"column": "id", "index_type": "BTREE"},
    "create_table_tag": {"tag": "mark", "version": 1},
    "create_table_version": _STAGED,
    "delete_from_table": {"predicate": "id = 0"},
    "delete_table_branch": {"name": "dev"},
    "delete_table_tag": {"tag": "first"},
    "describe_table_index_stats": {"index_name": "id_idx"},
    "describe_table_version": {},
    "drop_table_index": {"index_name": "id_idx"},
    "explain_table_query_plan": {"query": _QUERY},
    "get_table_stats": {},
    "get_table_tag_version": {"tag": "first"},
    "list_table_branches": {},
    "list_table_indices": {},
    "list_table_tags": {},
    "list_table_versions": {},
    "query_table": _QUERY,
    "restore_table": {"version": 1},
    "update_field_metadata": {"updates": [{"path": "word", "metadata": {"unit": "m"}}]},
    "update_table": {"updates": [["word", "'new'"]]},
    "update_table_schema_metadata": {"metadata": {"author": "Ines"}},
    "update_table_tag": {"tag": "first", "version": 1},
}
_WITH_ROWS: dict[str, dict[str, Any]] = {
    "insert_into_table": {},
    "merge_insert_into_table": {
        "on": ["id"],
        "when_matched_update_all": True,
        "when_not_matched_insert_all": True,
    },
}


def _plain(name: str) -> Call:
    fields = _PLAIN[name]
    return lambda calls, id, more: calls.call(name, id, **{**fields, **more})


def _with_rows(name: str) -> Call:
    fields = _WITH_ROWS[name]
    return lambda calls, id, more: calls.call(name, id, items(range(2)), **{**fields, **more})


def _of_a_transaction(calls: Calls, id: Id, more: Mapping[str, Any]) -> object:
    return calls.call("describe_transaction", _below(id), **more)


def _altering_one(calls: Calls, id: Id, more: Mapping[str, Any]) -> object:
    actions = [{"setStatusAction": {"status": "Succeeded"}}]
    return calls.call("alter_transaction", _below(id), actions=actions, **more)


def _below(id: Id) -> Id:
    """Return the identifier of a table's first transaction."""
    return [*id, "1"] if id else id


def _batch_of_versions(calls: Calls, id: Id, more: Mapping[str, Any]) -> object:
    return calls.call("batch_create_table_versions", None, entries=[_entry(id, more)])


def _batch_of_operations(calls: Calls, id: Id, more: Mapping[str, Any]) -> object:
    operations = [{"create_table_version": _entry(id, more)}]
    return calls.call("batch_commit_tables", None, operations=operations)


def _entry(id: Id, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": list(id or []), **_STAGED, **more}


INSIDE: Mapping[str, Call] = {
    **{name: _plain(name) for name in _PLAIN},
    **{name: _with_rows(name) for name in _WITH_ROWS},
    "describe_transaction": _of_a_transaction,
    "alter_transaction": _altering_one,
    "batch_create_table_versions": _batch_of_versions,
    "batch_commit_tables": _batch_of_operations,
}
"""Operation to a call with an identifier and further fields of its request. The table is one of
`make_table`'s, with an index ``id_idx``, the tag ``first`` and the branch ``dev`` where an
operation wants one."""

NOT_FOUND_ON_DECLARED: Mapping[str, ErrorCode] = {
    "create_table_tag": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "delete_table_tag": ErrorCode.TABLE_TAG_NOT_FOUND,
    "describe_table_version": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "get_table_tag_version": ErrorCode.TABLE_TAG_NOT_FOUND,
    "restore_table": ErrorCode.TABLE_VERSION_NOT_FOUND,
    "update_table_tag": ErrorCode.TABLE_TAG_NOT_FOUND,
}
"""Operations that may say of a declared table that what they are about is not there."""

LENIENT_ON_DECLARED: frozenset[str] = frozenset(
    {
        # There is nothing to answer with, or to delete.
        "batch_delete_table_versions",
        "list_table_branches",
        "list_table_tags",
        "list_table_versions",
        # What writes first makes it a table.
        "batch_commit_tables",
        "batch_create_table_versions",
        "create_table_version",
        "insert_into_table",
        "merge_insert_into_table",
    }
)
"""Operations that a declared table need not refuse."""


def has_field(operation: str, field: str) -> bool:
    """Return whether the request of an operation has a field."""
    return field in request_model(operation).model_fields


BRANCHED: tuple[str, ...] = tuple(name for name in sorted(INSIDE) if has_field(name, "branch"))
"""The operations that can be about a branch, of those whose request is one table's."""
