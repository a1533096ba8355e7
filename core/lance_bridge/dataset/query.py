"""Queries: what a request asks for, as one scan of pylance or two, planned, checked and read.

A search by vector and by text in one request is hybrid. The specification allows it, but does not
say what it returns. Like LanceDB, this fuses the ranks of two searches: a row scores
1 / (60 + rank) in each search that finds it.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering, LanceScanner
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from lance_namespace_urllib3_client.models import QueryTableRequestColumns

from ..errors import invalid, panics_as_errors, require_text, unsupported
from ..requests import OrderedQuery, OrderedQueryAnalysis, Ref
from ..table import Table
from . import expressions, paths, searches
from .batch_sizes import READ_AHEAD, columns_read, scan_limits
from .searches import Request

ROW_ID = "_rowid"
DISTANCE = "_distance"
SCORE = "_score"
QUERY_INDEX = "query_index"
RELEVANCE = "_relevance_score"

SEARCH_COLUMNS = (ROW_ID, DISTANCE, SCORE, QUERY_INDEX, RELEVANCE)
"""Columns that a search adds. An alias of such a name would be lost, or hide the column."""

_ALIAS = "value"

Columns = list[str] | dict[str, str] | None
"""Names, expressions by alias, or None for all columns: the form of pylance's scanner."""

PlanColumns = Callable[[Columns], object]
"""Plans a query with other columns. Reads no rows, and raises what pylance raises."""

T = TypeVar("T")


IPC_OPTIONS = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
"""An IPC file has one dictionary per column, and Lance one per data file."""


@dataclass(frozen=True)
class Query:
    """A query of one table, checked as far as possible without a plan."""

    dataset: lance.LanceDataset
    table: str
    """The table's name in messages."""
    columns: Columns
    """As passed to pylance."""
    requested: Columns
    """As in the request."""
    predicate: str | None
    limit: int | None
    """How many rows, for each vector of a batch. None for all."""
    offset: int
    with_row_id: bool
    options: dict[str, Any]
    """Options of pylance's scanner that do not depend on the search."""
    vector: searches.Nearest | None
    text: searches.Query | None

    @property
    def wants_row_id(self) -> bool:
        return self.with_row_id or ROW_ID in (self.columns or ())


@dataclass(frozen=True)
class Scan:
    """One scan of pylance: a query that searches by vector and by text has two."""

    query: Query
    search: dict[str, Any]
    """Options of the scanner for the search and the number of rows."""
    adds: str | None
    """The column that the search adds."""

    @property
    def has_extra_row_id(self) -> bool:
        """Whether the scan adds row ids that the request does not ask for."""
        return bool(self.query.options["with_row_id"]) and not self.query.wants_row_id

    def scanner(self, columns: Columns, *, is_filtered: bool) -> LanceScanner:
        """Return the scanner. Other columns, or no filter, help to find the cause of an error."""
        columns_of = scanner_columns(columns, self.adds)
        options = {**self.query.options, **self.search, **columns_of}
        predicate = self.query.predicate if is_filtered else None
        condition = None if predicate is None else expressions.in_brackets(predicate)
        return self.query.dataset.scanner(filter=condition, **options)


def parse(table: Table, request: Request) -> Query:
    """Return the query of a request.

    ``k`` is the number of rows to return after ``offset``. As in pylance's directory namespace, 0
    means all rows, or Lance's default for a search by vector.

    Raises:
        InvalidInputError: (13) an option that does not fit.
        TableColumnNotFoundError: (12) a column to search does not exist.
        InvalidTableStateError: (19) the table holds no data yet.
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        UnsupportedOperationError: (0) several vectors together with a full-text query, or either of
            them together with an order.
    """
    offset = request.offset or 0
    if request.k < 0 or offset < 0:
        raise invalid("k and offset must be 0 or more")
    requested = parse_columns(request.columns)
    dataset = table.open(Ref.of(request.version, branch=request.branch))
    columns = in_brackets(requested, table.name, dataset.schema.names, partial(_is_field, dataset))
    if request.filter is not None:
        bad = _describe_bad_filter(request.filter, table.name)
        expressions.require_sound(request.filter, bad)
        expressions.require_unambiguous(dataset.schema.names, request.filter, bad)
    vector = searches.parse_nearest(dataset, table, request)
    text = searches.parse_full_text(dataset, table, request.full_text_query)
    if text is not None and vector is not None and vector.batch:
        raise unsupported(
            "A full-text query with several vectors is not supported: send one vector"
        )
    options = {
        "prefilter": bool(request.prefilter),
        "fast_search": bool(request.fast_search),
        "io_buffer_size": READ_AHEAD,
        "order_by": parse_order(dataset, table, request),
    }
    is_fused = vector is not None and (vector.batch or text is not None)
    if is_fused and options["order_by"]:
        raise unsupported("order_by of several searches at once is not supported: send one vector")
    return Query(
        dataset=dataset,
        table=table.name,
        columns=columns,
        requested=requested,
        predicate=request.filter,
        limit=(request.k if vector is None else searches.wanted_rows(request)) or None,
        offset=offset,
        with_row_id=bool(request.with_row_id),
        options=options,
        vector=vector,
        text=text,
    )


