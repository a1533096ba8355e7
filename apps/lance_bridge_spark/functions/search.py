"""Searches as DataFrames: what is nearest to a vector, and what text matches best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .filters import Condition
from .reading import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_K = 10


def nearest(
    spark: Any,
    table: str,
    column: str,
    query: Sequence[float],
    k: int = DEFAULT_K,
    *,
    filter: str | Condition | None = None,
    columns: Sequence[str] | None = None,
    metric: str | None = None,
    nprobes: int | None = None,
    refine: int | None = None,
    prefilter: bool = True,
    version: int | None = None,
    **options: Any,
) -> DataFrame:
    """Return the rows whose vectors are nearest to one, with their ``_distance``.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        column: Which column holds the vectors.
        query: The vector.
        k: How many rows.
        filter: A condition in Lance's SQL, or one built from `col`.
        columns: Which columns; all by default.
        metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; the index's, or l2, by default.
        nprobes: How many parts of an index to search.
        refine: Times ``k``, how many candidates of an index to compare exactly.
        prefilter: Whether the filter comes first, so that ``k`` rows of those that fit are found;
            else it is applied to the ``k`` nearest.
        version: Which version.
        options: Other options of the data source, such as ``with_row_id``.

    Raises:
        InvalidInputError: (13) no such catalog, or a malformed name.
        PySparkException: What the data source raises: no such column, or a vector that does not
            fit it.
    """
    search: dict[str, Any] = {
        "nearest.column": column,
        "nearest.query": json.dumps([float(each) for each in query]),
        "nearest.k": k,
        "nearest.metric": metric,
        "nearest.nprobes": nprobes,
        "nearest.refine": refine,
        "nearest.prefilter": prefilter,
    }
    return read(spark, table, columns=columns, filter=filter, version=version, **search, **options)


def full_text(
    spark: Any,
    table: str,
    query: str,
    columns: Sequence[str] | None = None,
    k: int = DEFAULT_K,
    *,
    filter: str | Condition | None = None,
    read_columns: Sequence[str] | None = None,
    version: int | None = None,
    **options: Any,
) -> DataFrame:
    """Return the rows that match some words best, with their ``_score``.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        query: The words.
        columns: Which columns to search; by default all that have a full-text index.
        k: How many rows.
        filter: A condition in Lance's SQL, or one built from `col`; it comes first.
        read_columns: Which columns to return; all by default.
        version: Which version.
        options: Other options of the data source, such as ``with_row_id``.

    Raises:
        InvalidInputError: (13) no such catalog, or a malformed name.
        PySparkException: What the data source raises: no such column, or no full-text index.
    """
    search: dict[str, Any] = {
        "full_text.query": query,
        "full_text.columns": None if columns is None else json.dumps(list(columns)),
        "full_text.k": k,
    }
    return read(
        spark, table, columns=read_columns, filter=filter, version=version, **search, **options
    )
