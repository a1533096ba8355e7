"""The health of a server's catalogs: whether they respond."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import anyio.to_thread
import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode, LanceNamespaceError
from pydantic import ConfigDict

from lance_bridge.config import Seconds
from lance_bridge.errors import internal

_log = logging.getLogger(__name__)

OK = "OK"
_NO_ANSWER = "NO_ANSWER"
_ANSWERING = (ErrorCode.PERMISSION_DENIED, ErrorCode.UNSUPPORTED)
"""Codes of a catalog that responds, but refuses the request."""


@dataclass(frozen=True)
class ReadinessSettings:
    """How `/readyz` checks catalogs."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    all_catalogs: bool = False
    """Whether a server is ready only if all catalogs respond. By default one is enough: a server
    that is not ready gets no requests, which makes the other catalogs unreachable too."""
    timeout: Seconds = 2.0
    """How many seconds a catalog may take to respond."""
    keep: Seconds = 5.0
    """How many seconds a result is cached."""


def probe(namespace: LanceNamespace) -> LanceNamespaceError | None:
    """Request one namespace from a catalog. Return why it does not respond, or None.

    A catalog that denies the request or does not support it counts as responding.
    """
    try:
        namespace.list_namespaces(api.ListNamespacesRequest(id=[], limit=1))
    except LanceNamespaceError as error:
        return None if error.code in _ANSWERING else error
    except BaseException as error:  # noqa: BLE001 - other libraries' namespaces raise anything
        found = internal("list_namespaces", error)
        found.__cause__ = error
        return found
    return None


class CatalogHealth:
    """Requests one namespace from each catalog concurrently, and caches the results."""

    def __init__(self, catalogs: Mapping[str, LanceNamespace], settings: ReadinessSettings) -> None:
        self._settings = settings
        self._probes = [_Probe(name, each) for name, each in catalogs.items()]
        self._states: dict[str, str] = {}
        self._good_until = 0.0
        self._lock = anyio.Lock()

    async def states(self) -> Mapping[str, str]:
        """Return the state of each catalog: ``OK``, the name of an error code, or ``NO_ANSWER``."""
        async with self._lock:
            if time.monotonic() >= self._good_until:
                deadline = time.monotonic() + self._settings.timeout
                for each in self._probes:
                    each.start()
                self._states = {
                    each.name: await anyio.to_thread.run_sync(each.wait, deadline)
                    for each in self._probes
                }
                self._good_until = time.monotonic() + self._settings.keep
            return self._states

    def is_ready(self, states: Mapping[str, str]) -> bool:
        """Return whether enough catalogs respond."""
        answering = [state == OK for state in states.values()]
        return all(answering) if self._settings.all_catalogs else any(answering)


class _Probe:
    """Calls one catalog in its own thread, because the call may outlast the timeout."""

    def __init__(self, name: str, namespace: LanceNamespace) -> None:
        self.name = name
        self._namespace = namespace
        self._thread: threading.Thread | None = None
        self._state = OK
        self._logged = OK

    def start(self) -> None:
        """Call the catalog, unless an earlier call is still running."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._thread.start()

    def wait(self, deadline: float) -> str:
        """Wait for the state, until the deadline (of `time.monotonic`) at the latest."""
        assert self._thread is not None
        self._thread.join(max(0.0, deadline - time.monotonic()))
        state = _NO_ANSWER if self._thread.is_alive() else self._state
        if state != self._logged:
            _log.log(logging.INFO if state == OK else logging.WARNING, "%s: %s", self.name, state)
            self._logged = state
        return state

    def _ask(self) -> None:
        error = probe(self._namespace)
        state = OK if error is None else ErrorCode(error.code).name
        if error is not None and state != self._logged:
            # Only internal errors need a traceback.
            cause = error.__cause__ if state == ErrorCode.INTERNAL.name else None
            _log.warning("catalog '%s' does not respond: %s", self.name, error, exc_info=cause)
        self._state = state