def read(query: Query) -> pa.RecordBatchReader:
    """Return the rows of a query, read on demand; a hybrid query is read at once.

    Raises:
        InvalidInputError: (13) the filter or a column is not one expression of SQL, or fails on a
            row. Reading the rows may raise it too.
        TableColumnNotFoundError: (12) one of them names a column that does not exist.
        ServiceUnavailableError: (17) the storage does not answer. Reading may raise it too.
    """
    scans = _build_scans(_limit_batches(query))
    if len(scans) == 1:
        reader = _run(scans[0], LanceScanner.to_reader)
        if scans[0].has_extra_row_id:
            reader = _drop_row_id(reader)
        return pa.RecordBatchReader.from_batches(reader.schema, _read_batches(query, reader))
    by_vector, by_text = [_read_all(scan) for scan in scans]
    fused = fuse(by_vector, by_text, query.limit or 0, query.offset)
    if not query.wants_row_id:
        fused = fused.drop_columns([ROW_ID])
    return fused.to_reader()


def to_file(reader: pa.RecordBatchReader) -> bytes:
    """Return rows in the Arrow IPC file format."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, reader.schema, options=IPC_OPTIONS) as writer:
        if has_dictionary(reader.schema):
            writer.write_table(reader.read_all())
        else:
            for batch in reader:
                writer.write_batch(batch)
    return sink.getvalue()


def explain(query: Query, *, verbose: bool) -> str:
    """Return the plan of a query, or both plans of a hybrid one. Raises what `read` does."""
    return _format_plans(query, lambda scanner: scanner.explain_plan(verbose=verbose))


def analyze(query: Query) -> str:
    """Run a query and return its plan with metrics of each step. Raises what `read` does."""
    return _format_plans(query, LanceScanner.analyze_plan)


def _limit_batches(query: Query) -> Query:
    """Return a query whose batches have few rows if rows are large."""
    names: list[str] = query.dataset.schema.names
    columns = columns_read(names, query.columns, query.predicate)
    is_search = query.vector is not None or query.text is not None
    found = query.limit + query.offset if is_search and query.limit else None
    limits = scan_limits(query.dataset, columns, found=found)
    return replace(query, options={**query.options, **limits})


def _build_scans(query: Query) -> list[Scan]:
    page = {"limit": query.limit, "offset": query.offset or None}
    if query.vector is None and query.text is None:
        return [Scan(_add_row_id(query), page, None)]
    by_vector = {"nearest": query.vector.options} if query.vector is not None else {}
    by_text = {"full_text_query": query.text}
    if query.text is None and query.vector is not None:
        # A limit would apply to the rows of the whole batch.
        search = by_vector if query.vector.batch else {**by_vector, **page}
        return [Scan(_add_row_id(query), search, DISTANCE)]
    if query.vector is None:
        return [Scan(_add_row_id(query), {**by_text, **page}, SCORE)]
    own = replace(
        query,
        columns=_drop_added_columns(query.columns),
        requested=_drop_added_columns(query.requested),
        with_row_id=True,
    )
    both = _add_row_id(own)
    limit = (query.limit or 0) + query.offset
    return [
        Scan(both, by_vector, DISTANCE),
        Scan(both, {**by_text, "limit": limit}, SCORE),
    ]


def _add_row_id(query: Query) -> Query:
    # Without it, Lance sorts only by columns that are also returned.
    is_added = query.with_row_id or (bool(query.options["order_by"]) and not query.wants_row_id)
    return replace(query, options={**query.options, "with_row_id": is_added})


def _drop_row_id(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    schema = reader.schema.remove(reader.schema.get_field_index(ROW_ID))
    batches = (batch.drop_columns([ROW_ID]) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _drop_added_columns(columns: Columns) -> Columns:
    """Return the columns without those that a hybrid search adds anyway."""
    if isinstance(columns, dict):
        return {k: v for k, v in columns.items() if k not in HYBRID_COLUMNS}
    return None if columns is None else [name for name in columns if name not in HYBRID_COLUMNS]


def _read_all(scan: Scan) -> pa.Table:
    reader = _run(scan, LanceScanner.to_reader)
    with expressions.translate_query_errors(_failure_message(scan.query)):
        return reader.read_all()


def _format_plans(query: Query, plan: Callable[[LanceScanner], str]) -> str:
    plans = [_run(scan, plan) for scan in _build_scans(query)]
    if len(plans) == 1:
        return plans[0]
    by_vector, by_text = plans
    return f"{HYBRID_PLAN}\nBy vector:\n{by_vector}\nBy text:\n{by_text}"


def _run(scan: Scan, run: Callable[[LanceScanner], T]) -> T:
    """Run a scan, or raise the reason why it cannot be planned."""
    query = scan.query
    try:
        with panics_as_errors():
            return run(scan.scanner(query.columns, is_filtered=True))
    except expressions.NOT_PLANNED as error:
        with expressions.add_known_columns(query.dataset):
            raise _find_problem(scan) or expressions.to_query_error(
                error, _failure_message(query)
            ) from error


def _is_field(dataset: lance.LanceDataset, path: str) -> bool:
    try:
        return dataset.lance_schema.field(paths.canonical(paths.parse(path))) is not None
    except InvalidInputError:
        return False


def _find_problem(scan: Scan) -> LanceNamespaceError | None:
    """Plan again in parts, and return the error of the first part that fails."""
    query = scan.query

    def plan(columns: Columns, *, is_filtered: bool = False) -> None:
        scan.scanner(columns, is_filtered=is_filtered).explain_plan()

    bad = f"The query does not fit table '{query.table}'"
    bad_filter = _describe_bad_filter(query.predicate or "", query.table)
    return (
        expressions.find_problem(partial(plan, None), bad)
        or expressions.find_problem(partial(plan, None, is_filtered=True), bad_filter)
        or find_problem(query.requested, query.columns, plan, query.table)
        or expressions.find_problem(partial(plan, query.columns, is_filtered=True), bad)
    )


def _read_batches(query: Query, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    paged = query.vector is not None and query.vector.batch and query.offset
    seen: Counter[int] = Counter()
    with expressions.translate_query_errors(_failure_message(query)):
        for batch in reader:
            yield _skip_offset(batch, seen, query) if paged else batch


def _skip_offset(batch: pa.RecordBatch, seen: Counter[int], query: Query) -> pa.RecordBatch:
    """Drop the first ``offset`` rows of each vector. ``seen`` counts rows across batches."""
    kept = []
    for vector in batch.column(QUERY_INDEX).to_pylist():
        kept.append(seen[vector] >= query.offset)
        seen[vector] += 1
    return batch.filter(pa.array(kept, pa.bool_()))


def has_dictionary(fields: Iterable[pa.Field]) -> bool:
    """Return whether a field of a schema or a type is a dictionary, at any depth."""
    return any(
        pa.types.is_dictionary(each.type)
        or has_dictionary(each.type.field(i) for i in range(each.type.num_fields))
        for each in fields
    )


def _describe_bad_filter(predicate: str, table: str) -> str:
    return expressions.does_not_fit("Filter", predicate, table)


def _failure_message(query: Query) -> str:
    return f"Table '{query.table}' could not be queried"


HYBRID_PLAN = "Reciprocal rank fusion of two searches"

HYBRID_COLUMNS = (DISTANCE, SCORE, RELEVANCE, ROW_ID)
"""The columns at the end of the result; the last one only if requested."""

RANK_CONSTANT = 60
"""Added to each rank; ranks begin at 0. Source: LanceDB's default reranker."""


