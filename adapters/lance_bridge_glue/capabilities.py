"""Capabilities and limits of AWS Glue; botocore's service model has lengths and characters."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords
from lance_bridge.errors import invalid

_MAX_LENGTH = 255
# Glue accepts nearly everything. This pattern excludes characters with a meaning in paths, ARNs,
# filters or SQL, and letters beyond ASCII, which can be folded to lower case in several ways.
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_NAME_DESCRIPTION = (
    "letters, digits, underscores, hyphens and dots of ASCII, and not begin with '-' or '.'"
)
_SHOWN = 60
DESCRIPTION = "description"
"""The namespace property for the description of the database."""
_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model writes characters beyond U+FFFF: as surrogate pairs of UTF-16."""


def capabilities() -> Capabilities:
    """Return Glue's capabilities: it cannot rename tables, and drops databases with their content.

    Sources: UpdateTable, which accepts no other name; DeleteDatabase.
    """
    return Capabilities(
        namespace_levels=(NameRule("database", _NAME_PATTERN, _NAME_DESCRIPTION, _MAX_LENGTH),),
        table_rule=NameRule("table", _NAME_PATTERN, _NAME_DESCRIPTION, _MAX_LENGTH),
        namespace_words=(NamespaceWords(comment=DESCRIPTION),),
        folds_case=True,
        renames_by_copy=True,
        has_partitions=True,
        publishes_columns=True,
    )


def check(shape: Any, value: Any, what: str) -> None:
    """Check texts against the limits of the model, which botocore itself ignores.

    Args:
        shape: The shape of a text, or of a map of properties.
        value: The text or the map; None is accepted.
        what: Its name in the message.

    Raises:
        InvalidInputError: too short, too long, or with characters that Glue refuses.
    """
    if value is None:
        return
    if shape.type_name == "map":
        for key, text in value.items():
            check(shape.key, key, f"Property key {_shorten(key)}")
            check(shape.value, text, f"The value of property {_shorten(key)}")
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


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
