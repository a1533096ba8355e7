"""Conditions for Lance, built from columns and values, which are quoted correctly.

    col("year") >= 2020
    (col("name") == "O'Hara") & col("price").is_not_null() | col("tag").is_in(["a", "b"])

Lance compares values by its own rules; for numbers, strings and null these are the rules of SQL.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lance_bridge.errors import invalid, require_text

_LARGEST = 2**63 - 1
_DIGITS = 38


@dataclass(frozen=True)
class Condition:
    """A condition on rows, in Lance's SQL."""

    sql: str

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"({self.sql} AND {other.sql})")

    def __or__(self, other: Condition) -> Condition:
        return Condition(f"({self.sql} OR {other.sql})")

    def __invert__(self) -> Condition:
        return Condition(f"(NOT {self.sql})")

    def __bool__(self) -> bool:
        raise invalid("A condition is not true or false by itself: join them with &, | and ~")


@dataclass(frozen=True, eq=False)
class Col:
    """A column or a nested field; compare it with a value to get a condition."""

    sql: str

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]  # makes SQL
        return self._compare("=", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]  # makes SQL
        return self._compare("<>", value)

    def __lt__(self, value: Any) -> Condition:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Condition:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Condition:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Condition:
        return self._compare(">=", value)

    __hash__ = None  # type: ignore[assignment]  # __eq__ does not compare

    def is_in(self, values: Iterable[Any]) -> Condition:
        """Return whether the value is one of ``values``; false if there are none."""
        listed = ", ".join(literal(each) for each in values)
        return Condition(f"({self.sql} IN ({listed}))" if listed else "(false)")

    def between(self, low: Any, high: Any) -> Condition:
        """Return whether the value is between ``low`` and ``high``, both inclusive."""
        return self._compare(">=", low) & self._compare("<=", high)

    def starts_with(self, text: str) -> Condition:
        return Condition(f"starts_with({self.sql}, {literal(text)})")

    def contains(self, text: str) -> Condition:
        return Condition(f"contains({self.sql}, {literal(text)})")

    def is_null(self) -> Condition:
        return Condition(f"({self.sql} IS NULL)")

    def is_not_null(self) -> Condition:
        return Condition(f"({self.sql} IS NOT NULL)")

    def _compare(self, sign: str, value: object) -> Condition:
        if value is None:
            raise invalid(f"{self.sql} {sign} null holds for no row: use is_null()")
        other = value.sql if isinstance(value, Col) else literal(value)
        return Condition(f"({self.sql} {sign} {other})")


def col(*path: str) -> Col:
    """Return a column by its name, or a nested field by the names of its path.

    Raises:
        InvalidInputError: (13) no name is given, or one that Lance's SQL does not allow.
    """
    if not path or not all(path):
        raise invalid("A column needs a name")
    for name in path:
        require_text("The column", name)
        if "`" in name:
            raise invalid(f"A condition of Lance cannot name column {name!r}: it has a backtick")
    return Col(".".join(f"`{name}`" for name in path))


def literal(value: object) -> str:
    """Return a value as a literal of Lance's SQL.

    Raises:
        InvalidInputError: (13) there is no literal for values of this type, or for this number.
    """
    for kinds, written in _LITERALS:
        if isinstance(value, kinds):
            return written(value)
    raise invalid(f"A condition cannot have a value of type {type(value).__name__}")


def _integer(value: int) -> str:
    # Lance parses an integer that does not fit into 64 bits as a float, and rejects it.
    if -_LARGEST <= value <= _LARGEST:
        return str(value)
    if value == -_LARGEST - 1:
        return f"arrow_cast('{value}', 'Int64')"
    if 0 < value <= 2 * _LARGEST + 1:
        return f"arrow_cast('{value}', 'UInt64')"
    return _decimal(decimal.Decimal(value))


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise invalid(f"A condition cannot have the number {value}")
    return repr(value)


def _decimal(value: decimal.Decimal) -> str:
    """Return an exact decimal; Lance would parse a plain number as a float."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise invalid(f"A condition cannot have the number {value}")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > _DIGITS:
        raise invalid(f"A condition cannot have a number of more than {_DIGITS} digits: {value}")
    return f"arrow_cast('{value:f}', 'Decimal128({precision}, {scale})')"


def _text(value: str) -> str:
    require_text("The value", value)
    return "'" + value.replace("'", "''") + "'"


def _timestamp(value: datetime.datetime) -> str:
    """Return a timestamp, converted to UTC if the value has a time zone."""
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc)
    return f"timestamp '{value.replace(tzinfo=None).isoformat(sep=' ')}'"


_LITERALS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    # Subclasses come first: bool is an int, and datetime is a date.
    (bool, lambda value: "true" if value else "false"),
    (int, _integer),
    (float, _float),
    (decimal.Decimal, _decimal),
    (str, _text),
    (datetime.datetime, _timestamp),
    (datetime.date, lambda value: f"date '{value.isoformat()}'"),
    (bytes, lambda value: f"X'{value.hex()}'"),
)


def sql_of(condition: str | Condition | None) -> str | None:
    """Return a condition as SQL.

    Raises:
        InvalidInputError: (13) it is neither SQL nor a `Condition`.
    """
    if condition is None or isinstance(condition, str):
        return condition
    if isinstance(condition, Condition):
        return condition.sql
    raise invalid(f"filter must be Lance's SQL or a condition of col(…), not {condition!r}")
