"""What Glue's own service model, which botocore carries, says of requests: fields and limits."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lance_bridge.errors import invalid

_SHOWN = 60
_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model writes the characters beyond U+FFFF: as pairs of UTF-16."""


def fitted(shape: Any, value: Any) -> Any:
    """Return ``value`` with only the fields that ``shape`` has, at every depth.

    An answer and the request that puts it back have most of their fields in common. Taking them
    from the model keeps those, too, that a later release of botocore knows of.

    Args:
        shape: A shape of botocore's service model.
        value: What botocore made of an answer.
    """
    if shape.type_name == "structure":
        return {k: fitted(shape.members[k], v) for k, v in value.items() if k in shape.members}
    if shape.type_name == "list":
        return [fitted(shape.member, each) for each in value]
    if shape.type_name == "map":
        return {key: fitted(shape.value, each) for key, each in value.items()}
    return value


def check(shape: Any, value: Any, what: str) -> None:
    """Check texts against the limits of the model, which botocore itself does not look at.

    Args:
        shape: The shape of a text, or of a map of properties.
        value: The text or the map; None passes.
        what: What to call it in the message.

    Raises:
        InvalidInputError: (13) too short, too long, or with characters that Glue refuses.
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
