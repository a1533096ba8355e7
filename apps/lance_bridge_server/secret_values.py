"""The secrets of this process's catalogs, to remove them from texts of other libraries.

A catalog's error may repeat what it was sent. `lance_bridge.redaction` recognises many secrets by
patterns; the ones here are recognised by their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from lance_namespace import LanceNamespace
from pydantic import SecretStr

from lance_bridge.config import CatalogConfig
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.redaction import HIDDEN, redact
from lance_bridge.storage_options import STORAGE_PREFIX, VENDOR_PREFIX, may_be_credential
from lance_bridge_federated.children import hides

_SECRET = "secret."
_SHORTEST = 6
"""Shorter values could also be words in messages."""


class SecretValues:
    """Replaces known values in texts. Safe to share between threads.

    Args:
        shown: The text that replaces them.
    """

    def __init__(self, shown: str = HIDDEN) -> None:
        self._shown = shown
        self._values: frozenset[str] = frozenset()
        self._pattern = re.compile(r"(?!)")

    def add(self, values: Iterable[str]) -> None:
        """Add values. Those of earlier configurations stay secret."""
        known = {each for each in values if len(each) >= _SHORTEST}
        self._values |= known | {quote(each, safe="") for each in known}
        longest_first = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def hide(self, text: str) -> str:
        """Return a text without the values."""
        return self._pattern.sub(self._shown, text)


SECRETS = SecretValues()
"""The secrets of this process, which has one log."""


def hide_secrets(text: str) -> str:
    """Return a text without the secrets of this process, and others that have a known pattern."""
    return redact(SECRETS.hide(text))


def secrets_of(namespace: LanceNamespace, properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the values that a catalog must not show.

    Args:
        properties: Those that it was connected with; lance-bridge's own know theirs.
    """
    is_secret = _is_secret_of_ours if isinstance(namespace, LanceBridgeNamespace) else _is_secret
    return _secrets_among(property_texts_of(namespace, properties), is_secret)


def hide_renewed_secrets(namespace: LanceNamespace) -> None:
    """Hide the secrets, too, that a catalog reads again when its server refuses the old ones."""
    if isinstance(namespace, LanceBridgeNamespace):
        namespace.connection.config.renewal.call_before_use(_hide_secrets_of)


def _hide_secrets_of(config: CatalogConfig) -> None:
    SECRETS.add(_secrets_among(dict(_texts(config)), _is_secret_of_ours))


def _secrets_among(texts: Mapping[str, str], is_secret: Callable[[str], bool]) -> Iterator[str]:
    for key, value in texts.items():
        if is_secret(key):
            yield value
            password = urlsplit(value).password if "://" in value else None
            if password:
                yield password


def property_texts_of(
    namespace: LanceNamespace, properties: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the properties of a catalog by name, including those of the environment.

    Args:
        properties: Those that it was connected with; lance-bridge's own know theirs.
    """
    if isinstance(namespace, LanceBridgeNamespace):
        return dict(_texts(namespace.connection.config))
    return properties


def _texts(config: Any) -> Iterator[tuple[str, str]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, SecretStr):
            yield f"{_SECRET}{name}", value.get_secret_value()
        elif isinstance(value, str):
            yield field.alias or name, value
    for option, value in config.storage.items():
        yield STORAGE_PREFIX + option, value
    for option, value in config.vendor_options.items():
        yield VENDOR_PREFIX + option, value


def _is_secret_of_ours(key: str) -> bool:
    """Return whether a key of `_texts` is a secret, by its declaration rather than its name."""
    if key.startswith(STORAGE_PREFIX):
        return may_be_credential(key.removeprefix(STORAGE_PREFIX))
    return key.startswith(_SECRET) or CatalogConfig.is_secret(key)


def _is_secret(key: str) -> bool:
    if key.startswith(STORAGE_PREFIX):
        return may_be_credential(key.removeprefix(STORAGE_PREFIX))
    return hides(key)
