"""SQL functions that a server refuses: one value of theirs is as long as a number in the request.

Lance evaluates them in memory that nothing limits. An allocation that fails ends the process, with
the requests of everyone else, and reading a table is enough to ask for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lance_bridge.errors import invalid

REFUSED = (
    "array_repeat", "array_resize", "generate_series", "list_repeat", "list_resize", "lpad",
    "range", "repeat", "rpad",
)  # fmt: skip
_EXPRESSIONS = {
    "column_aliases", "computed", "expression", "filter", "predicate", "updates",
    "when_matched_update_all_filt", "when_not_matched_by_source_delete_filt", "where",
}  # fmt: skip
"""Fields of requests with SQL: a text, or texts in a list or a map."""

_CALL = re.compile(rf"\b({'|'.join(REFUSED)})[`\"]?\s*(?:\(|--|/\*)", re.IGNORECASE)
"""A call. A comment may be before its bracket."""
_TEXT = re.compile(r"'[^']*'")
_AMBIGUOUS = re.compile(r"--|/\*|[\\`\"]")
"""With one of these, it takes a parser to say where a text begins."""


def refuse_functions(fields: Mapping[str, Any]) -> None:
    """Check the SQL in a request.

    Args:
        fields: The request's fields, as JSON has them.

    Raises:
        InvalidInputError: (13) it calls a function of `REFUSED`.
    """
    for expression in _expressions(fields):
        code = expression if _AMBIGUOUS.search(expression) else _TEXT.sub("''", expression)
        found = _CALL.search(code)
        if found:
            raise invalid(
                f"The function {found[1].lower()} is not available on this server: its result can "
                "be larger than the server's memory"
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
