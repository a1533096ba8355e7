"""The columns of a query's result, and the order of its rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
from lance.dataset import ColumnOrdering
from lance_namespace.errors import LanceNamespaceError
from lance_namespace_urllib3_client.models import QueryTableRequestColumns

from ...errors import invalid
from ...requests import OrderedQuery, OrderedQueryAnalysis
from .. import expressions, paths
from .searches import Request

if TYPE_CHECKING:
    from ...table import Table

# -- columns ---------------------------------------------------------------------------------------


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


def parse(columns: QueryTableRequestColumns | None) -> Columns:
    """Return the columns that a request names; None for all, as in pylance.

    Raises:
        InvalidInputError: (13) names together with aliases, a name twice, or a reserved alias.
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
