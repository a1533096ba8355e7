"""SQL in requests: one set of rules, checked before anything runs; and what fails later, on a row.

Lance reads an expression as far as it understands it, and panics or overflows its stack on some. So
the text is looked at first, and then planned in brackets: ``(a = 1; drop table t)`` has no plan.
Lance says everything with the same few exceptions; where its texts decide, tests hold them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import lance
import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
)

from ..errors import invalid, require_text
from ..lance_errors import (
    LANCE_ERRORS,
    as_namespace_error,
    first_line,
    is_refusal,
    panics_as_errors,
)
from ..names import written

Plan = Callable[[str], object]
"""Plans a query with an expression in its place, reads no rows, and raises what pylance raises."""

NOT_PLANNED = (*LANCE_ERRORS, TypeError)
"""What pylance raises for a query that it cannot plan; its Python half adds TypeError."""

MOST_CONDITIONS = 5000
"""How many conditions ``and`` and ``or`` may join. At a few times that Lance's stack overflows."""

MOST_STEPS = 200
"""How many words and signs one condition may have, up to a comma, for the same reason."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Text, names and comments: what is in them is not SQL. A doubled quote makes two that touch."""

_END = "\n)"
_PLACEHOLDER = re.compile(r"[?$@]|(?<!:):(?!:)")
_PREFIXED = re.compile(r"\b[nbr]['\"]", re.IGNORECASE)
_WINDOW = re.compile(r"\bover\s*\(", re.IGNORECASE)
_JOINT = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_STEP = re.compile(r"\w+|[^\w\s(),]")
_NAME = re.compile(r"(?:`[^`]*`)+|[^\W\d]\w*")

_MISSING = re.compile(
    r"No field named (?P<field>.+?)(?:\.? (?:Valid fields|Did you mean)\b|\.?, |\.?$)"
    r"|Column (?P<column>\S+) does not exist|Field (?P<nested>\S+) not found in struct"
)
"""How Lance and DataFusion say that an expression names a field that is not there."""

_MOST_COLUMNS = 20
"""How many columns a message lists."""

_ON_A_ROW = (
    "Error applying filter expression",
    "LanceError(Arrow)",
    "failed to construct the fuzzy query",
    "ef must be greater than or equal to k",
)
"""How Lance says that an expression, or a search, fails on what it reads: it blames the request."""


# -- rules -----------------------------------------------------------------------------------------


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
    bad = misfit(what, predicate, table)
    with listing_columns(dataset):
        check(lambda sql: dataset.scanner(filter=sql).explain_plan(), predicate, bad)


def types_of(
    dataset: lance.LanceDataset, table: str, columns: Mapping[str, str]
) -> dict[str, pa.DataType]:
    """Return the types of the expressions that are to make columns; they are planned at once.

    Args:
        table: What messages call the table.
        columns: Expressions over the table's columns, by the name of the column that each makes.

    Raises:
        InvalidInputError: (13) not one whole expression, or one with a function that is not there.
        TableColumnNotFoundError: (12) one names a column that is not there.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    bad = {name: misfit(f"Column '{name}' as", sql, table) for name, sql in columns.items()}
    for name, sql in columns.items():
        require_sound(sql, bad[name])

    def plan(*wanted: str) -> pa.Schema:
        made = {f"value_{i}": sql for i, sql in enumerate(wanted)}
        # A plan has to read at least one column: an expression may name none.
        scanner = dataset.scanner(columns={**made, "anchor": "_rowid"})
        scanner.explain_plan()
        return scanner.projected_schema

    try:
        with panics_as_errors():
            schema = plan(*map(enclosed, columns.values()))
    except NOT_PLANNED as error:
        with listing_columns(dataset):
            for name, sql in columns.items():
                check(plan, sql, bad[name])
        raise not_planned(error, f"The columns do not fit table '{table}'") from error
    return {name: schema.field(i).type for i, name in enumerate(columns)}


def check(plan: Plan, expression: str, bad: str) -> None:
    """Require one whole expression of SQL that can be planned.

    Args:
        bad: The beginning of the message.

    Raises:
        InvalidInputError: (13) it is no such expression: not SQL, not all of it one expression, or
            with an aggregate, a window, a subquery, or a value that is to come from elsewhere.
        TableColumnNotFoundError: (12) it names a column that is not there.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    require_sound(expression, bad)
    try:
        with panics_as_errors():
            plan(enclosed(expression))
    except NOT_PLANNED as error:
        raise not_planned(error, bad) from error


def require_sound(expression: str, bad: str) -> None:
    """Refuse what Lance cannot plan safely, or would not read to its end in brackets either.

    Raises InvalidInput (13).
    """
    try:
        require_text("The expression", expression)
    except InvalidInputError as error:
        raise invalid(f"{bad}: {error}") from None
    code = _QUOTED.sub(_blank, expression)
    for is_so, why in (
        ("\0" in expression, "it has a NUL"),
        (_PLACEHOLDER.search(code), "it has a placeholder, and a request has no values for those"),
        (_PREFIXED.search(code), "it has text with a letter before the quote"),
        (_WINDOW.search(code), "it has a window (over), and it is about one row"),
        (_closes_more(code), "it is not one expression: it closes a bracket that is not open"),
        (_is_too_deep(code), f"it is too long: Lance plans no more than {MOST_CONDITIONS} "
         f"conditions, each of at most {MOST_STEPS} words and signs; `in (…)` takes a long list"),
    ):  # fmt: skip
        if is_so:
            raise invalid(f"{bad}: {why}")


