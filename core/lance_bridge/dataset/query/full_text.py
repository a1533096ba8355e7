"""The full-text query of a request, in every form of the specification, for pylance.

A query that names no column searches all columns with a full-text index. A text column without
an index can be searched by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import lance
from lance import query as lance_query
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

from ...errors import display, first_line, invalid, unsupported
from .. import paths

if TYPE_CHECKING:
    from ...table import Table

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
