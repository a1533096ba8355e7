"""The secrets of this process's catalogs, to remove them from texts of other libraries.

A catalog's error may repeat what it was sent. `lance_bridge.redaction` recognises many secrets by
patterns; the ones here are recognised by their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from lance_namespace import LanceNamespace
from pydantic import BaseModel, SecretStr

from lance_bridge.config import CatalogConfig
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.redaction import HIDDEN, redact
from lance_bridge.storage_options import (
    STORAGE_PREFIX,
    VENDOR_PREFIX,
    may_be_credential,
    public_only,
)
from lance_bridge_federated.children import hides
from lance_bridge_federated.namespace import delegates

# -- secrets ---------------------------------------------------------------------------------------


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


# -- addresses -------------------------------------------------------------------------------------


_SHOWN = "[address]"
_END = r"(?:\[[^\]\s]*\])?[^\s\"'<>,;()\[\]{}]*[^\s\"'<>,;()\[\]{}.:]"
_THRIFT = re.compile(rf"\bthrift://{_END}")
_ADDRESS = re.compile(
    rf"\bhttps?://{_END}"
    r"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])"
    r"|(?<![\w./-])[A-Za-z][\w-]*(?:\.[\w-]+)*:\d{3,5}(?![\w.])"
    r"|\[[0-9a-fA-F:]{2,45}\]:\d+"
    r"|(?<=\bhost=')[^']+|(?<=\bresolve ')[^']+"  # of urllib3
)
_HOST = re.compile(r"\b(?:thrift|https?)://(?:[^/@\s,]*@)?([^/\s,:\[\]]+)")

HOSTS = SecretValues(_SHOWN)
"""Names of the hosts of this process's catalogs."""


def hosts_of(namespace: LanceNamespace, properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the host names in a catalog's properties, in quotes if they could be common words."""
    for key, value in property_texts_of(namespace, properties).items():
        found = _HOST.findall(value) or ([value] if key == "host" else [])
        yield from (each if "." in each else f"'{each}'" for each in found)


def hide_addresses(text: str, *, repeats_request: bool = False) -> str:
    """Return a text with its addresses replaced.

    Args:
        repeats_request: Whether the text repeats a part of the request, such as a wrong location.
            If so, only thrift addresses and the hosts of catalogs are hidden.
    """
    text = _THRIFT.sub(_SHOWN, text)
    if not repeats_request:
        text = _ADDRESS.sub(_SHOWN, text)
    return HOSTS.hide(text)


# -- credentials of other namespaces ---------------------------------------------------------------


@delegates
class PublicAnswers(LanceNamespace):
    """A namespace whose responses contain only public storage options."""

    def __init__(self, namespace: LanceNamespace, public: Collection[str]) -> None:
        """Args: public: The names of public options, without the prefixes of their stores."""
        self.namespace = namespace
        self._public = public

    def delegate(self, operation: str, request: Any, *rows: Any) -> Any:
        """Call the namespace, and remove private storage options from its response."""
        answer = getattr(self.namespace, operation)(request, *rows)
        _remove_private_options(answer, self._public)
        return answer

    def namespace_id(self) -> str:
        """Return what the namespace is connected to."""
        return self.namespace.namespace_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.namespace, name)


def _remove_private_options(answer: Any, public: Collection[str]) -> None:
    """Remove private storage options from a response, and from the responses in it."""
    if isinstance(answer, list):
        for each in answer:
            _remove_private_options(each, public)
    elif isinstance(answer, dict):
        if isinstance(answer.get("storage_options"), dict):
            answer["storage_options"] = public_only(answer["storage_options"], public)
    elif isinstance(answer, BaseModel):
        for name in type(answer).model_fields:
            value = getattr(answer, name)
            if name == "storage_options":
                setattr(answer, name, public_only(value or {}, public) or None)
            else:
                _remove_private_options(value, public)
