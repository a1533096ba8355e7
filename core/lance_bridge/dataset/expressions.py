"""SQL in requests: rules that are checked before a query runs, and errors on a row when it runs.

Lance parses an expression only as far as it understands it, and panics or overflows its stack on
some. So the text is checked first, and is planned in brackets: ``(a = 1; drop table t)`` has no
plan. Lance raises the same few exceptions for every error, so its messages are compared; tests
check that they have not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import lance
import pyarrow as pa
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableColumnNotFoundError,
)

from ..dotted_names import first_names, same_names, written
from ..errors import (
    BROKEN_FILE,
    LANCE_ERRORS,
    MISSING_FILE,
    STORAGE_ERROR,
    as_namespace_error,
    first_line,
    has_wrong_value,
    invalid,
    is_refusal,
    panics_as_errors,
    require_text,
)

Plan = Callable[[str], object]
"""Plans a query with an expression. Reads no rows, and raises what pylance raises."""

NOT_PLANNED = (*LANCE_ERRORS, TypeError)
"""What pylance raises for a query that it cannot plan; its Python code adds TypeError."""

MOST_CONDITIONS = 5000
"""How many conditions ``and`` and ``or`` may join. A few times as many overflow Lance's stack."""

MOST_STEPS = 200
"""How many words and signs a condition may have, with those of its brackets, for the same reason.
Those that commas separate do not add up."""

