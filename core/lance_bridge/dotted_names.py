"""Names of tables and namespaces as people write them: parts joined with dots, some quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

DELIMITER = "$"
"""Joins the names of an identifier in the response of ListAllTables, and in REST paths."""
UNAVAILABLE = "unavailable."
"""Begins the keys of a response's context that name catalogs which did not respond."""

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN = re.compile(r"[^.`\s]+")


def split_name(text: str) -> list[str] | None:
    """Return the parts of a name joined with dots, or None if it is malformed.

    Backticks quote a part, as in Spark's SQL; a backtick inside one is doubled.
    """
    parts, position = [], 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(text):
            return parts
        if text[position] != ".":
            break
        position += 1
    return None


def parts_of(name: str) -> list[str]:
    """Return the parts of a name, as `split_name`.

    Raises:
        InvalidInputError: (13) it is malformed.
    """
    parts = split_name(name)
    if parts is not None:
        return parts
    from .errors import invalid  # noqa: PLC0415 - takes seconds to import, and completion needs none

    raise invalid(f"'{name}' is not a name: join the parts with dots, in backticks where needed")


def in_backticks(part: str) -> str:
    """Return one part of a name in backticks, for SQL; a backtick inside it is doubled."""
    return f"`{part.replace('`', '``')}`"


def quoted(parts: Sequence[str]) -> str:
    """Return a name for Spark's SQL, every part quoted."""
    return ".".join(in_backticks(part) for part in parts)


def written(parts: Sequence[str]) -> str:
    """Return a name that `parts_of` parses, with parts quoted only if necessary."""
    return ".".join(p if _PLAIN.fullmatch(p) else in_backticks(p) for p in parts)


def same_names(name: str, names: Sequence[str]) -> list[str]:
    """Return the name that is the same, or else all that differ in letter case only."""
    if name in names:
        return [name]
    return [each for each in names if each.lower() == name.lower()]


def find_name(name: str, names: Sequence[str]) -> str | None:
    """Return the one of some names that a name means, in any letter case; None if there is none.

    Raises:
        InvalidInputError: (13) it is none of them, and several differ from it in letter case only.
    """
    same = same_names(name, names)
    if len(same) < 2:
        return same[0] if same else None
    from .errors import invalid  # noqa: PLC0415 - see `parts_of`

    listed = " and ".join(f"'{each}'" for each in same)
    raise invalid(f"'{name}' may mean {listed}, which differ only in letter case: name one of them")


def by_name(given: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """Return values by the names that their keys mean; those that mean none are left out.

    Raises:
        InvalidInputError: (13) a key may mean several, or several mean the same; see `find_name`.
    """
    found: dict[str, T] = {}
    for key, value in given.items():
        name = find_name(key, names)
        if name in found:
            from .errors import invalid  # noqa: PLC0415 - see `parts_of`

            raise invalid(f"'{name}' is named twice, in different letter cases")
        if name is not None:
            found[name] = value
    return found


def first_names(names: Sequence[str], limit: int, separator: str = ", ") -> str:
    """Return some names for a message, and how many more there are: ``a, b and 3 more``."""
    more = len(names) - limit
    return separator.join(names[:limit]) + (f" and {more} more" if more > 0 else "")
