"""A valid request for each operation of the gateway, on any object."""

from __future__ import annotations

from typing import Any

from server.http_requests import ARROW, one_row

from lance_bridge_server.operations import Body, Operation

_QUERY = {"k": 1, "vector": {"single_vector": [1.0]}}
_STAGED = {"version": 1, "manifest_path": "_versions/1.manifest-x"}
_INDEX = {"column": "id", "index_type": "BTREE"}

_BODIES: dict[str, Any] = {
    "register_table": {"location": "/nowhere/t.lance"},
    "restore_table": {"version": 1},
    "rename_table": {"new_table_name": "renamed"},
    "update_field_metadata": {"updates": [{"path": "id", "metadata": {}}]},
    "create_table_version": _STAGED,
    "describe_table_version": {"version": 1},
    "batch_delete_table_versions": {"ranges": [{"start_version": 1, "end_version": 2}]},
    "alter_table_add_columns": {"new_columns": [{"name": "x", "expression": "1"}]},
    "alter_table_alter_columns": {"alterations": [{"path": "id", "rename": "x"}]},
    "alter_table_drop_columns": {"columns": ["id"]},
    "alter_table_backfill_columns": {"column": "id"},
    "update_table": {"updates": [["id", "1"]]},
    "delete_from_table": {"predicate": "true"},
    "query_table": _QUERY,
    "explain_table_query_plan": {"query": _QUERY},
    "analyze_table_query_plan": _QUERY,
    "create_table_index": _INDEX,
    "create_table_scalar_index": _INDEX,
    "get_table_tag_version": {"tag": "v"},
    "create_table_tag": {"tag": "v", "version": 1},
    "update_table_tag": {"tag": "v", "version": 1},
    "delete_table_tag": {"tag": "v"},
    "create_table_branch": {"name": "b"},
    "delete_table_branch": {"name": "b"},
    "create_materialized_view": {"kind": "query", "source_query": "q", "output_schema": "s"},
    "alter_transaction": {"actions": [{"set_status_action": {"status": "Succeeded"}}]},
}


def request_for(operation: Operation, path: list[str]) -> dict[str, Any]:
    """Return the arguments of an HTTP request, as httpx takes them.

    Args:
        path: The table, or the namespace for an operation on namespaces.
    """
    name = operation.name
    names = [*path, "1"] if name.endswith("_transaction") else path
    url = operation.path.replace("{id}", "%24".join(names) or "%24")
    request: dict[str, Any] = {
        "method": operation.method,
        "path": url.replace("{index_name}", "i"),
    }
    if name == "batch_create_table_versions":
        return {**request, "json": {"entries": [{"id": path, **_STAGED}]}}
    if name == "batch_commit_tables":
        return {**request, "json": {"operations": [{"deregister_table": {"id": path}}]}}
    if operation.body is Body.ROWS:
        more = {"params": {"on": "id"}} if name.startswith("merge") else {}
        return {**request, "content": one_row(), "headers": {"Content-Type": ARROW}, **more}
    if operation.body in (Body.JSON, Body.METADATA):
        request["json"] = _BODIES.get(name, {})
    return request
