"""Searching for vectors and words: one query, or many vectors at once in a DataFrame.

For many vectors without an index, fragments are distributed among tasks, and each task searches its
own for all queries. The best rows are then chosen by distance and row id, as Lance does, and only
their columns are read. With an index, each task searches the whole table, so that results equal
those of single queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance_namespace import QueryTableRequest
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import FloatType, IntegerType, LongType, StructField, StructType

from lance_bridge import blobs
from lance_bridge.dataset import (
    batch_rows,
    check_predicate,
    parse_nearest,
    translate_query_errors,
    vector_of,
)
from lance_bridge.errors import invalid, translate_lance_errors
from lance_bridge.requests import Ref

from ..addresses import Access
from ..schemas import ROW_ID, batch_schema
from ..source import conversion, reading
from ..source.options import DISTANCE
from .filters import Condition, sql_of
from .read_write import Snapshot, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_K = 10

_QUERY = "_lance_bridge_query"
_VECTOR = "_lance_bridge_vector"
_PART = "_lance_bridge_part"
_RANK = "_lance_bridge_rank"
_INDEX = "query_index"
"""pylance's name for the number of a query in a batch."""

_FOUND = (StructField(_QUERY, LongType()), StructField(DISTANCE, FloatType()))

_QUERIES_AT_ONCE = 256
_ROWS_AT_ONCE = 1024
_TASKS_PER_PART = 4
"""Parts are distributed by a hash: with more tasks than parts, few tasks get two parts."""


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
    """Return the rows whose vectors are nearest to the query, with their ``_distance``.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        column: The column of vectors.
        query: The vector to search for.
        k: The number of rows.
        filter: A condition in Lance's SQL, or one built from `col`.
        columns: The columns to return; all by default.
        metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; the index's, or l2, by default.
        nprobes: The number of index partitions to search.
        refine: The number of index candidates to compare exactly, as a multiple of ``k``.
        prefilter: Whether to apply the filter before the search, so that ``k`` matching rows are
            found; otherwise it is applied to the ``k`` nearest rows.
        version: The version to search; the latest by default.
        options: Other options of the data source, such as ``with_row_id``.

    Raises:
        InvalidInputError: (13) no such catalog, or a malformed name.
        PySparkException: From the data source: no such column, or a vector that does not fit it.
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
    """Return the rows that best match the words of a query, with their ``_score``.

    Args:
        spark: The session.
        table: ``catalog.namespace.table``, or a location.
        query: The words to search for.
        columns: The columns to search; by default all that have a full-text index.
        k: The number of rows.
        filter: A condition in Lance's SQL, or one built from `col`; applied before the search.
        read_columns: The columns to return; all by default.
        version: The version to search; the latest by default.
        options: Other options of the data source, such as ``with_row_id``.

    Raises:
        InvalidInputError: (13) no such catalog, or a malformed name.
        PySparkException: From the data source: no such column, or no full-text index.
    """
    search: dict[str, Any] = {
        "full_text.query": query,
        "full_text.columns": None if columns is None else json.dumps(list(columns)),
        "full_text.k": k,
    }
    return read(
        spark, table, columns=read_columns, filter=filter, version=version, **search, **options
    )


# -- many vectors ----------------------------------------------------------------------------------


def nearest_batch(
    queries: DataFrame,
    table: str,
    column: str,
    query_column: str,
    k: int = DEFAULT_K,
    *,
    columns: Sequence[str] | None = None,
    filter: str | Condition | None = None,
    metric: str | None = None,
    nprobes: int | None = None,
    refine: int | None = None,
    version: int | None = None,
) -> DataFrame:
    """Return, for each row of a DataFrame, the rows of a table with the nearest vectors.

    The result has the columns of ``queries`` and of the table, and ``_distance``. For each query it
    has up to ``k`` rows, the same as `nearest` finds, and none if the query's vector is null. The
    queries are computed once, and kept by the executors until they are no longer needed.

    Args:
        queries: A DataFrame with a column of vectors; its other columns are kept.
        table: ``catalog.namespace.table``, or a location.
        column: The table's column of vectors.
        query_column: The column of ``queries`` with the vectors to search for.
        k: The number of rows for each query.
        columns: The columns of the table to return; all by default.
        filter: A condition in Lance's SQL, or one built from `col`; applied before the search.
        metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; the index's, or l2, by default.
        nprobes: The number of index partitions to search.
        refine: The number of index candidates to compare exactly, as a multiple of ``k``.
        version: The version to search; the latest by default.

    Raises:
        InvalidInputError: (13) no such catalog, no Lance table, a column without vectors, or the
            same column in ``queries`` and the table.
        TableNotFoundError: (4)
        TableColumnNotFoundError: (12)
        TableVersionNotFoundError: (11)
    """
    target = Snapshot.open(queries.sparkSession, table, Ref.of(version))
    names = tuple(target.column(name) for name in columns or target.schema.names)
    _check_columns(queries.columns, names, query_column)
    wanted = {"k": k, "distance_type": metric, "nprobes": nprobes, "refine_factor": refine}
    search = _search(target, target.column(column), wanted, names, sql_of(filter))
    marked = queries.withColumn(_QUERY, F.monotonically_increasing_id()).localCheckpoint()
    asked = marked.select(_QUERY, F.col(query_column).cast("array<double>").alias(_VECTOR))
    found = _spread(asked, len(search.parts)).mapInArrow(partial(run, search), search.schema)
    best = Window.partitionBy(_QUERY).orderBy(DISTANCE, ROW_ID)
    ranked = found.withColumn(_RANK, F.row_number().over(best)).where(F.col(_RANK) <= k)
    top = ranked.drop(_RANK).mapInArrow(partial(take_rows, search), search.result)
    return marked.join(top, _QUERY).select(*queries.columns, *names, DISTANCE)


@dataclass(frozen=True)
class Search:
    """What tasks need to search. Pickles, with the credentials."""

    access: Access
    options: dict[str, Any]
    """Arguments of pylance's scanner, without the vectors."""
    size: int
    """The length of a vector."""
    names: tuple[str, ...]
    filter: str | None
    parts: tuple[tuple[int, ...] | None, ...]
    """The fragments of each part; None is the whole table, through its index."""
    schema: StructType
    """The schema of the matches: queries, row ids and distances."""
    result: StructType
    """The schema of the final rows."""