def enclosed(expression: str) -> str:
    """Return an expression in brackets: whatever goes on after it then has no plan."""
    # On a line of its own, because the expression may end in a comment.
    return f"({expression}{_END}"


def _blank(match: re.Match[str]) -> str:
    quote = match[0][0]
    return " " if quote in "-/" else quote * 2


def _closes_more(code: str) -> bool:
    depth = 0
    for bracket in re.findall(r"[()]", code):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return True
    return False


def _is_too_deep(code: str) -> bool:
    conditions = _JOINT.split(code)
    return len(conditions) > MOST_CONDITIONS or any(
        len(_STEP.findall(part)) > MOST_STEPS
        for condition in conditions
        for part in condition.split(",")
    )


# -- reading ---------------------------------------------------------------------------------------


def columns_in(expression: str, names: list[str]) -> list[str]:
    """Return those of a table's column names that an expression may read, sorted.

    Like Lance, it takes a name that differs by case only where none is the same. It does not know
    the words of SQL from columns of that name.
    """
    sql = _QUOTED.sub(lambda m: m[0] if m[0].startswith("`") else " ", expression)
    read: set[str] = set()
    for match in _NAME.finditer(sql):
        before, after = sql[: match.start()].rstrip(), sql[match.end() :].lstrip()
        if before.endswith(".") or after.startswith("("):
            continue
        found = match[0]
        name = found[1:-1].replace("``", "`") if found.startswith("`") else found
        same = [each for each in names if each == name]
        read.update(same or [each for each in names if each.lower() == name.lower()])
    return sorted(read)


# -- what went wrong -------------------------------------------------------------------------------


def why_not(plan: Callable[[], object], bad: str) -> LanceNamespaceError | None:
    """Return why something cannot be planned, or None."""
    try:
        with panics_as_errors():
            plan()
    except NOT_PLANNED as error:
        found = not_planned(error, bad)
        found.__cause__ = error
        return found
    return None


def not_planned(error: Exception, bad: str) -> LanceNamespaceError:
    """Return what a failure to plan means: code 12, 13, or 17 for storage."""
    if isinstance(error, OSError) and not is_refusal(error):
        return ServiceUnavailableError(f"The table could not be read: {first_line(error)}")
    missing = missing_in(error)
    if missing is not None:
        return TableColumnNotFoundError(f"{bad}: there is no column {missing}")
    if isinstance(error, RuntimeError):
        # A panic inside Lance.
        return invalid(f"{bad}: it has something that Lance cannot plan")
    # What was `enclosed` has a line of its own for the last bracket, and brief is one line.
    return invalid(f"{bad}: {first_line(ValueError(str(error).replace(_END, ')')))}")


def missing_in(error: Exception) -> str | None:
    """Return the column that a failure to plan says is not there, if it says so."""
    found = _MISSING.search(str(error))
    return found and cut(found["field"] or found["column"] or found["nested"], 120)


@contextmanager
def listing_columns(dataset: lance.LanceDataset) -> Iterator[None]:
    """Add a table's columns to the message where a column is missing.

    Raises:
        TableColumnNotFoundError: (12) with the first columns of the table.
    """
    try:
        yield
    except TableColumnNotFoundError as error:
        columns = [written([each]) for each in dataset.schema.names]
        left = len(columns) - _MOST_COLUMNS
        more = f" and {left} more" if left > 0 else ""
        listed = ", ".join(columns[:_MOST_COLUMNS])
        raise TableColumnNotFoundError(f"{error}; its columns are {listed}{more}") from error


@contextmanager
def running(what: str) -> Iterator[None]:
    """Tell what fails in a query that was planned: its expressions on a row, or the storage.

    Raises:
        InvalidInputError: (13) an expression fails on a row, such as a division by zero.
        ServiceUnavailableError: (17) the storage failed.
        InternalError: (18) Lance panicked.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise failed(error, what) from error


def failed(error: Exception, what: str) -> LanceNamespaceError:
    """Return what a failure in a query that was planned means: code 13, 17 or 18."""
    if any(text in str(error) for text in _ON_A_ROW):
        return invalid(f"{what}: {first_line(error)}")
    return as_namespace_error(what, error)


def misfit(what: str, expression: str, table: str) -> str:
    """Return the beginning of a message about an expression that cannot be planned."""
    return f"{what} {shown(expression)} does not fit table '{table}'"


def shown(expression: str) -> str:
    """Return the beginning of an expression as messages show it."""
    return cut(repr(expression), 200)


def cut(text: str, longest: int) -> str:
    """Return the beginning of a text, with a sign that it is not all of it."""
    return text if len(text) <= longest else f"{text[:longest]}…"
