"""The columns of a query's answer: names, or aliases of SQL expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lance_namespace.errors import LanceNamespaceError
from lance_namespace_urllib3_client.models import QueryTableRequestColumns

from ...errors import invalid
from .. import expressions

ROW_ID = "_rowid"
DISTANCE = "_distance"
SCORE = "_score"
QUERY_INDEX = "query_index"
RELEVANCE = "_relevance_score"

GIVEN = (ROW_ID, DISTANCE, SCORE, QUERY_INDEX, RELEVANCE)
"""What a search adds by itself. An alias of that name would be lost, or hide it."""

_ALONE = "value"

Columns = list[str] | dict[str, str] | None
"""Names, expressions by alias, or all columns: what the scanner of pylance takes."""

PlanColumns = Callable[[Columns], object]
"""Plans a query with other columns, reads no rows, and raises what pylance raises."""


def parse(columns: QueryTableRequestColumns | None) -> Columns:
    """Return the columns that a request asks for. None at all means all, as for pylance.

    Raises:
        InvalidInputError: (13) names and aliases at once, a name twice, an alias that is taken.
    """
    if columns is None:
        return None
    if columns.column_names and columns.column_aliases:
        raise invalid("`column_names` cannot be used together with `column_aliases`")
    if columns.column_names:
        names = list(columns.column_names)
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Column {name!r} is asked for twice")
        return names
    if not columns.column_aliases:
        return None
    for alias, source in columns.column_aliases.items():
        if alias in GIVEN and source != alias:
            raise invalid(f"Column {alias!r} comes with searches: take another alias")
    return dict(columns.column_aliases)


def scanned(columns: Columns, added: str | None) -> dict[str, Any]:
    """Return the scanner's options for columns, and for the one that the search adds.

    Naming the added one keeps the answer as it is where Lance is to stop adding it unasked.
    """
    if columns is None or added is None:
        return {"columns": columns}
    if isinstance(columns, dict):
        wanted: Columns = {**columns, added: added}
    else:
        wanted = [*columns, added] if added not in columns else columns
    return {"columns": wanted, "disable_scoring_autoprojection": True}


def enclosed(columns: Columns, table: str, is_field: Callable[[str], bool]) -> Columns:
    """Return columns whose expressions Lance reads to their end, or has no plan for.

    Args:
        is_field: Whether a source is the path of a field.

    Raises:
        InvalidInputError: (13) an expression that Lance cannot plan safely.
    """
    if not isinstance(columns, dict):
        return columns
    made = {}
    for alias, source in columns.items():
        if alias in GIVEN or is_field(source):
            made[alias] = source
            continue
        expressions.require_sound(source, _bad(source, table))
        made[alias] = expressions.in_brackets(source)
    return made


def why_not(
    asked: Columns, columns: Columns, plan: PlanColumns, table: str
) -> LanceNamespaceError | None:
    """Return what is wrong with the first column that cannot be planned, or None.

    Args:
        asked: The columns as the request has them.
        columns: The same, `enclosed`.
    """
    if isinstance(asked, dict) and isinstance(columns, dict):
        # The row's id goes with it: Lance does not plan a scan of constants alone.
        alone: list[Columns] = [{_ALONE: each, ROW_ID: ROW_ID} for each in columns.values()]
    else:
        alone = [[name] for name in columns or ()]
    sources = asked.values() if isinstance(asked, dict) else asked or ()
    for source, each in zip(sources, alone, strict=True):
        found = expressions.find_problem(partial(plan, each), _bad(source, table))
        if found is not None:
            return found
    return None


def _bad(source: str, table: str) -> str:
    return expressions.does_not_fit("Column", source, table)