def _search(
    target: Snapshot,
    column: str,
    wanted: dict[str, Any],
    names: tuple[str, ...],
    condition: str | None,
) -> Search:
    vector_type = vector_of(target.schema.field(column))
    if vector_type is None:
        raise invalid(f"Column '{column}' of table '{target.name}' holds no vectors")
    size = int(vector_type.list_size)
    zeros = QueryTableRequestVector(single_vector=[0.0] * size)
    request = QueryTableRequest(vector=zeros, vector_column=column, **wanted)
    checked = parse_nearest(target.dataset, target.table, request)
    if checked is None:
        raise invalid(f"Column '{column}' of table '{target.name}' has vectors of no numbers")
    if condition is not None:
        check_predicate(target.dataset, target.name, condition, "Filter")
    return Search(
        target.access(),
        {key: value for key, value in checked.options.items() if key != "q"},
        size,
        names,
        condition,
        _parts(target, column),
        StructType([*_FOUND[:1], StructField(ROW_ID, LongType()), *_FOUND[1:]]),
        StructType([*_FOUND, *(target.types[name] for name in names)]),
    )


def _parts(target: Snapshot, column: str) -> tuple[tuple[int, ...] | None, ...]:
    indexed = {name for each in target.dataset.describe_indices() for name in each.field_names}
    if column in indexed:
        return (None,)
    width = reading.width_of([target.schema.field(column).type])
    groups = reading.group_fragments(reading.rows_of(target.dataset), width, reading.Sizes())
    return tuple(each.ids for each in groups) or ((),)


