"""Keeps out of a report what must not be in it: secrets, and characters that no page can hold.

Plans and journals have no secrets. A report is passed on, so that it does not rely on that.
"""

from __future__ import annotations

import math
import re
from typing import Any

from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.redaction import is_secret, redact

HIDDEN = "(not shown)"

_NO_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Controls but for tabs and ends of lines, halves of characters, and what no XML may have."""


def without_secrets(value: Any) -> Any:
    """Return JSON without the texts whose keys say that they are secret."""
    if isinstance(value, dict):
        return {key: _shown(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, str) and value and _is_secret(key):
        return HIDDEN
    return without_secrets(value)


def _is_secret(key: str) -> bool:
    of_store = key.startswith(STORAGE_PREFIX) and CatalogConfig.is_secret(key)
    return of_store or is_secret(key)


def harmless(value: Any) -> Any:
    """Return JSON that any page and any reader of JSON takes, with no password in its texts.

    Numbers that are none become text, and so does each character that is none.
    """
    if isinstance(value, dict):
        return {harmless(key): harmless(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    return redact(_NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text))
