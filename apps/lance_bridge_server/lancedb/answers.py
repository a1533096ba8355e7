"""Translates responses for LanceDB's client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance_namespace as api
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidTableStateError
from lance_namespace_urllib3_client.models import QueryTableRequestVector

from lance_bridge.errors import display

from .types import schema_to_json

Answer = dict[str, Any]


def translate_answer(namespace: LanceNamespace, operation: str, request: Any, answer: Any) -> Any:
    """Return a response's fields as the client expects them.

    Raises:
        InvalidTableStateError: (19) the described table has no data, and so lacks the version and
            the schema that the client needs.
    """
    if operation == "describe_table":
        return _translate_description(namespace, request, answer)
    translate = _ANSWERS.get(operation)
    return answer if translate is None else translate(answer)


def version_of(answer: Any) -> int | None:
    """Return the table's version in a response, if any."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, int) else None


def _translate_description(namespace: LanceNamespace, request: Any, answer: Answer) -> Answer:
    if answer.get("schema") is None:
        raise InvalidTableStateError(
            f"Table '{display(request.id)}' is declared, but has no data yet: create it with rows"
        )
    schema = _read_schema(namespace, request, answer["version"])
    return {**answer, "schema": schema_to_json(answer["schema"], schema)}


def _read_schema(namespace: LanceNamespace, request: Any, version: int) -> pa.Schema:
    """Return a table's schema, from a query without results, which any namespace supports."""
    query = api.QueryTableRequest(
        id=request.id,
        branch=request.branch,
        version=version,
        filter="false",
        k=1,
        vector=QueryTableRequestVector(single_vector=[]),
    )
    if hasattr(namespace, "query_table_reader"):
        schema: pa.Schema = namespace.query_table_reader(query).schema
        return schema
    found = namespace.query_table(query)
    data = found if isinstance(found, bytes) else found.data
    return pa.ipc.open_file(pa.py_buffer(data)).schema


def _translate_tags(answer: Answer) -> Answer:
    return {
        name: {"version": tag["version"], "manifestSize": tag.get("manifestSize", 0), **tag}
        for name, tag in answer["tags"].items()
    }


def _translate_merge(answer: Answer) -> Answer:
    counts = (answer.get(f"num_{name}_rows") or 0 for name in ("updated", "inserted"))
    return {**answer, "num_rows": sum(counts)}


_ANSWERS: dict[str, Callable[[Answer], Answer]] = {
    "list_table_tags": _translate_tags,
    "update_table": lambda answer: {**answer, "rows_updated": answer.get("updated_rows", 0)},
    "merge_insert_into_table": _translate_merge,
}