def _check_columns(queries: Sequence[str], names: Sequence[str], query_column: str) -> None:
    if query_column not in queries:
        raise invalid(f"The queries have no column '{query_column}': {', '.join(queries)}")
    both = {name.lower() for name in queries} & {*(name.lower() for name in names), DISTANCE}
    if both:
        raise invalid(
            f"The queries and the table both have {', '.join(sorted(both))}: rename those of the "
            "queries, or choose `columns` of the table"
        )


def _spread(asked: DataFrame, parts: int) -> DataFrame:
    """Return every query once for each part, sorted by part."""
    if parts == 1:
        return asked.withColumn(_PART, F.lit(0))
    each = asked.withColumn(_PART, F.explode(F.sequence(F.lit(0), F.lit(parts - 1))))
    spread = each.repartition(parts * _TASKS_PER_PART, _PART)
    return spread.withColumn(_PART, F.col(_PART).cast(IntegerType())).sortWithinPartitions(_PART)


# -- tasks -----------------------------------------------------------------------------------------


def run(search: Search, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Search for the queries of a task, in batches."""
    dataset: lance.LanceDataset | None = None
    expected = batch_schema(search.schema)
    for batch in batches:
        given = batch.filter(batch.column(_VECTOR).is_valid())
        numbers = given.column(_PART).to_numpy()
        for part in np.unique(numbers):
            fragments = search.parts[int(part)]
            if fragments == ():
                continue
            dataset = dataset or search.access.open()
            own = given.filter(pa.array(numbers == part))
            for start in range(0, own.num_rows, _QUERIES_AT_ONCE):
                some = own.slice(start, _QUERIES_AT_ONCE)
                yield from _search_part(search, dataset, fragments, some, expected)


def _search_part(
    search: Search,
    dataset: lance.LanceDataset,
    fragments: tuple[int, ...] | None,
    queries: pa.RecordBatch,
    expected: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    asked = queries.column(_VECTOR).to_pylist()
    for vector in asked:
        _require_vector(vector, search)
    ids = queries.column(_QUERY)
    with translate_query_errors(f"Table '{search.access.address.name}' could not be searched"):
        reader = dataset.scanner(
            columns=[DISTANCE],
            nearest={**search.options, "q": asked},
            filter=search.filter,
            prefilter=True,
            fragments=reading.fragments_of(dataset, fragments),
            with_row_id=True,
        ).to_batches()
        for batch in reader:
            if batch.num_rows:
                places = batch.column(_INDEX)
                marked = batch.append_column(_QUERY, ids.take(places))
                yield conversion.to_spark(marked, expected)


def take_rows(search: Search, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the columns of the best rows, of which only the ids are known so far."""
    dataset: lance.LanceDataset | None = None
    expected = batch_schema(search.result)
    for batch in batches:
        if not batch.num_rows:
            continue
        dataset = dataset or search.access.open()
        most = batch_rows(dataset, search.names, most_rows=_ROWS_AT_ONCE)
        for start in range(0, batch.num_rows, most):
            some = batch.slice(start, most)
            ids, places = np.unique(some.column(ROW_ID).to_numpy(), return_inverse=True)
            with translate_lance_errors(
                f"Rows of table '{search.access.address.name}' are not read"
            ):
                wanted = pa.array(ids, pa.uint64())
                found = pa.table(blobs.take_rows(dataset, wanted, search.names))
            rows = found.take(pa.array(places)).combine_chunks().to_batches()
            columns = {name: rows[0].column(name) for name in search.names}
            own = {field.name: some.column(field.name) for field in _FOUND}
            yield conversion.to_spark(pa.RecordBatch.from_pydict({**own, **columns}), expected)


def _require_vector(vector: Sequence[float | None], search: Search) -> None:
    if len(vector) != search.size:
        raise invalid(f"A query has {len(vector)} numbers, and the vectors have {search.size}")
    if any(each is None for each in vector) or not np.isfinite(np.array(vector, float)).all():
        raise invalid("A query has a number that is null, infinite or NaN")