_QUOTED = re.compile(r"(?:'[^']*')+|(?:\"[^\"]*\")+|(?:`[^`]*`)+|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Strings, quoted names and comments, whose content is not SQL. A doubled quote is in a string."""

_END = "\n)"
_PLACEHOLDER = re.compile(r"[?$@]|(?<!:):(?!:)")
_PREFIXED = re.compile(r"\b(?:[nbre]|u&)['\"]", re.IGNORECASE)
_WINDOW = re.compile(r"\bover\s*\(", re.IGNORECASE)
_JOINT = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_STEP = re.compile(r"\w+|[^\w\s]")
_LAST_WORD = re.compile(r"(\w*)`?\s*\.$")
_NAME = re.compile(r"(?:`[^`]*`)+|[^\W\d]\w*")

_MISSING = re.compile(
    r"No field named (?P<field>.+?)(?:\.? (?:Valid fields|Did you mean)\b|\.?, |\.?$)"
    r"|Column (?P<column>\S+) does not exist|Field (?P<nested>\S+) not found in struct"
)
"""Messages of Lance and DataFusion about a field that does not exist."""

_MOST_COLUMNS = 20
"""Maximum number of columns in a message."""

_MISSING_FILE = re.compile(rf"{MISSING_FILE}(\S+\.(?:lance|arrow|bin|idx|blob))\b")
_ON_A_ROW = (
    "Error applying filter expression",
    "LanceError(Arrow)",
    "failed to construct the fuzzy query",
    "ef must be greater than or equal to k",
    "Invalid user input",
)
"""Messages of Lance about an expression or a search that fails on a row: the request is wrong."""
_OF_EXECUTION = re.compile("Query Execution error: (?:Execution|Arrow) error")
"""Another one, unless the storage failed."""


# -- rules -----------------------------------------------------------------------------------------


def check_predicate(
    dataset: lance.LanceDataset, table: str, predicate: str, what: str = "Predicate"
) -> None:
    """Require one SQL expression that is true or false for each row of a table.

    Args:
        table: The name of the table in messages.
        what: The name of the predicate in messages.

    Raises:
        InvalidInputError: (13) not one whole expression, or not true or false.
        TableColumnNotFoundError: (12) it names a column that does not exist.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    bad = does_not_fit(what, predicate, table)
    require_unambiguous(dataset.schema.names, predicate, bad)
    with add_known_columns(dataset):
        # Lance finds no column with a backtick in its name.
        names = [name for name in dataset.schema.names if "`" not in name]
        check(lambda sql: dataset.scanner(names, filter=sql).explain_plan(), predicate, bad)


def types_of(
    dataset: lance.LanceDataset, table: str, columns: Mapping[str, str]
) -> dict[str, pa.DataType]:
    """Return the types of expressions for new columns, all planned at once.

    Args:
        table: The name of the table in messages.
        columns: Expressions over the table's columns, by the name of the new column.

    Raises:
        InvalidInputError: (13) not one whole expression, or an unknown function.
        TableColumnNotFoundError: (12) one names a column that does not exist.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    bad = {name: does_not_fit(f"Column '{name}' as", sql, table) for name, sql in columns.items()}
    for name, sql in columns.items():
        require_sound(sql, bad[name])
        require_unambiguous(dataset.schema.names, sql, bad[name])

    def plan(*wanted: str) -> pa.Schema:
        made = {f"value_{i}": sql for i, sql in enumerate(wanted)}
        # A plan must read at least one column, and an expression may read none.
        scanner = dataset.scanner(columns={**made, "anchor": "_rowid"})
        scanner.explain_plan()
        return scanner.projected_schema

    try:
        with panics_as_errors():
            schema = plan(*map(in_brackets, columns.values()))
    except NOT_PLANNED as error:
        with add_known_columns(dataset):
            for name, sql in columns.items():
                check(plan, sql, bad[name])
        raise to_plan_error(error, f"The columns do not fit table '{table}'") from error
    return {name: schema.field(i).type for i, name in enumerate(columns)}


def check(plan: Plan, expression: str, bad: str) -> None:
    """Require one whole expression of SQL that can be planned.

    Args:
        bad: The beginning of the message.

    Raises:
        InvalidInputError: (13) not SQL, more than one expression, or one with an
            aggregate, a window, a subquery or a placeholder.
        TableColumnNotFoundError: (12) it names a column that does not exist.
        ServiceUnavailableError: (17) the storage does not answer.
    """
    require_sound(expression, bad)
    try:
        with panics_as_errors():
            plan(in_brackets(expression))
    except NOT_PLANNED as error:
        raise to_plan_error(error, bad) from error


def require_sound(expression: str, bad: str) -> None:
    """Check that Lance can plan an expression safely, and parses all of it in brackets.

    Raises InvalidInput (13).
    """
    try:
        require_text("The expression", expression)
    except InvalidInputError as error:
        raise invalid(f"{bad}: {error}") from None
    code = _QUOTED.sub(_blank, expression)
    for is_wrong, why in (
        ("\0" in expression, "it has a NUL"),
        (_PLACEHOLDER.search(code), "it has a placeholder, which a request cannot fill"),
        (_PREFIXED.search(code), "it has a string with a prefix, such as n'x'"),
        (_WINDOW.search(code), "it has a window function (over), but is computed row by row"),
        (_closes_unopened(code), "it is not one expression: it closes a bracket that is not open"),
        (_is_too_deep(code), f"it is too long: Lance plans no more than {MOST_CONDITIONS} "
         f"conditions, each of at most {MOST_STEPS} words and signs; `in (…)` takes a long list"),
    ):  # fmt: skip
        if is_wrong:
            raise invalid(f"{bad}: {why}")


def in_brackets(expression: str) -> str:
    """Return an expression in brackets, so that it has no plan if other text follows it."""
    # On a separate line, because the expression may end in a comment.
    return f"({expression}{_END}"


def _blank(match: re.Match[str]) -> str:
    first = match[0][0]
    return " " if first in "-/" else first * 2


def _closes_unopened(code: str) -> bool:
    depth = 0
    for bracket in re.findall(r"[()]", code):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return True
    return False


def _is_too_deep(code: str) -> bool:
    """Return whether the tree of an expression may be too deep.

    Operators of one level make a tree as deep as their number, below which the arguments of a
    function and the content of brackets are further levels. What ``and``, ``or`` and commas
    separate is side by side.
    """
    if len(_JOINT.split(code)) > MOST_CONDITIONS:
        return True
    steps, below, inside = [0], [0], [0]  # of each open bracket: of this part, and of the deepest
    path = 0  # the steps of all open brackets
    for step in _STEP.findall(code):
        if step in "([{":
            for levels in (steps, below, inside):
                levels.append(0)
        elif step in ")]}" and len(steps) > 1:
            path -= steps[-1]
            depth = 1 + max(inside.pop(), steps.pop() + below.pop())
            below[-1] = max(below[-1], depth)
        elif step == "," or _JOINT.fullmatch(step):
            inside[-1] = max(inside[-1], steps[-1] + below[-1])
            path -= steps[-1]
            steps[-1] = below[-1] = 0
        else:
            steps[-1] += 1
            path += 1
        if path + below[-1] > MOST_STEPS or len(steps) > MOST_STEPS:
            return True
    return False


# -- reading ---------------------------------------------------------------------------------------


def columns_in(expression: str, names: list[str]) -> list[str]:
    """Return the column names that an expression may read, sorted.

    As in Lance, a name in another letter case matches only if no name matches exactly. Keywords of
    SQL are not distinguished from columns of the same name.
    """
    read: set[str] = set()
    for found, before in _names_in(expression):
        if before.endswith("."):
            continue
        name = found[1:-1].replace("``", "`") if found.startswith("`") else found
        read.update(same_names(name, names))
    return sorted(read)


def require_unambiguous(
    columns: Sequence[str], expression: str, bad: str, tables: Sequence[str] = ()
) -> None:
    """Check that no name in an expression may mean several columns.

    Of columns that differ from a name in letter case only, Lance takes the first. It tells fields
    of structs apart.

    Args:
        columns: The names of the table's columns.
        bad: The beginning of the message.
        tables: Names before a dot that are of tables, and not of structs.

    Raises:
        InvalidInputError: (13)
    """
    if len({each.lower() for each in columns}) == len(columns):
        return
    for name, before in _names_in(expression):
        parent = _LAST_WORD.search(before)
        if parent is not None and parent[1] not in tables:
            continue
        same = same_names(name, columns)
        if len(same) > 1:
            listed = " and ".join(f"'{each}'" for each in same)
            raise invalid(f"{bad}: {name} may mean {listed}, which differ only in letter case")


def _names_in(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the names in an expression, but for functions, each with the text before it."""
    sql = _QUOTED.sub(lambda m: m[0] if m[0].startswith("`") else " ", expression)
    for match in _NAME.finditer(sql):
        if not sql[match.end() :].lstrip().startswith("("):
            yield match[0], sql[: match.start()].rstrip()


# -- errors -------------------------------------------------------------------------------


def find_problem(plan: Callable[[], object], bad: str) -> LanceNamespaceError | None:
    """Return the error for something that cannot be planned, or None."""
    try:
        with panics_as_errors():
            plan()
    except NOT_PLANNED as error:
        found = to_plan_error(error, bad)
        found.__cause__ = error
        return found
    return None


def to_plan_error(error: Exception, bad: str) -> LanceNamespaceError:
    """Return TableColumnNotFound, InvalidInput, or an error of the storage for a failed plan."""
    if isinstance(error, OSError) and not is_refusal(error):
        return as_namespace_error("The table could not be read", error)
    missing = find_missing_column(error)
    if missing is not None:
        return TableColumnNotFoundError(f"{bad}: there is no column {missing}")
    if isinstance(error, RuntimeError):
        # A panic inside Lance.
        return invalid(f"{bad}: Lance cannot plan it")
    # The last bracket is on a separate line, and the message is only one line.
    return invalid(f"{bad}: {first_line(ValueError(str(error).replace(_END, ')')))}")


def find_missing_column(error: Exception) -> str | None:
    """Return the missing column that a failure to plan names, or None."""
    found = _MISSING.search(str(error))
    return found and truncate(found["field"] or found["column"] or found["nested"], 120)


@contextmanager
def add_known_columns(dataset: lance.LanceDataset) -> Iterator[None]:
    """Add the table's columns to the message about a missing column.

    Raises:
        TableColumnNotFoundError: (12) with the first columns of the table.
    """
    try:
        yield
    except TableColumnNotFoundError as error:
        columns = [written([each]) for each in dataset.schema.names]
        listed = first_names(columns, _MOST_COLUMNS)
        raise TableColumnNotFoundError(f"{error}; its columns are {listed}") from error


@contextmanager
def translate_query_errors(what: str) -> Iterator[None]:
    """Translate failures of a planned query: an expression that fails on a row, or the storage.

    Raises:
        InvalidInputError: (13) an expression fails on a row, such as a division by zero.
        InvalidTableStateError: (19) a file of the version is missing.
        ServiceUnavailableError: (17) or another error of the storage.
        InternalError: (18) Lance panicked.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise to_query_error(error, what) from error


def to_query_error(error: Exception, what: str) -> LanceNamespaceError:
    """Return InvalidInput, InvalidTableState, Internal or a storage's error for a failed query."""
    if _is_on_a_row(error):
        return invalid(f"{what}: {first_line(error)}")
    missing = _MISSING_FILE.search(str(error))
    if missing is not None:
        return InvalidTableStateError(
            f"{what}: the file {missing[1]} is missing. If a clean-up deleted it meanwhile, read "
            "the latest version; otherwise restore it. `lance-bridge doctor` says what else to do"
        )
    return as_namespace_error(what, error)


def _is_on_a_row(error: Exception) -> bool:
    text = str(error)
    if BROKEN_FILE in text:
        return False
    if has_wrong_value(error) or any(each in text for each in _ON_A_ROW):
        return True
    return STORAGE_ERROR not in text and _OF_EXECUTION.search(text) is not None


def does_not_fit(what: str, expression: str, table: str) -> str:
    """Return the beginning of a message about an expression that cannot be planned."""
    return f"{what} {quote(expression)} does not fit table '{table}'"


def quote(expression: str) -> str:
    """Return the beginning of an expression for a message, in quotes."""
    return truncate(repr(expression), 200)


def truncate(text: str, longest: int) -> str:
    """Return the beginning of a text, with an ellipsis if it was cut."""
    return text if len(text) <= longest else f"{text[:longest]}…"
