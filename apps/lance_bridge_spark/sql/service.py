"""The calls of the SQL catalog: by name, with JSON arguments, and byte strings for some."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException

from lance_bridge.errors import LanceNamespaceError, invalid, panics_as_errors

from ..addresses import CatalogAddress
from ..redaction import redact_logs
from ..source.worker_calls import error_fields
from . import changes, namespaces, new_tables, planning, tables

Answer = dict[str, Any]
Parts = list[bytes]

logger = logging.getLogger(__name__)

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
    "fragments": tables.fragments,
    "alter_table": changes.alter,
    "stage_create": new_tables.create,
    "stage_replace": new_tables.replace,
    "commit_staged": new_tables.commit,
    "abort_staged": new_tables.abort,
}


_WITH_PARTS: Mapping[
    str, Callable[[CatalogAddress, Mapping[str, Any], Sequence[bytes]], tuple[Answer, Parts]]
] = {
    "plan_read": planning.read,
    "plan_write": planning.write,
    "commit_write": planning.commit,
    "abort_write": planning.abort,
}


def respond(call: Mapping[str, Any], parts: Sequence[bytes]) -> tuple[Answer, Parts]:
    """Carry out a call of the SQL catalog, and return its response.

    Args:
        call: ``{op, args, catalog: {name, properties}}``
        parts: The byte strings of the call.

    Returns:
        ``{answer}`` or ``{error: {code, message}}``, and the byte strings of the response.
    """
    redact_logs()
    op, args, fields = call["op"], call["args"], call["catalog"]
    try:
        with panics_as_errors():
            catalog = CatalogAddress(fields["name"], fields["properties"])
            if op in _WITH_PARTS:
                answered, found = _WITH_PARTS[op](catalog, args, parts)
                return {"answer": answered}, found
            return {"answer": _operation(op)(catalog, args)}, []
    except (LanceNamespaceError, PySparkException) as error:
        return error_fields(error), []
    except Exception as error:
        logger.exception("Call %s failed", op)
        return error_fields(error), []


def _operation(op: str) -> Callable[[CatalogAddress, Mapping[str, Any]], Answer]:
    if op not in _OPERATIONS:
        raise invalid(f"The SQL catalog has no operation '{op}': the jar is of another version")
    return _OPERATIONS[op]
