"""The endpoints in a ``uri`` property, and which of them to try first."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

Scheme = Literal["thrift", "http", "https"]

_DEFAULT_PORTS: dict[Scheme, int] = {"thrift": 9083, "http": 9083, "https": 9083}
_HTTP_PATH = "/metastore"
_EXAMPLE = "write thrift://host:9083, or http(s)://host:port/metastore"
_FAILURE_SECONDS = 10.0
"""How long a failed endpoint is tried last, in seconds."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a metastore."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""
    """The HTTP path; empty for ``thrift``."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_http(self) -> bool:
        """True if Thrift messages are sent as HTTP requests."""
        return self.scheme != "thrift"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of a comma-separated list of URIs, in their order, each once.

    Raises:
        ValueError: A URI is malformed, or the schemes are mixed. The message says what to write
            and repeats nothing of what may be a secret: user information, query, fragment.
    """
    _refuse_secrets(text)
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"an empty URI between commas: {_EXAMPLE}")
    endpoints = tuple(dict.fromkeys(_parse(part) for part in parts))
    if len({endpoint.is_http for endpoint in endpoints}) > 1:
        raise ValueError("thrift:// and http(s):// cannot be mixed in one list")
    return endpoints


def _refuse_secrets(text: str) -> None:
    # Before the list is split: a comma may be part of a password.
    if "@" in text:
        raise ValueError(
            "a URI must not carry a user or password: write auth.username and auth.password, or "
            "http.token"
        )
    if "?" in text or "#" in text:
        raise ValueError(f"a URI must not have a query or fragment: {_EXAMPLE}")


def _parse(text: str) -> Endpoint:
    if "://" not in text:
        raise ValueError(f"'{text}' has no scheme: write thrift://{text}")
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        # A password instead of the port is malformed too: neither message nor cause may show it.
        raise ValueError(f"a URI is malformed, perhaps its port: {_EXAMPLE}") from None
    if split.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"'{text}' has the unknown scheme '{split.scheme}': {_EXAMPLE}")
    scheme = split.scheme
    if not split.hostname or any(c.isspace() for c in text) or port == 0:
        raise ValueError(f"'{text}' names no host or no valid port: {_EXAMPLE}")
    return Endpoint(scheme, split.hostname, port or _DEFAULT_PORTS[scheme], _path(split))


def _path(split: SplitResult) -> str:
    if split.scheme == "thrift":
        if split.path not in ("", "/"):
            raise ValueError(f"'{split.geturl()}' must not have a path: {_EXAMPLE}")
        return ""
    return split.path if split.path not in ("", "/") else _HTTP_PATH


class Failover:
    """The endpoints of one pool and their last results. Safe to share between threads."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._lock = threading.Lock()
        self._order = list(endpoints)
        self._failed: dict[Endpoint, float] = {}
        self._replied: set[Endpoint] = set()

    def candidates(self) -> list[Endpoint]:
        """Return all endpoints: the last that was reached first, recent failures last."""
        now = time.monotonic()
        with self._lock:
            return sorted(
                self._order,
                key=lambda e: now - self._failed.get(e, -_FAILURE_SECONDS) < _FAILURE_SECONDS,
            )

    def record_success(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` was reached: it is tried first from now on."""
        with self._lock:
            self._failed.pop(endpoint, None)
            if self._order[0] != endpoint:
                self._order.remove(endpoint)
                self._order.insert(0, endpoint)

    def record_reply(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` replied to a call."""
        with self._lock:
            self._replied.add(endpoint)

    def has_replied(self, endpoint: Endpoint) -> bool:
        """Return True if ``endpoint`` ever replied to a call, so that the settings fit it."""
        with self._lock:
            return endpoint in self._replied

    def record_failure(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` failed."""
        with self._lock:
            self._failed[endpoint] = time.monotonic()
