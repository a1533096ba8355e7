"""Runs the query of a page of rows, and finds the field of the form that an error is about."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    TableColumnNotFoundError,
)

from lance_bridge.errors import invalid

from .row_query import RowQuery
from .row_reader import as_reader, read_value
from .time_travel import State
from .ui_request import Part, UiRequest, error_text

_ROW = re.compile(r"row:([0-9]{1,20})")
_MOST_NUMBERS = 100_000
_QUERY_ERRORS = (InvalidInputError, TableColumnNotFoundError)
"""Errors that a change of the query can fix. Others are about no field of the form."""
_FIELDS = ("filter", "near", "text", "sort")
"""The fields of the form that can be wrong."""


@dataclass(frozen=True)
class Outcome:
    """The result of a query, or its error."""

    found: Part[Any]
    field: str = ""
    """The field of the form that the error is about; empty if it is about none of them."""

    @property
    def message(self) -> str:
        """The error's message; empty if there is no error."""
        return error_text(self.found.error) if self.found.error else ""


async def find_rows(
    ui: UiRequest,
    state: State,
    query: RowQuery,
    vector_columns: Sequence[str],
    read: Callable[[Any], Any],
    *,
    count: int,
    with_row_id: bool = False,
) -> Outcome:
    """Read the rows of a query on a page's table.

    Args:
        vector_columns: The table's vector columns.
        read: Converts the result, in the operation's thread.
        count: How many rows to read.
    """
    if query.near and not query.column:
        query = replace(query, column=_default_column(vector_columns))
    try:
        vector = await _vector_of(ui, state, query, vector_columns)
    except _QUERY_ERRORS as error:
        return Outcome(Part(error=error), "near")
    except LanceNamespaceError as error:
        return Outcome(Part(error=error))
    fields = {
        "id": ui.names,
        "with_row_id": with_row_id,
        **state.fields,
        **query.fields(vector, count),
    }
    found = await ui.attempt("query_table", fields, read)
    if not isinstance(found.error, _QUERY_ERRORS):
        return Outcome(found)
    return await _find_wrong_field(ui, fields, query, vector, found)


async def _find_wrong_field(
    ui: UiRequest,
    fields: Mapping[str, Any],
    query: RowQuery,
    vector: Sequence[float] | None,
    failed: Part[Any],
) -> Outcome:
    """Return a query's error with the wrong field: a query with only that field fails, too."""
    given = [each for each in _FIELDS if getattr(query, each)]
    if len(given) == 1:
        return Outcome(failed, given[0])
    kept = {key: value for key, value in fields.items() if key not in query.fields(vector, 1)}
    for name in given:
        others: dict[str, Any] = {each: "" for each in given if each != name}
        alone = replace(query, **others, offset=0)
        of_field = alone.fields(vector if name == "near" else None, 1)
        found = await ui.attempt("query_table", {**kept, **of_field}, _read_nothing)
        if isinstance(found.error, _QUERY_ERRORS):
            return Outcome(found, name)
    return Outcome(failed)


def _read_nothing(result: Any) -> None:
    as_reader(result).close()


def _default_column(columns: Sequence[str]) -> str:
    """Return the vector column that the API searches by default, or an empty string."""
    return "vector" if "vector" in columns else next(iter(columns), "")


async def _vector_of(
    ui: UiRequest, state: State, query: RowQuery, columns: Sequence[str]
) -> list[float] | None:
    """Return the vector to search for, or None.

    Raises:
        InvalidInputError: (13) it is not a vector, or its row does not exist or has no vector.
        LanceNamespaceError: The row cannot be read.
    """
    if not query.near:
        return None
    row = _ROW.fullmatch(query.near)
    if not row:
        return parse_vector(query.near)
    column = query.column
    if column not in columns:
        raise invalid(f"Column '{column}' holds no vectors")
    values = await read_value(ui, state, column, row[1])
    if values is None:
        raise invalid(f"Row {row[1]} does not exist, or has no vector in '{column}'")
    return [float(each) for each in values]


def parse_vector(text: str) -> list[float]:
    """Return the numbers in a text, as JSON or separated by commas or white space.

    Raises:
        InvalidInputError: (13) it contains anything else, or too many numbers.
    """
    inner = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    if not 0 < len(inner) <= _MOST_NUMBERS:
        raise invalid("A vector is numbers, such as [0.5, 1, -2]")
    try:
        numbers = [float(json.loads(each)) for each in inner]
    except (ValueError, TypeError):
        raise invalid("A vector is numbers, such as [0.5, 1, -2]") from None
    if not all(map(math.isfinite, numbers)):
        raise invalid("The numbers of a vector must be finite")
    return numbers
