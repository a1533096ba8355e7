"""SQL in requests, checked by planning it before anything runs; and what fails on a row later.

Lance says everything with the same few exceptions. What is wrong is found out by planning again
with a part changed; its texts decide only where that cannot, and tests hold them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lance
from lance_namespace.errors import (
    LanceNamespaceError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
)

from ..errors import invalid
from .dataset import LANCE_FAILURES, brief

Plan = Callable[[str], object]
"""Plans a query with an expression in its place, reads no rows, and raises what pylance raises."""

NOT_PLANNED = (*LANCE_FAILURES, TypeError)
"""What pylance raises for a query that it cannot plan; its Python half adds TypeError."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Text, names and comments: what is in them is not SQL."""

_PLACEHOLDER = re.compile(r"[?$@]|(?<!:):(?!:)")

_MISSING = re.compile(r"No field named |Column \S+ does not exist|Field \S+ not found in struct")
"""How Lance and DataFusion say that an expression names a field that is not there."""

_ON_A_ROW = (
    "Error applying filter expression",
    "LanceError(Arrow)",
    "failed to construct the fuzzy query",
    "ef must be greater than or equal to k",
)
"""How Lance says that an expression, or a search, fails on what it reads: it blames the request."""


def check_predicate(
    dataset: lance.LanceDataset, table: str, predicate: str, what: str = "Predicate"
) -> None:
    """Require one SQL expression that is true or false for each row of a table.

    Args:
        table: What messages call the table.
        what: What messages call the predicate.

    Raises:
        InvalidInputError: (13) not one whole expression, or not true or false.
        TableColumnNotFoundError: (12) it names a column that is not there.
        ServiceUnavailableError: (17) the storage does not answer.
    """

    def plan(sql: str) -> object:
        return dataset.scanner(filter=sql).explain_plan()

    bad = f"{what} {shown(predicate)} does not fit table '{table}'"
    if (found := why_not(plan, predicate, bad)) is not None:
        raise found
    require_whole(plan, predicate, bad)


def require_no_placeholder(expression: str, bad: str) -> None:
    """Refuse what stands for a value in other SQL, such as ``?`` and ``$1``.

    Lance panics on those, which in some places no handler catches.

    Raises:
        InvalidInputError: (13)
    """
    if _PLACEHOLDER.search(_QUOTED.sub(" ", expression)):
        raise invalid(f"{bad}: it has a placeholder, and a request has no values for those")


def why_not(plan: Plan, expression: str, bad: str) -> LanceNamespaceError | None:
    """Return why an expression cannot be planned, or None."""
    try:
        plan(expression)
    except NOT_PLANNED as error:
        found = not_planned(error, bad)
        found.__cause__ = error
        if not isinstance(found, TableColumnNotFoundError):
            return found
    else:
        return None
    try:
        # What is no expression to its end, such as `select 1`, may begin with what looks like one.
        plan(f"({expression}\n)")
    except NOT_PLANNED as error:
        return found if _MISSING.search(str(error)) else not_planned(error, bad)
    return found


def require_whole(plan: Plan, expression: str, bad: str) -> None:
    """Require that Lance reads an expression to its end, past none such as ``; drop …``.

    It plans one that goes on with a column that does not exist only if it does not read so far.

    Args:
        bad: The beginning of the message.

    Raises:
        InvalidInputError: (13)
    """
    missing = f"missing_{uuid.uuid4().hex}"
    try:
        # On a line of its own, because the expression may end in a comment.
        plan(f"{expression}\nand {missing}")
    except NOT_PLANNED:
        return
    raise invalid(f"{bad}: only its beginning is one expression of SQL")


def not_planned(error: Exception, bad: str) -> LanceNamespaceError:
    """Return what a failure to plan means: code 12, 13, or 17 for storage."""
    if isinstance(error, OSError):
        return ServiceUnavailableError(f"The table could not be read: {brief(error)}")
    if _MISSING.search(str(error)):
        return TableColumnNotFoundError(f"{bad}: {brief(error)}")
    if isinstance(error, RuntimeError):
        # A panic inside Lance, as for `?` and `$1`.
        return invalid(f"{bad}: it has something that Lance cannot plan, such as a placeholder")
    return invalid(f"{bad}: {brief(error)}")


@contextmanager
def running(what: str) -> Iterator[None]:
    """Tell what fails in a query that was planned: its expressions on a row, or the storage.

    Raises:
        InvalidInputError: (13) an expression fails on a row, such as a division by zero.
        ServiceUnavailableError: (17) anything else.
    """
    try:
        yield
    except LANCE_FAILURES as error:
        raise failed(error, what) from error


def failed(error: Exception, what: str) -> LanceNamespaceError:
    """Return what a failure in a query that was planned means: code 13 or 17."""
    if any(text in str(error) for text in _ON_A_ROW):
        return invalid(f"{what}: {brief(error)}")
    return ServiceUnavailableError(f"{what}: {brief(error)}")


def shown(expression: str) -> str:
    """Return the beginning of an expression as messages show it."""
    return repr(expression[:200])