def fuse_ranks(searches: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Return row ids with their scores, best first; equal scores in the order they were found.

    Args:
        searches: The row ids that each search found, best first.
    """
    scores: dict[int, float] = defaultdict(float)
    for found in searches:
        for rank, row in enumerate(found):
            scores[row] += 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: -item[1])


def fuse(by_vector: pa.Table, by_text: pa.Table, limit: int, offset: int) -> pa.Table:
    """Return the rows that either search found, without duplicates, with all their scores.

    Args:
        by_vector: Rows with ``_distance`` and ``_rowid``, nearest first.
        by_text: Rows with the same columns, but ``_score`` instead of ``_distance``.
    """
    distances = _column(by_vector, DISTANCE)
    scores = _column(by_text, SCORE)
    best = fuse_ranks([list(distances), list(scores)])[offset : offset + limit]
    rows = pa.concat_tables(
        [by_vector.drop_columns([DISTANCE]), by_text.drop_columns([SCORE])],
        promote_options="default",
    ).unify_dictionaries()
    positions = {row: i for i, row in reversed(list(enumerate(rows.column(ROW_ID).to_pylist())))}
    kept = rows.take(pa.array([positions[row] for row, _ in best], pa.int64()))
    ids = kept.column(ROW_ID)
    kept = kept.drop_columns([ROW_ID])
    for name, values in (
        (DISTANCE, [distances.get(row) for row, _ in best]),
        (SCORE, [scores.get(row) for row, _ in best]),
        (RELEVANCE, [score for _, score in best]),
    ):
        kept = kept.append_column(name, pa.array(values, pa.float32()))
    return kept.append_column(ROW_ID, ids)


def _column(table: pa.Table, name: str) -> dict[int, float]:
    """Return a column's values by row id, in the order of the rows."""
    ids, values = table.column(ROW_ID).to_pylist(), table.column(name).to_pylist()
    return dict(zip(ids, values, strict=True))


# -- columns ------------------------------------------------------------------------------------


def parse_columns(columns: QueryTableRequestColumns | None) -> Columns:
    """Return the columns that a request names; None for all, as in pylance.

    Raises:
        InvalidInputError: (13) names together with aliases, a name twice, or an alias that is
            reserved or cannot be a name.
    """
    if columns is None:
        return None
    if columns.column_names and columns.column_aliases:
        raise invalid("`column_names` cannot be used together with `column_aliases`")
    if columns.column_names:
        names = list(columns.column_names)
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Column {name!r} is requested twice")
        return names
    if not columns.column_aliases:
        return None
    for alias, source in columns.column_aliases.items():
        require_text("The alias", alias)
        if "\0" in alias:
            raise invalid(f"The alias {alias[:60]!r} has a NUL")
        if alias in SEARCH_COLUMNS and source != alias:
            raise invalid(f"Column {alias!r} is added by searches: use another alias")
    return dict(columns.column_aliases)


def scanner_columns(columns: Columns, added: str | None) -> dict[str, Any]:
    """Return the scanner's options for columns, with the one that the search adds.

    Naming it keeps the result stable: Lance plans to stop adding it automatically.
    """
    if columns is None or added is None:
        return {"columns": columns}
    if isinstance(columns, dict):
        wanted: Columns = {**columns, added: added}
    else:
        wanted = [*columns, added] if added not in columns else columns
    return {"columns": wanted, "disable_scoring_autoprojection": True}


def in_brackets(
    columns: Columns, table: str, names: list[str], is_field: Callable[[str], bool]
) -> Columns:
    """Return columns with each expression in brackets, so that Lance parses all of it.

    Args:
        names: The names of the table's columns.
        is_field: Whether a source is the path of a field.

    Raises:
        InvalidInputError: (13) an expression that Lance cannot plan safely.
    """
    if not isinstance(columns, dict):
        return columns
    result = {}
    for alias, source in columns.items():
        if alias in SEARCH_COLUMNS or is_field(source):
            result[alias] = source
            continue
        bad = _describe_bad_column(source, table)
        expressions.require_sound(source, bad)
        expressions.require_unambiguous(names, source, bad)
        result[alias] = expressions.in_brackets(source)
    return result


def find_problem(
    requested: Columns, columns: Columns, plan: PlanColumns, table: str
) -> LanceNamespaceError | None:
    """Return the error for the first column that cannot be planned, or None.

    Args:
        requested: The columns as in the request.
        columns: The same, with expressions in brackets.
    """
    if isinstance(requested, dict) and isinstance(columns, dict):
        # With the row id, because Lance does not plan a scan of constants alone.
        alone: list[Columns] = [{_ALIAS: each, ROW_ID: ROW_ID} for each in columns.values()]
    else:
        alone = [[name] for name in columns or ()]
    sources = requested.values() if isinstance(requested, dict) else requested or ()
    for source, each in zip(sources, alone, strict=True):
        found = expressions.find_problem(partial(plan, each), _describe_bad_column(source, table))
        if found is not None:
            return found
    return None


def _describe_bad_column(source: str, table: str) -> str:
    return expressions.does_not_fit("Column", source, table)


# -- order of rows ---------------------------------------------------------------------------------


def parse_order(
    dataset: lance.LanceDataset, table: Table, request: Request
) -> list[ColumnOrdering] | None:
    """Return the order that a request asks for, in the form of pylance's scanner.

    Raises:
        InvalidInputError: (13) a column's name is not a path.
        TableColumnNotFoundError: (12) a column does not exist.
    """
    if not isinstance(request, OrderedQuery | OrderedQueryAnalysis) or not request.order_by:
        return None
    return [
        ColumnOrdering(
            paths.find_column(dataset, table, each.column_name).path,
            each.ascending,
            each.nulls_first,
        )
        for each in request.order_by
    ]
