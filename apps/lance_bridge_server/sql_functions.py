"""SQL functions that a server refuses: their results can be far larger than their arguments.

The length of a result can be a number in the request, the product of two arguments' lengths, or
grow exponentially with nested calls. Lance evaluates expressions without a memory limit. A failed
allocation ends the process with all of its requests, and the right to read a table is enough to
cause one.

An expression that repeats a column of large values, such as with ``||``, is not refused: its result
grows only linearly with the length of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from lance_bridge.errors import invalid

REFUSED = (
    "array_join", "array_repeat", "array_replace_all", "array_replace_n", "array_resize",
    "array_to_string", "concat_ws", "encode", "generate_series", "list_join", "list_repeat",
    "list_replace_all", "list_replace_n", "list_resize", "list_to_string", "lpad", "range",
    "regexp_replace", "repeat", "replace", "rpad",
)  # fmt: skip
MAX_FIXED_SIZE = 8192
"""How many values a fixed-size type may have in a cast: each null takes that space too."""
_EXPRESSIONS = {
    "column_aliases", "computed", "expression", "filter", "predicate", "updates",
    "when_matched_update_all_filt", "when_not_matched_by_source_delete_filt", "where",
}  # fmt: skip
"""Fields of requests that contain SQL: a string, or strings in a list or a map."""

_CALL = re.compile(rf"\b({'|'.join(REFUSED)})[`\"]?\s*(?:\(|--|/\*)", re.IGNORECASE)
"""A call. A comment may precede its bracket."""
_CAST = re.compile(r"\b(arrow_cast|arrow_try_cast)[`\"]?\s*(?:\(|--|/\*)", re.IGNORECASE)
_TYPE = re.compile(r",\s*'([^']*)'\s*\)\Z")
"""The last argument of a call, if it is a string literal."""
_TEXT = re.compile(r"'[^']*'")
_AMBIGUOUS = re.compile(r"--|/\*|[\\`\"]")
"""If one of these occurs, only a parser could find where string literals begin."""


def refuse_functions(fields: Mapping[str, Any]) -> None:
    """Check the SQL in a request.

    Args:
        fields: The request's fields, as JSON has them.

    Raises:
        InvalidInputError: (13) it calls a function of `REFUSED`, or casts to a type whose values
            are too large.
    """
    for expression in _expressions(fields):
        code = expression if _AMBIGUOUS.search(expression) else _TEXT.sub("''", expression)
        found = _CALL.search(code)
        if found:
            raise invalid(
                f"The function {found[1].lower()} is not available on this server: its result can "
                "be larger than the server's memory"
            )
        for cast in _CAST.finditer(code):
            _check_cast(cast[1].lower(), expression)


def _check_cast(function: str, expression: str) -> None:
    """Check the types in calls of a function that casts."""
    if "\\" in expression or _AMBIGUOUS.search(_TEXT.sub("''", expression)):
        raise invalid(f"{function} cannot be used with comments, quoted names or escapes")
    texts = [found.span() for found in _TEXT.finditer(expression)]
    for cast in _CAST.finditer(expression):
        if any(start < cast.start() < end for start, end in texts):
            continue
        end = _end_of_call(expression, cast.end())
        named = _TYPE.search(expression, cast.end(), end)
        if named is None:
            raise invalid(f"The second argument of {function} must be a type as a string literal")
        size = prod(max(int(number), 1) for number in re.findall(r"\b\d+\b", named[1]))
        if "fixed" in named[1].lower() and size > MAX_FIXED_SIZE:
            raise invalid(
                f"{function} cannot cast to {named[1][:100]} on this server: a type of fixed size "
                f"may have {MAX_FIXED_SIZE} values at most"
            )


def _end_of_call(expression: str, start: int) -> int:
    """Return the end of the call whose opening bracket is before ``start``."""
    depth, position = 1, start
    for token in re.finditer(r"'[^']*'|[()]", expression[start:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        position = start + token.end()
        if depth == 0:
            break
    return position


def _expressions(value: Any, *, is_sql: bool = False) -> Iterator[str]:
    if isinstance(value, str) and is_sql:
        yield value
    elif isinstance(value, list):
        for each in value:
            if not isinstance(each, (int, float)):  # a vector has millions of them
                yield from _expressions(each, is_sql=is_sql)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _expressions(each, is_sql=is_sql or name in _EXPRESSIONS)
