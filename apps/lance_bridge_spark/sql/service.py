"""One question of Spark's driver in, one answer out; both are JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lance_bridge.errors import LanceNamespaceError, invalid

from ..addresses import CatalogAddress
from . import changes, namespaces, staging, tables

Answer = dict[str, Any]

_OPERATIONS: Mapping[str, Callable[[CatalogAddress, Mapping[str, Any]], Answer]] = {
    "list_namespaces": namespaces.list_children,
    "load_namespace": namespaces.load,
    "create_namespace": namespaces.create,
    "alter_namespace": namespaces.alter,
    "drop_namespace": namespaces.drop,
    "list_tables": tables.list_names,
    "table_exists": tables.exists,
    "load_table": tables.load,
    "create_table": tables.create,
    "drop_table": tables.drop,
    "rename_table": tables.rename,
    "truncate": tables.truncate,
    "delete_where": tables.delete_where,
    "count": tables.count,
    "fragments": tables.fragments,
    "alter_table": changes.alter,
    "stage_create": staging.create,
    "stage_replace": staging.replace,
    "commit_staged": staging.commit,
    "abort_staged": staging.abort,
}


def answer(op: str, args: Mapping[str, Any], catalog: CatalogAddress) -> Answer:
    """Answer one call of the SQL catalog.

    Args:
        op: The name of an operation.
        args: What it takes; see the operation's function.
        catalog: The catalog of the session that is asked.

    Returns:
        What JSON can hold. An error of the namespace's protocol is an answer, too:
        ``{"error": {"code": 4, "message": "…"}}``.
    """
    try:
        operation = _OPERATIONS.get(op)
        if operation is None:
            raise invalid(f"The SQL catalog has no operation '{op}': the jar is of another version")
        return operation(catalog, args)
    except LanceNamespaceError as error:
        return {"error": {"code": int(error.code), "message": str(error)}}
