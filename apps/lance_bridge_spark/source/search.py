"""Searches as options of a read: nearest vectors or full text. One task executes the search.

The rows have an additional column, their distance or their score. A filter is applied before the
search, so that the requested number of rows is found, unless `nearest.prefilter` is false.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace import QueryTableRequest
from lance_namespace_urllib3_client.models import (
    QueryTableRequestFullTextQuery,
    QueryTableRequestVector,
    StringFtsQuery,
)

from lance_bridge.dataset import parse_full_text, parse_nearest
from lance_bridge.errors import invalid

from .options import Options

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

DISTANCE, _SCORE = "_distance", "_score"
"""Lance's names of the columns of a search."""
_NEAREST = "nearest."
_FULL_TEXT = "full_text."


@dataclass(frozen=True)
class Search:
    """A search with the arguments of pylance's scanner. Pickles."""

    column: str
    """The column that the search adds."""
    options: dict[str, Any] = field(repr=False)
    rows: int | None = None
    """The maximum number of rows to find, if the scanner needs a limit."""
    searched: tuple[str, ...] = ()
    """The columns to search; empty for all that have a full-text index."""

    @property
    def by_vector(self) -> bool:
        """Whether it is a search for the nearest vectors."""
        return self.column == DISTANCE

    @property
    def most_rows(self) -> int | None:
        """The maximum number of rows that it finds, if known."""
        return self.options["nearest"].get("k") if self.by_vector else self.rows


def of(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search | None:
    """Return the search that the options request, or None.

    Raises:
        InvalidInputError: (13) options contradict each other or do not fit the table.
        TableColumnNotFoundError: (12) the column to search does not exist.
    """
    by_vector = options.text("nearest.query") is not None
    by_text = options.text("full_text.query") is not None
    for prefix, asked in ((_NEAREST, by_vector), (_FULL_TEXT, by_text)):
        if not asked and options.has(prefix):
            raise invalid(f"Options {prefix}… need '{prefix}query'")
    if by_vector and by_text:
        raise invalid("Option 'nearest.query' cannot be used together with 'full_text.query'")
    if by_vector:
        return _by_vector(options, table, dataset)
    return _by_text(options, table, dataset) if by_text else None


def _by_vector(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search:
    request = QueryTableRequest(
        id=list(table.path),
        k=options.number("nearest.k") or 0,
        vector=_vector(options.json("nearest.query")),
        vector_column=options.text("nearest.column"),
        distance_type=options.text("nearest.metric"),
        nprobes=options.number("nearest.nprobes"),
        refine_factor=options.number("nearest.refine"),
    )
    found = parse_nearest(dataset, table, request)
    if found is None:
        raise invalid("Option 'nearest.query' is an empty vector")
    prefilter = options.text("nearest.prefilter") is None or options.flag("nearest.prefilter")
    given = {"nearest": found.options, "prefilter": prefilter}
    return Search(DISTANCE, given, searched=(found.options["column"],))


def _vector(given: Any) -> QueryTableRequestVector:
    if isinstance(given, list) and given and all(_is_number(each) for each in given):
        return QueryTableRequestVector(single_vector=given)
    raise invalid(
        "Option 'nearest.query' must be a JSON list of numbers, such as [0.5, 1], not "
        f"{json.dumps(given)[:100]}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_text(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search:
    columns = options.names("full_text.columns")
    query = StringFtsQuery(
        query=options.text("full_text.query") or "", columns=list(columns) if columns else None
    )
    found = parse_full_text(dataset, table, QueryTableRequestFullTextQuery(string_query=query))
    given = {"full_text_query": found, "prefilter": True}
    return Search(_SCORE, given, options.number("full_text.k"), tuple(columns or ()))
