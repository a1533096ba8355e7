"""What LanceDB's remote clients send and expect, where it is not as the specification says.

Source: the remote client of LanceDB 0.40 and 0.41, read and recorded. Each function translates one
difference; requests of other clients pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_namespace.errors import ErrorCode

from lance_bridge.errors import unsupported

DATABASE_HEADER = "x-lancedb-database"
VERSION_HEADER = "phalanx-version"
VERSION = "0.3.0"
"""The protocol's version that the answers state: several vectors and structured full-text queries,
but no upload in parts (0.4)."""

_AGENTS = ("lancedb-",)
_MAX_K = 2**63 - 1

_RETRIED = {ErrorCode(code) for code in (2, 3, 5, 7, 9, 19, 23)}
"""Errors of the caller's that have status 409 by the specification, which the client retries."""


def is_lancedb(headers: Mapping[str, str]) -> bool:
    """Return whether a request is of LanceDB's remote client."""
    agent = headers.get("user-agent", "").lower()
    return DATABASE_HEADER in headers or agent.startswith(_AGENTS)


def status_of(code: ErrorCode) -> int | None:
    """Return the status for an error where the client would retry that of the specification."""
    return 400 if code in _RETRIED else None


def translate_request(operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a request's fields as the specification has them.

    Raises:
        UnsupportedOperationError: (0) it asks for what the specification has no field for.
    """
    translate = _REQUESTS.get(operation)
    return fields if translate is None else translate(dict(fields))


def translate_answer(operation: str, answer: Any) -> Any:
    """Return an answer's fields as the client expects them."""
    translate = _ANSWERS.get(operation)
    return answer if translate is None else translate(answer)


def in_database(prefix: list[str], operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a request's fields with its identifiers below a database.

    Args:
        prefix: The names of the database's namespace.
    """
    fields = {**fields, "id": [*prefix, *(fields.get("id") or ())]}
    if operation == "rename_table" and fields.get("new_namespace_id") is not None:
        fields["new_namespace_id"] = [*prefix, *fields["new_namespace_id"]]
    return fields


# -- requests --------------------------------------------------------------------------------------


def _query(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("order_by"):
        raise unsupported("order_by is not supported; sort the rows that the query returns")
    fields["vector"] = _vector(fields.get("vector"))
    columns, text = fields.get("columns"), fields.get("full_text_query")
    if isinstance(columns, list):
        fields["columns"] = {"column_names": columns}
    elif isinstance(columns, dict) and not columns.keys() & {"column_names", "column_aliases"}:
        fields["columns"] = {"column_aliases": columns}
    if isinstance(text, dict) and "query" in text:
        fields["full_text_query"] = _full_text(text)
    if fields.get("minimum_nprobes") is not None:
        fields.pop("nprobes", None)
    if not fields.get("maximum_nprobes"):  # 0 is no limit
        fields.pop("maximum_nprobes", None)
    return fields


def _vector(vector: Any) -> dict[str, Any]:
    if isinstance(vector, dict):
        return vector
    vector = vector or []
    is_multiple = bool(vector) and isinstance(vector[0], list)
    return {"multi_vector": vector} if is_multiple else {"single_vector": vector}


def _full_text(text: dict[str, Any]) -> dict[str, Any]:
    if isinstance(text["query"], dict):
        return {"structured_query": {"query": text["query"]}}
    return {"string_query": {"query": text["query"], "columns": text.get("columns") or None}}


def _plan(fields: dict[str, Any]) -> dict[str, Any]:
    if isinstance(fields.get("query"), dict):
        fields["query"] = _query(dict(fields["query"]))
    return fields


def _rename(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("new_namespace") is not None:
        fields.setdefault("new_namespace_id", fields["new_namespace"])
    return fields


def _describe(fields: dict[str, Any]) -> dict[str, Any]:
    fields["load_detailed_metadata"] = True
    return fields


_REQUESTS = {
    "query_table": _query,
    "analyze_table_query_plan": _query,
    "explain_table_query_plan": _plan,
    "rename_table": _rename,
    "describe_table": _describe,
}

# -- answers ---------------------------------------------------------------------------------------

_TYPES = {
    "utf8": "string",
    "large_utf8": "large_string",
    "boolean": "bool",
    "float16": "halffloat",
    "float32": "float",
    "float64": "double",
    "date32": "date32:day",
    "date64": "date64:ms",
}
"""Names of types: the specification's, and Lance's own, which the client reads."""


def _described(answer: dict[str, Any]) -> dict[str, Any]:
    schema = answer.get("schema")
    if schema:
        answer["schema"] = {**schema, "fields": [_field(each) for each in schema["fields"]]}
    return answer


def _field(field: dict[str, Any]) -> dict[str, Any]:
    return {**field, "type": _type(field["type"])}


def _type(type_: dict[str, Any]) -> dict[str, Any]:
    found = {**type_, "type": _TYPES.get(type_["type"], type_["type"])}
    if found.get("fields"):
        found["fields"] = [_field(each) for each in found["fields"]]
    return found


def _updated(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "rows_updated": answer.get("updated_rows", 0)}


_ANSWERS = {
    "describe_table": _described,
    "list_table_tags": lambda answer: {
        name: {"version": tag["version"], "manifestSize": tag.get("manifestSize", 0), **tag}
        for name, tag in answer["tags"].items()
    },
    "update_table": _updated,
}
