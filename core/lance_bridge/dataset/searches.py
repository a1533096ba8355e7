"""What a query searches for: nearest neighbors of vectors, and full text.

Lance does not check some numbers of a nearest-neighbor search: it allocates memory for
``k * refine_factor`` rows before it counts them, and the process ends if that fails. They are
limited here to the number of rows of the table, which changes no result.

A full-text query that names no column searches all columns with a full-text index. A text column
without an index can be searched by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance import query as lance_query
from lance_namespace import AnalyzeTableQueryPlanRequest, QueryTableRequest
from lance_namespace_urllib3_client.models import (
    BooleanQuery,
    BoostQuery,
    FtsQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    QueryTableRequestFullTextQuery,
    StringFtsQuery,
)

from ..errors import display, first_line, invalid, unsupported
from . import index_types, paths

if TYPE_CHECKING:
    from ..table import Table

# -- nearest neighbors -----------------------------------------------------------------------------


Request = QueryTableRequest | AnalyzeTableQueryPlanRequest
"""Requests with every option of a query."""

DEFAULT_COLUMN = "vector"
"""The column that is searched by default if a table has several vector columns.

Source: pylance's directory namespace.
"""

DEFAULT_K = 10
"""How many rows a search finds if ``k`` is 0: Lance's own default. Source: as above."""

_OPTIONS = (
    "vector_column",
    "distance_type",
    "lower_bound",
    "upper_bound",
    "nprobes",
    "minimum_nprobes",
    "maximum_nprobes",
    "refine_factor",
    "ef",
)
"""Options that only a search by vector has."""

_AT_LEAST_ONE = ("nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef")


@dataclass(frozen=True)
class Nearest:
    """A search by vector, in the form of pylance's scanner."""

    options: dict[str, Any]
    batch: bool
    """Whether each vector is a separate query, numbered in the column ``query_index``."""


def parse_nearest(dataset: lance.LanceDataset, table: Table, request: Request) -> Nearest | None:
    """Return the search by vector that a request asks for, or None.

    Several vectors are separate queries, unless the column has several vectors per row.

    Raises:
        InvalidInputError: (13) an option that does not fit, or one without a vector.
        TableColumnNotFoundError: (12) the column to search does not exist.
    """
    vectors, many = _vectors(request)
    if not vectors:
        _refuse_options(request)
        return None
    _check_numbers(request)
    path = request.vector_column or default_vector_column(dataset.schema, table.name)
    field = paths.find_column(dataset, table, path).field.to_arrow()
    dtype = index_types.vector_of(field)
    if dtype is None:
        raise invalid(
            f"Column {path!r} of table '{table.name}' holds no vectors: those are fixed-size lists "
            "of float16, float32, float64 or uint8"
        )
    has_several_per_row = pa.types.is_list(index_types.stored_type(field))
    query = [_check_vector(vector, i, path, dtype) for i, vector in enumerate(vectors)]
    options = {"column": path, "q": query if many else query[0], **_options(dataset, request)}
    return Nearest(options, batch=many and not has_several_per_row)


def wanted_rows(request: Request) -> int:
    """Return how many rows a search should return for each vector."""
    return request.k or DEFAULT_K


def _vectors(request: Request) -> tuple[list[list[float]], bool]:
    """Return the vectors of a request, and whether it gives them as a list."""
    single = request.vector.single_vector if request.vector else None
    multi = request.vector.multi_vector if request.vector else None
    if single and multi:
        raise invalid("`single_vector` cannot be used together with `multi_vector`")
    if multi:
        return multi, True
    return ([single], False) if single else ([], False)


def _refuse_options(request: Request) -> None:
    for name in _OPTIONS:
        if getattr(request, name) is not None:
            raise invalid(
                f"`{name}` is an option of a search by vector, and the request has no vector"
            )


def _check_numbers(request: Request) -> None:
    for name in _AT_LEAST_ONE:
        value = getattr(request, name)
        if value is not None and value < 1:
            raise invalid(f"`{name}` must be 1 or more, not {value}")
    low, high = request.minimum_nprobes, request.maximum_nprobes
    if low is not None and high is not None and low > high:
        raise invalid(f"`minimum_nprobes` ({low}) is more than `maximum_nprobes` ({high})")
    if request.ef is not None and request.ef < wanted_rows(request) + (request.offset or 0):
        raise invalid(f"`ef` ({request.ef}) must be at least k plus offset")
    if request.bypass_vector_index and request.fast_search:
        raise invalid("`bypass_vector_index` and `fast_search` cannot be combined")
    _check_bounds(request)


