"""Translates requests of LanceDB's client to the specification's."""

from __future__ import annotations

from typing import Any

from lance_bridge.errors import invalid, unsupported
from lance_bridge.extended_requests import ExtendedIndexRequest

from .types import type_from_json

Fields = dict[str, Any]

_MOST_ROWS = 2**31 - 1
"""The largest k in the specification, an int32."""


def translate_request(operation: str, fields: Fields) -> Fields:
    """Return a request's fields as in the specification.

    Raises:
        InvalidInputError: (13) it is malformed.
        UnsupportedOperationError: (0) the specification has no field for one of its options.
    """
    translate = _REQUESTS.get(operation)
    return fields if translate is None else translate(dict(fields))


# -- queries ---------------------------------------------------------------------------------------


def _query(fields: Fields) -> Fields:
    if fields.get("approx_mode"):
        raise unsupported("approx_mode is not supported; leave it out")
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
    if isinstance(fields.get("k"), int):  # without a limit, the client sends a maximum beyond int32
        fields["k"] = min(fields["k"], _MOST_ROWS)
    if not fields.get("maximum_nprobes"):  # 0 is no limit
        fields.pop("maximum_nprobes", None)
    return fields


def _vector(vector: Any) -> dict[str, Any]:
    if isinstance(vector, dict):
        return vector
    vector = vector or []
    is_multiple = isinstance(vector, list) and bool(vector) and isinstance(vector[0], list)
    return {"multi_vector": vector} if is_multiple else {"single_vector": vector}


def _full_text(text: Fields) -> Fields:
    if isinstance(text["query"], dict):
        return {"structured_query": {"query": _structured(text["query"])}}
    return {"string_query": {"query": text["query"], "columns": text.get("columns") or None}}


def _structured(query: Any) -> Any:
    """Return a full-text query with searches of several columns split into one for each."""
    if isinstance(query, list):
        return [_structured(each) for each in query]
    if not isinstance(query, dict):
        return query
    found = {name: _structured(each) for name, each in query.items()}
    several = found.get("multi_match")
    if isinstance(several, dict) and isinstance(several.get("columns"), list):
        found["multi_match"] = {"match_queries": _match_queries(several)}
    return found


def _match_queries(several: Fields) -> list[Fields]:
    columns = several["columns"]
    rest = {name: several[name] for name in ("operator",) if name in several}
    boosts = several.get("boost") or [1.0] * len(columns)
    if not isinstance(boosts, list) or len(boosts) != len(columns):
        raise invalid("The `boost` of multi_match must be a list, with a number for each column")
    return [
        {"column": column, "terms": several.get("query"), "boost": boost, **rest}
        for column, boost in zip(columns, boosts, strict=True)
    ]


def _plan(fields: Fields) -> Fields:
    if isinstance(fields.get("query"), dict):
        fields["query"] = _query(dict(fields["query"]))
    return fields


# -- tables ----------------------------------------------------------------------------------------


def _rename(fields: Fields) -> Fields:
    if fields.get("new_namespace") is not None:
        fields.setdefault("new_namespace_id", fields["new_namespace"])
    return fields


def _describe(fields: Fields) -> Fields:
    return {**fields, "load_detailed_metadata": True}


def _alter_columns(fields: Fields) -> Fields:
    alterations = fields.get("alterations")
    if isinstance(alterations, list):
        fields["alterations"] = [_alteration(each) for each in alterations]
    return fields


def _alteration(alteration: Any) -> Any:
    if not isinstance(alteration, dict) or not isinstance(alteration.get("data_type"), dict):
        return alteration
    return {**alteration, "data_type": type_from_json(alteration["data_type"])}


# -- indices ---------------------------------------------------------------------------------------

_DEFAULTS: Fields = {
    "min_ngram_length": 3,
    "max_ngram_length": 3,
    "block_size": 128,
    "prefix_only": False,
}
"""LanceDB's defaults of options that the specification lacks. The client always sends them; without
them, the request is one that any catalog supports."""
_TRANSLATED = {"metric_type", "train"}


def _create_index(fields: Fields) -> Fields:
    if str(fields.get("index_type", "")).upper() == "FTS" and "max_token_length" in fields:
        fields["max_token_length"] = fields["max_token_length"] or 0  # null is no limit
    for name, default in _DEFAULTS.items():
        if fields.get(name) == default:
            del fields[name]
    for name in fields.keys() - ExtendedIndexRequest.model_fields.keys() - _TRANSLATED:
        if fields[name] not in (None, False):
            raise unsupported(f"An index with {name} is not supported; leave it out")
    fields["lancedb_defaults"] = True
    if fields.get("replace") is None:
        fields["replace"] = True  # LanceDB's default, which its client does not send
    metric = fields.pop("metric_type", None)
    if metric is not None and fields.setdefault("distance_type", metric) != metric:
        raise invalid("`metric_type` and `distance_type` of the request differ")
    return fields


def _create_view(fields: Fields) -> Fields:
    if "query" in fields:
        raise unsupported(
            "A materialized view of an SQL query is not supported: give a source_query"
        )
    return fields


_REQUESTS = {
    "query_table": _query,
    "analyze_table_query_plan": _query,
    "explain_table_query_plan": _plan,
    "rename_table": _rename,
    "describe_table": _describe,
    "alter_table_alter_columns": _alter_columns,
    "create_table_index": _create_index,
    "create_table_scalar_index": _create_index,
    "create_materialized_view": _create_view,
}
