"""Translates requests of LanceDB's client: fields, new columns, and the database as a path."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import ConfigDict, Field
from starlette.requests import HTTPConnection

from lance_bridge.errors import invalid, unsupported
from lance_bridge.requests import ExtendedIndexRequest

from ..arrow_limits import read_schema
from .responses import DATABASE_HEADER, is_lancedb
from .type_names import cast_type, type_from_json

# -- requests --------------------------------------------------------------------------------------


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


_PRINTED_QUERY = re.compile(r"(?:Match|MultiMatch|Phrase|Boost|Boolean)Query \{")
"""What LanceDB's pushdown of filters sends for a query that it cannot translate."""


def _full_text(text: Fields) -> Fields:
    if isinstance(text["query"], dict):
        return {"structured_query": {"query": _structured(text["query"])}}
    if isinstance(text["query"], str) and _PRINTED_QUERY.match(text["query"]):
        raise unsupported(
            "This full-text query was sent as the text of an object. Search with a string, or with "
            "the queries of lancedb.query, such as MatchQuery"
        )
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


_REQUESTS: dict[str, Callable[[Fields], Fields]] = {
    "query_table": _query,
    "analyze_table_query_plan": _query,
    "explain_table_query_plan": _plan,
    "rename_table": _rename,
    "describe_table": lambda fields: {**fields, "load_detailed_metadata": True},
    "alter_table_alter_columns": _alter_columns,
    "create_table_index": _create_index,
    "create_table_scalar_index": _create_index,
    "create_materialized_view": _create_view,
}


# -- new columns -----------------------------------------------------------------------------------


NEW_COLUMNS = "alter_table_add_columns"
"""The operation that accepts a schema as well as JSON."""


def new_columns(body: bytes) -> dict[str, Any]:
    """Return the request fields that add the columns of a schema, given as an Arrow IPC stream.

    They have the schema for lance-bridge's own catalogs, and expressions for others, which ignore
    it: none, if an expression cannot make one of the columns.

    Raises:
        InvalidInputError: (13) the body is not a schema, or it is too large.
    """
    schema = read_schema(body)
    entries = [_entry(field) for field in schema]
    return {
        "new_columns": [] if None in entries else entries,
        "arrow_schema": base64.b64encode(body).decode(),
    }


def _entry(field: pa.Field) -> dict[str, str] | None:
    """Return the entry of a column with the expression that makes it; None if there is none."""
    dtype = cast_type(field.type)
    if dtype is None or field.metadata or not field.nullable:
        return None
    return {"name": field.name, "expression": f"arrow_cast(NULL, '{dtype}')"}


# -- databases -------------------------------------------------------------------------------------


PREFIX_HEADER = "x-lancedb-database-prefix"
"""The part after the database in ``db://DATABASE/…``: names of namespaces below it."""


Names = Sequence[Annotated[str, Field(min_length=1)]]


@dataclass(frozen=True)
class DatabasePaths:
    """Maps a database's name to the path of a namespace.

    The fields are keys of the configuration.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    prefix: Names = ()
    """The path of the namespace that contains the databases."""
    separator: Annotated[str, Field(min_length=1)] | None = "."
    """Splits the name of a database into the names of its path. None leaves names whole."""
    names: Mapping[str, Names] = field(default_factory=dict)
    """Whole paths of databases, by name. They take precedence over the other rules."""

    def __call__(self, database: str) -> list[str]:
        """Return the path of a database's namespace.

        Raises:
            InvalidInputError: (13) a part of the name is empty.
        """
        if database in self.names:
            return list(self.names[database])
        parts = [database] if self.separator is None else database.split(self.separator)
        return [*self.prefix, *_check_parts(parts, f"The database {database[:100]!r}")]

    def name_of(self, path: Sequence[str]) -> str | None:
        """Return the text after ``db://`` for a namespace, or None if no database has its path."""
        for name, named in self.names.items():
            if list(named) == list(path):
                return name
        prefix, below = list(path[: len(self.prefix)]), list(path[len(self.prefix) :])
        if not below or prefix != list(self.prefix):
            return None
        if self.separator is None:
            database, deeper = below[0], below[1:]
        elif any(self.separator in each for each in below):
            return None
        else:
            database, deeper = self.separator.join(below), []
        if "/" in database or [*self(database), *deeper] != list(path):
            return None  # the name is read as another path
        return "/".join([database, *deeper])


def database_of(connection: HTTPConnection, databases: DatabasePaths) -> list[str] | None:
    """Return the path of the namespace that a request selects, or None for the root.

    Requests of LanceDB's catalogs name no database: they select the namespace of databases.

    Raises:
        InvalidInputError: (13) a name in it is empty, or there are several.
    """
    headers = connection.headers
    if len(headers.getlist(DATABASE_HEADER)) > 1:
        raise invalid(f"The request has the header {DATABASE_HEADER} several times")
    database = headers.get(DATABASE_HEADER)
    if database is None:
        return list(databases.prefix) or None if is_lancedb(connection) else None
    prefix = headers.get(PREFIX_HEADER)
    below = _check_parts(prefix.split("/"), f"The header {PREFIX_HEADER}") if prefix else []
    return [*databases(database), *below]


def _check_parts(parts: list[str], subject: str) -> list[str]:
    if not all(parts):
        raise invalid(f"{subject} has an empty name in its path")
    return parts


def in_database(path: list[str], operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Prepend the path of a database to the identifiers in a request's fields.

    Args:
        path: The path of the database's namespace.
    """
    if operation == "batch_create_table_versions":
        return {**fields, "entries": _prepend_to_requests(path, fields.get("entries"))}
    if operation == "batch_commit_tables":
        return {**fields, "operations": _prepend_to_batch(path, fields.get("operations"))}
    fields = {**fields, "id": _prepend_path(path, fields.get("id"))}
    if operation == "rename_table" and fields.get("new_namespace_id") is not None:
        fields["new_namespace_id"] = _prepend_path(path, fields["new_namespace_id"])
    return fields


def _prepend_path(path: list[str], names: Any) -> Any:
    """Prepend a path to an identifier. Other values are returned, and the model rejects them."""
    return [*path, *(names or ())] if isinstance(names, list | None) else names


def _prepend_to_batch(path: list[str], operations: Any) -> Any:
    if not isinstance(operations, list):
        return operations
    return [
        dict(zip(each, _prepend_to_requests(path, list(each.values())), strict=True))
        if isinstance(each, dict)
        else each
        for each in operations
    ]


def _prepend_to_requests(path: list[str], requests: Any) -> Any:
    if not isinstance(requests, list):
        return requests
    return [
        {**each, "id": _prepend_path(path, each.get("id"))} if isinstance(each, dict) else each
        for each in requests
    ]
