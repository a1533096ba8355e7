"""The columns of a query's answer: names, or aliases of SQL expressions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from lance_namespace.errors import LanceNamespaceError
from lance_namespace_urllib3_client.models import QueryTableRequestColumns

from ..errors import invalid
from . import expressions

ROW_ID = "_rowid"
DISTANCE = "_distance"
SCORE = "_score"
QUERY_INDEX = "query_index"
RELEVANCE = "_relevance_score"

GIVEN = (ROW_ID, DISTANCE, SCORE, QUERY_INDEX, RELEVANCE)
"""What a search adds by itself. An alias of that name would be lost, or hide it."""

Columns = list[str] | dict[str, str] | None
"""Names, expressions by alias, or all columns: what the scanner of pylance takes."""

PlanColumns = Callable[[Columns], None]
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


def check_whole(
    columns: Columns, plan: PlanColumns, table: str, is_field: Callable[[str], bool]
) -> None:
    """Require that each expression is SQL for one value to its end, which Lance does not.

    Args:
        is_field: Whether a source is the path of a field.

    Raises:
        InvalidInputError: (13)
        TableColumnNotFoundError: (12)
    """
    if not isinstance(columns, dict):
        return
    computed = {k: v for k, v in columns.items() if k not in GIVEN and not is_field(v)}
    if not computed:
        return
    for source in computed.values():
        expressions.require_no_placeholder(source, _bad(source, table))
    for source in computed.values():
        expressions.require_whole(partial(_plan_expression, plan), source, _bad(source, table))
    try:
        # Lance takes no notice of what begins like a whole query: `distinct a`, `top 5 a`.
        plan({ROW_ID: ROW_ID, **{k: f"({v}\n)" for k, v in computed.items()}})
    except expressions.NOT_PLANNED as error:
        found = why_not(computed, plan, table)
        sources = ", ".join(map(expressions.shown, computed.values()))
        bad = f"Not each of these columns of table '{table}' is one value: {sources}"
        raise found or invalid(bad) from error


def why_not(columns: Columns, plan: PlanColumns, table: str) -> LanceNamespaceError | None:
    """Return what is wrong with the first column that cannot be planned, or None."""
    alone = _plan_expression if isinstance(columns, dict) else _plan_name
    sources = columns.values() if isinstance(columns, dict) else columns or ()
    for source in sources:
        found = expressions.why_not(partial(alone, plan), source, _bad(source, table))
        if found is not None:
            return found
    return None


def _plan_name(plan: PlanColumns, name: str) -> None:
    plan([name])


def _plan_expression(plan: PlanColumns, source: str) -> None:
    # The row's id goes with it: Lance does not plan a scan of constants alone.
    plan({f"value_{uuid.uuid4().hex}": source, ROW_ID: ROW_ID})


def _bad(source: str, table: str) -> str:
    return f"Column {expressions.shown(source)} does not fit table '{table}'"
