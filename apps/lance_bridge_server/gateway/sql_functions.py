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
from typing import Any

from lance_bridge.dataset import require_sound
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
_CASTS = "arrow_cast|arrow_try_cast"
_CAST = re.compile(rf"\b({_CASTS})[`\"]?\s*(?:\(|--|/\*)", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?P<type>,\s*'(?P<name>[^']*)'\s*\))|'[^']*'"
    rf"|(?P<cast>\b(?:{_CASTS})\s*\()|(?P<open>\()|(?P<close>\))",
    re.IGNORECASE,
)
"""What brackets and their contents are: a last argument that is a string literal with the end of
its call, any other string literal, the start of a cast, or another bracket."""
_TEXT = re.compile(r"'[^']*'")
_AMBIGUOUS = re.compile(r"--|/\*|[\\`\"]")
"""If one of these occurs, only a parser could find where string literals begin."""


def refuse_functions(fields: Mapping[str, Any]) -> None:
    """Check the SQL in a request.

    Args:
        fields: The request's fields, as JSON has them.

    Raises:
        InvalidInputError: (13) it calls a function of `REFUSED`, or casts to a type whose values
            are too large, or its plan could overflow a stack.
    """
    for expression in _expressions(fields):
        code = expression if _AMBIGUOUS.search(expression) else _TEXT.sub("''", expression)
        found = _CALL.search(code)
        if found:
            raise invalid(
                f"The function {found[1].lower()} is not available on this server: its result can "
                "be larger than the server's memory"
            )
        cast = _CAST.search(code)
        if cast:
            _check_casts(cast[1].lower(), expression)
        # Namespaces of other libraries do not check whether a plan overflows a stack.
        require_sound(expression, f"The expression {expression[:100]!r} cannot be planned")


def _check_casts(function: str, expression: str) -> None:
    """Check the types in all calls of the functions that cast, in one pass over the expression.

    Args:
        function: The function that messages name.
    """
    if "\\" in expression or _AMBIGUOUS.search(_TEXT.sub("''", expression)):
        raise invalid(f"{function} cannot be used with comments, quoted names or escapes")
    are_casts: list[bool] = []  # whether each open call is a cast, the innermost last
    for token in _TOKEN.finditer(expression):
        if token["cast"] or token["open"]:
            are_casts.append(token["cast"] is not None)
        elif (token["close"] or token["type"]) and are_casts and are_casts.pop():
            _check_type(function, token["name"])
    if any(are_casts):
        _check_type(function, None)


def _check_type(function: str, name: str | None) -> None:
    """Check the type of a cast; None if it is not a string literal."""
    if name is None:
        raise invalid(f"The second argument of {function} must be a type as a string literal")
    if "fixed" not in name.lower():
        return
    size = 1
    for number in re.finditer(r"\b\d+\b", name):
        size *= max(int(number[0].lstrip("0")[:9] or 0), 1)  # more digits are too many, too
        if size > MAX_FIXED_SIZE:
            raise invalid(
                f"{function} cannot cast to {name[:100]} on this server: a type of fixed size "
                f"may have {MAX_FIXED_SIZE} values at most"
            )


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
