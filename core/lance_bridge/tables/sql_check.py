"""SQL expressions that make a column: their type, and the columns that they read."""

from __future__ import annotations

import re

import lance
import pyarrow as pa

from ..errors import invalid, require_text
from . import expressions

_VALUE, _ANCHOR = "value", "anchor"
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Text and comments: what is in them is not SQL."""

_NAME = re.compile(r"`(?:[^`]|``)+`|[^\W\d]\w*")
_PLACEHOLDER = re.compile(r"\?|\$\w|(?<!:):(?!:)\w")


def check(dataset: lance.LanceDataset, what: str, expression: str) -> pa.DataType:
    """Return the type of an expression over a table's columns, without reading rows.

    Args:
        what: What the expression is for, at the beginning of a message.

    Raises:
        InvalidInputError: (13) it is not one expression of SQL, or has a function that is not
            there.
        TableColumnNotFoundError: (12) it names a column that is not there.
        ServiceUnavailableError: (17)
    """
    bad = f"{what} {expressions.shown(expression)} does not fit the table"
    require_text(what, expression)
    if "\0" in expression:
        raise invalid(f"{bad}: it has a NUL")
    if _PLACEHOLDER.search(_QUOTED.sub(" ", expression)):
        # Lance panics on these in a column, past all handlers.
        raise invalid(f"{bad}: it has a placeholder, and there are no values for placeholders")

    def plan(sql: str) -> pa.Schema:
        # A plan has to read at least one column: an expression may name none.
        scanner = dataset.scanner(columns={_VALUE: sql, _ANCHOR: "_rowid"})
        scanner.explain_plan()
        return scanner.projected_schema

    try:
        plan(expression)
        # Without brackets Lance takes no notice of ``… FROM``, and reads ``*`` as all columns. The
        # end is on a line of its own, because the expression may end in a comment.
        planned = plan(f"({expression}\n)")
    except expressions.NOT_PLANNED as error:
        raise expressions.not_planned(error, bad) from error
    expressions.require_whole(plan, expression, bad)
    return planned.field(_VALUE).type


def columns_in(expression: str, names: list[str]) -> list[str]:
    """Return those of a table's column names that an expression reads, sorted.

    Like Lance, it takes a name that differs by case only where none is the same.
    """
    sql = _QUOTED.sub(" ", expression)
    read: set[str] = set()
    for match in _NAME.finditer(sql):
        before, after = sql[: match.start()].rstrip(), sql[match.end() :].lstrip()
        if before.endswith(".") or after.startswith("("):
            continue
        name = match.group().strip("`").replace("``", "`")
        same = [each for each in names if each == name]
        read.update(same or [each for each in names if each.lower() == name.lower()])
    return sorted(read)
