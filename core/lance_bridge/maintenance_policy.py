"""What maintenance of a table does, by properties of the table and of its namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .errors import invalid

PREFIX = "maintenance."
"""What the keys begin with. Other keys that begin so are refused: they would have no effect."""
LEAST_AGE = timedelta(hours=1)
"""Readers of an old version and running jobs may need it for this long."""

_LARGEST = 10**12
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_MAX_DIGITS = 6


@dataclass(frozen=True)
class MaintenancePolicy:
    """When a table is maintained. The name of a property is `PREFIX` and that of the attribute.

    Attributes:
        enabled: Whether the table is maintained at all.
        target_rows: Rows of a fragment; smaller fragments beside each other can be joined.
        min_fragments: From how many such fragments the table is compacted.
        deleted_share: The share of deleted rows above which a fragment is rewritten.
        unindexed_rows: From how many rows that an index lacks the indices are optimized.
        keep_age: How long a version stays after it was replaced; None if age does not matter.
        keep_versions: How many of the latest versions stay; None if their number does not matter.
    """

    enabled: bool = True
    target_rows: int = 1024 * 1024
    min_fragments: int = 10
    deleted_share: float = 0.1
    unindexed_rows: int = 100_000
    keep_age: timedelta | None = None
    keep_versions: int | None = None

    @classmethod
    def of(cls, *properties: Mapping[str, str]) -> MaintenancePolicy:
        """Return the policy of a table.

        Args:
            properties: Of its namespaces, the outermost first, and at last its own: each property
                of a later mapping replaces that of an earlier one.

        Raises:
            InvalidInputError: (13) the value in effect is not valid, or a key is not known.
        """
        merged = {key.lower(): value for each in properties for key, value in each.items()}
        found = {key: value for key, value in merged.items() if key.startswith(PREFIX)}
        return cls(**{key.removeprefix(PREFIX): parse(key, found[key]) for key in found})

    @property
    def deletes_versions(self) -> bool:
        """Whether old versions are deleted: only if a property says which stay."""
        return self.keep_age is not None or self.keep_versions is not None

    @property
    def least_age(self) -> timedelta:
        """The time since a version was replaced from which it may be deleted."""
        return LEAST_AGE if self.keep_age is None else self.keep_age


def is_maintenance(key: str) -> bool:
    """Return whether a property is one of maintenance, in any letter case."""
    return key.lower().startswith(PREFIX)


def parse(key: str, value: str) -> Any:
    """Return the value of a property.

    Raises:
        InvalidInputError: (13) the value is not valid, or the key is not known.
    """
    if key.lower() not in _PARSERS:
        known = ", ".join(_PARSERS)
        raise invalid(f"Property '{key[:60]}' is unknown: those of maintenance are {known}")
    parser, wanted = _PARSERS[key.lower()]
    found = parser(value.strip())
    if found is None:
        raise invalid(f"Property '{key}' must be {wanted}, not {value[:60]!r}")
    return found


def _parse_flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _parse_share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share < 1 else None


def parse_duration(text: str) -> timedelta | None:
    """Return the time that a text such as ``90m``, ``36h`` or ``14d`` says; None if it is none."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not _is_number(number) or len(number) > _MAX_DIGITS:
        return None
    return timedelta(**{_UNITS[unit]: int(number)})


def _parse_age(text: str) -> timedelta | None:
    age = parse_duration(text)
    return age if age is not None and age >= LEAST_AGE else None


def _at_least(least: int) -> Callable[[str], int | None]:
    def parse_number(text: str) -> int | None:
        number = int(text) if _is_number(text) and len(text) <= len(str(_LARGEST)) else 0
        return number if least <= number <= _LARGEST else None

    return parse_number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    f"{PREFIX}enabled": (_parse_flag, "true or false"),
    f"{PREFIX}target_rows": (_at_least(1), "a whole number, 1 or more"),
    f"{PREFIX}min_fragments": (_at_least(2), "a whole number, 2 or more"),
    f"{PREFIX}deleted_share": (_parse_share, "a number between 0 and 1, such as 0.1"),
    f"{PREFIX}unindexed_rows": (_at_least(1), "a whole number, 1 or more"),
    f"{PREFIX}keep_age": (_parse_age, "an hour or more, such as 90m, 36h or 14d"),
    f"{PREFIX}keep_versions": (_at_least(1), "a whole number, 1 or more"),
}
"""By key: what returns the value, or None if it is not valid; and what is valid."""