def _check_bounds(request: Request) -> None:
    low, high = request.lower_bound, request.upper_bound
    for name, bound in (("lower_bound", low), ("upper_bound", high)):
        if bound is not None and math.isnan(_float(bound)):
            raise invalid(f"`{name}` must be a number")
    if low is not None and high is not None and low > high:
        raise invalid(f"`lower_bound` ({low}) is more than `upper_bound` ({high})")


def _options(dataset: lance.LanceDataset, request: Request) -> dict[str, Any]:
    rows = max(int(dataset.count_rows()), 1)
    k = min(wanted_rows(request) + (request.offset or 0), rows)
    found: dict[str, Any] = {
        "k": k,
        "metric": _distance_type(request.distance_type),
        "use_index": not request.bypass_vector_index,
        "minimum_nprobes": request.minimum_nprobes,
        "maximum_nprobes": request.maximum_nprobes,
    }
    if request.minimum_nprobes is None and request.maximum_nprobes is None:
        found["nprobes"] = request.nprobes
    if request.refine_factor is not None:
        found["refine_factor"] = min(request.refine_factor, -(-rows // k))
    if request.ef is not None:
        found["ef"] = min(request.ef, max(rows, k * found.get("refine_factor", 1)))
    if request.lower_bound is not None or request.upper_bound is not None:
        found["distance_range"] = (request.lower_bound, request.upper_bound)
    return found


def _distance_type(name: str | None) -> str | None:
    if name is not None and name.lower() not in index_types.DISTANCES:
        raise invalid(f"Distance type {name!r} must be one of {', '.join(index_types.DISTANCES)}")
    return name


def default_vector_column(schema: pa.Schema, table: str) -> str:
    """Return the only column with vectors, or the one named ``vector``.

    Args:
        table: The name of the table, for the error.

    Raises:
        InvalidInputError: (13) there is none, or there are several.
    """
    found = [paths.canonical(each) for each in _vector_fields(schema)]
    if len(found) == 1:
        return found[0]
    if DEFAULT_COLUMN in found:
        return DEFAULT_COLUMN
    if not found:
        raise invalid(f"Table '{table}' has no column with vectors")
    raise invalid(
        f"Table '{table}' has several columns with vectors: name one of {', '.join(found)} as "
        "`vector_column`"
    )


def _vector_fields(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of fields with vectors, including fields of structs."""
    for field in fields:
        dtype, path = index_types.stored_type(field), (*above, field.name)
        if pa.types.is_struct(dtype):
            yield from _vector_fields((dtype.field(i) for i in range(dtype.num_fields)), path)
        elif index_types.vector_of(field) is not None:
            yield path


def _check_vector(vector: Sequence[float], i: int, path: str, dtype: pa.DataType) -> list[float]:
    """Check that a column can hold a vector's numbers: Lance would wrap or round other numbers."""
    if len(vector) != dtype.list_size:
        raise invalid(
            f"Query vector {i} has {len(vector)} numbers, and the vectors of column {path!r} have "
            f"{dtype.list_size}"
        )
    values = [_float(each) for each in vector]
    if pa.types.is_uint8(dtype.value_type):
        if not all(0 <= each <= 255 and each.is_integer() for each in values):
            raise invalid(f"Query vector {i} must be of whole numbers from 0 to 255 for {path!r}")
        return values
    with np.errstate(over="ignore"):
        stored = np.array(values).astype(np.float32)
    if not np.isfinite(stored).all():
        raise invalid(f"Query vector {i} has a number that is infinite or NaN as float32")
    return values


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


# -- full text -------------------------------------------------------------------------------------


FORMS = ("match", "phrase", "boost", "multi_match", "boolean")
INDEX_TYPE = "Inverted"

Query = dict[str, Any] | lance_query.FullTextQuery
"""The ``full_text_query`` of pylance's scanner."""


def parse_full_text(
    dataset: lance.LanceDataset, table: Table, query: QueryTableRequestFullTextQuery | None
) -> Query | None:
    """Return the full-text query that a request asks for, or None.

    Raises:
        InvalidInputError: (13) not exactly one form, or an option that does not fit it.
        TableColumnNotFoundError: (12) a column does not exist.
        UnsupportedOperationError: (0) several columns searched in ways that pylance cannot combine.
    """
    if query is None:
        return None
    _require_one(query, ("string_query", "structured_query"), "`full_text_query`")
    builder = _Builder(dataset, table)
    try:
        if query.string_query is not None:
            return builder.string(query.string_query)
        if query.structured_query is not None:
            return builder.query(query.structured_query.query)
    except (ValueError, OverflowError) as error:
        raise invalid(f"Lance cannot search for this text: {first_line(error)}") from error
    return None


class _Builder:
    """Builds pylance's queries for one table."""

    def __init__(self, dataset: lance.LanceDataset, table: Table) -> None:
        self._dataset = dataset
        self._table = table

    def string(self, query: StringFtsQuery) -> Query:
        columns = query.columns or None
        for column in self._indexed() if columns is None else columns:
            self._columns(column)
        return {"query": query.query, "columns": columns}

    def query(self, query: FtsQuery) -> lance_query.FullTextQuery:
        form = _require_one(query, FORMS, "A full-text query")
        make: Callable[[Any], lance_query.FullTextQuery] = getattr(self, form)
        return make(getattr(query, form))

    def match(self, query: MatchQuery) -> lance_query.FullTextQuery:
        columns = self._columns(query.column)
        if len(columns) > 1:
            return self._multi([(column, query) for column in columns])
        return lance_query.MatchQuery(
            query.terms,
            columns[0],
            boost=_boost(query),
            fuzziness=query.fuzziness or 0,
            max_expansions=50 if query.max_expansions is None else query.max_expansions,
            operator=_operator(query),
            prefix_length=query.prefix_length or 0,
        )

    def phrase(self, query: PhraseQuery) -> lance_query.FullTextQuery:
        columns = self._columns(query.column)
        if len(columns) > 1:
            raise invalid(f"A phrase is searched in one column: name one of {', '.join(columns)}")
        return lance_query.PhraseQuery(query.terms, columns[0], slop=query.slop or 0)

    def boost(self, query: BoostQuery) -> lance_query.FullTextQuery:
        factor = 0.5 if query.negative_boost is None else float(query.negative_boost)
        return lance_query.BoostQuery(
            self.query(query.positive), self.query(query.negative), negative_boost=factor
        )

    def multi_match(self, query: MultiMatchQuery) -> lance_query.FullTextQuery:
        matches = query.match_queries
        if not matches:
            raise invalid("A full-text query `multi_match` needs at least one of `match_queries`")
        if len(matches) == 1:
            return self.match(matches[0])
        return self._multi([(c, each) for each in matches for c in self._columns(each.column)])

    def boolean(self, query: BooleanQuery) -> lance_query.FullTextQuery:
        occur = lance_query.Occur
        clauses = [(occur.MUST, each) for each in query.must or ()]
        clauses += [(occur.SHOULD, each) for each in query.should or ()]
        if not clauses:
            raise invalid("A full-text query `boolean` needs at least one of `must` and `should`")
        clauses += [(occur.MUST_NOT, each) for each in query.must_not or ()]
        return lance_query.BooleanQuery([(how, self.query(each)) for how, each in clauses])

    def _multi(self, matches: Sequence[tuple[str, MatchQuery]]) -> lance_query.FullTextQuery:
        """Search several columns; a row's score is the best score of any column."""
        first = matches[0][1]
        for _, each in matches:
            if each.fuzziness:
                raise unsupported(
                    "`fuzziness` over several columns is not supported: search them one by one"
                )
            if (each.terms, _operator(each)) != (first.terms, _operator(first)):
                raise unsupported(
                    "`multi_match` whose queries differ in `terms` or `operator` is not supported: "
                    "make them the `should` of a `boolean`"
                )
        return lance_query.MultiMatchQuery(
            first.terms,
            [column for column, _ in matches],
            boosts=[_boost(each) for _, each in matches],
            operator=_operator(first),
        )

    def _columns(self, column: str | None) -> list[str]:
        if column is None:
            return self._indexed()
        paths.find_column(self._dataset, self._table, column)
        return [column]

    def _indexed(self) -> list[str]:
        """Return the columns with a full-text index, in the order of the table."""
        indexed = {
            name
            for index in self._dataset.describe_indices()
            if index.index_type == INDEX_TYPE
            for name in index.field_names
        }
        found = [each.path for each in paths.walk(self._dataset) if each.path in indexed]
        if not found:
            raise invalid(
                f"Table '{display(self._table.path)}' has no full-text index: create one, "
                "or name the columns to search"
            )
        return found


def _require_one(model: object, names: Sequence[str], what: str) -> str:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        raise invalid(f"{what} must have exactly one of {', '.join(names)}, not {len(given)}")
    return given[0]


def _operator(query: MatchQuery) -> lance_query.FullTextOperator:
    name = (query.operator or "or").lower()
    if name not in ("and", "or"):
        raise invalid(f"Operator {query.operator!r} must be And or Or")
    return lance_query.FullTextOperator(name.upper())


def _boost(query: MatchQuery) -> float:
    return 1.0 if query.boost is None else float(query.boost)
