"""Hide secrets in reports, and replace what a page or a parser cannot read."""

from __future__ import annotations

import math
import re
from typing import Any

from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.redaction import is_secret, redact

HIDDEN = "(not shown)"

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters except tab and newline, surrogates, and characters forbidden in XML."""


def without_secrets(value: Any) -> Any:
    """Return JSON in which strings with secret keys are hidden."""
    if isinstance(value, dict):
        return {key: _hide_secret(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value


def _hide_secret(key: str, value: Any) -> Any:
    if isinstance(value, str) and value and _is_secret(key):
        return HIDDEN
    return without_secrets(value)


def _is_secret(key: str) -> bool:
    of_store = key.startswith(STORAGE_PREFIX) and CatalogConfig.is_secret(key)
    return of_store or is_secret(key)


def sanitize(value: Any) -> Any:
    """Return JSON that is valid in any page and parser, with secrets in strings redacted.

    NaN and infinity become strings; unprintable characters are replaced.
    """
    if isinstance(value, dict):
        return {sanitize(key): sanitize(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sanitize(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _sanitize_text(value) if isinstance(value, str) else value


def _sanitize_text(text: str) -> str:
    return redact(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))
