"""What AWS Glue can do and hold; lengths and characters are those of botocore's service model."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords
from lance_bridge.errors import invalid

_LONGEST = 255
# Glue accepts nearly everything. Excluded is what has a meaning in paths, ARNs, filters or SQL, and
# letters beyond ASCII, which can be folded to lower case in several ways.
_ALLOWED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_SAYS = "letters, digits, underscores, hyphens and dots of ASCII, and not begin with '-' or '.'"
_SHOWN = 60
DESCRIPTION = "description"
"""The property of a namespace that is the description of the database."""
_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model writes characters beyond U+FFFF: as pairs of UTF-16."""


def capabilities() -> Capabilities:
    """Return what Glue can do: it renames no table, and drops databases that are not empty.

    Sources: UpdateTable, which accepts no other name; DeleteDatabase, which drops the content.
    """
    return Capabilities(
        namespace_levels=(NameRule("database", _ALLOWED, _SAYS, _LONGEST),),
        table_rule=NameRule("table", _ALLOWED, _SAYS, _LONGEST),
        namespace_words=(NamespaceWords(comment=DESCRIPTION),),
        folds_case=True,
        renames_by_copy=True,
        has_partitions=True,
    )


def check(shape: Any, value: Any, what: str) -> None:
    """Check texts against the limits of the model, which botocore itself ignores.

    Args:
        shape: The shape of a text, or of a map of properties.
        value: The text or the map; None passes.
        what: Its name in the message.

    Raises:
        InvalidInputError: too short, too long, or with characters that Glue refuses.
    """
    if value is None:
        return
    if shape.type_name == "map":
        for key, text in value.items():
            check(shape.key, key, f"Property key {_short(key)}")
            check(shape.value, text, f"The value of property {_short(key)}")
        return
    limits = shape.metadata
    if not limits.get("min", 0) <= len(value) <= limits.get("max", len(value)):
        raise invalid(
            f"{what} has {len(value)} characters; Glue allows {limits.get('min', 0)} to "
            f"{limits['max']}"
        )
    if "pattern" in limits and not _pattern(limits["pattern"]).fullmatch(value):
        raise invalid(f"{what} has control characters, or others that Glue refuses")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(_PAIRS, r"\U00010000-\U0010FFFF"))


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
