"""Builders for tests of queries: tables with given rows, and requests as keywords."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pyarrow as pa

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .staging import dataset as dataset  # noqa: PLC0414 - for tests of queries
from .writing import ipc


def put(ns: MemoryNamespace, table: pa.Table, at: list[str] = TABLE) -> None:
    """Create a table with rows, or replace them."""
    ns.create_table(api.CreateTableRequest(id=at, mode="Overwrite"), ipc(table))


def request(at: list[str] = TABLE, k: int = 10, **options: Any) -> api.QueryTableRequest:
    """Return a query: ``vector`` is one vector, ``vectors`` several, ``columns`` names or aliases.

    ``text`` is a string query or a structured one.
    """
    given = {"vector": {"single_vector": options.pop("vector", None)}}
    if (several := options.pop("vectors", None)) is not None:
        given["vector"] = {"multi_vector": several}
    if (columns := options.pop("columns", None)) is not None:
        form = "column_aliases" if isinstance(columns, dict) else "column_names"
        options["columns"] = {form: columns}
    if (text := options.pop("text", None)) is not None:
        structured = {"structured_query": {"query": text}}
        options["full_text_query"] = (
            structured if isinstance(text, dict) else {"string_query": {"query": text}}
        )
    return api.QueryTableRequest.model_validate({"id": at, "k": k, **given, **options})


def answer(response: api.QueryTableResponse) -> pa.Table:
    """Return the rows in the Arrow IPC file of an answer."""
    return pa.ipc.open_file(response.data).read_all()


def ask(ns: api.LanceNamespace, at: list[str] = TABLE, k: int = 10, **options: Any) -> pa.Table:
    """Run a query and return its rows."""
    return answer(ns.query_table(request(at, k, **options)))


def vectors(rows: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of vectors of one length; None is a row without one."""
    dimension = len(next(row for row in rows if row is not None))
    of = kind or pa.float32()
    return pa.array([None if row is None else list(row) for row in rows], pa.list_(of, dimension))
