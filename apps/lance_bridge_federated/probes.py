"""Calls for requests about several catalogs, which end if their catalog does not respond.

A call may well take long: a listing has many names. Whether its catalog responds is found out with
a probe, which is one short call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode, LanceNamespaceError, ServiceUnavailableError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.attempts import one_attempt
from lance_bridge.errors import internal

T = TypeVar("T")

TIMEOUT_SECONDS = 2.0
"""How many seconds a catalog may take to respond to a probe."""
_OTHERS_SECONDS = 10.0
"""The same for one of another library, which may list all namespaces for one."""
PAUSE_SECONDS = 0.5
"""The least time between the beginnings of two probes of a catalog."""
USUAL_SECONDS = 0.2
"""Calls that take longer have their catalog probed."""
STEP_SECONDS = 0.05
_ANSWERING = (ErrorCode.PERMISSION_DENIED, ErrorCode.UNSUPPORTED)
"""Codes of a catalog that responds, but refuses the request."""

Connect = Callable[[], LanceNamespace]
"""Returns the namespace of a catalog."""


def probe(
    connect: Connect, seconds: float | None = None, connect_seconds: float | None = None
) -> LanceNamespaceError | None:
    """Request one namespace from a catalog. Return why it does not respond, or None.

    A catalog that denies the request or does not support it counts as responding.

    Args:
        seconds: How long the only attempt may take; None to attempt it as other calls.
        connect_seconds: How long it may take to connect; by default half of that.
    """
    try:
        with nullcontext() if seconds is None else one_attempt(seconds, connect_seconds):
            connect().list_namespaces(api.ListNamespacesRequest(id=[], limit=1))
    except LanceNamespaceError as error:
        return None if error.code in _ANSWERING else error
    except BaseException as error:  # noqa: BLE001 - other libraries' namespaces raise anything
        found = internal("list_namespaces", error)
        found.__cause__ = error
        return found
    return None


def fulfil(result: futures.Future[T], call: Callable[[], T]) -> None:
    """Make a call, and set its result or its error, which the threads that wait for it raise."""
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the waiting threads raise it
        result.set_exception(error)


def call_while(require_answer: Callable[[], object], call: Callable[[], T]) -> T:
    """Make a call in another thread, and return its result.

    Args:
        require_answer: Called again and again if the call takes long. What it raises ends the wait;
            the call goes on in its thread.
    """
    result: futures.Future[T] = futures.Future()
    run = copy_context().run
    threading.Thread(target=run, args=(fulfil, result, call), daemon=True).start()
    seconds = USUAL_SECONDS
    while not futures.wait({result}, seconds).done:
        require_answer()
        seconds = STEP_SECONDS
    return result.result()


@dataclass(frozen=True)
class ProbedCatalog:
    """Waits for calls of a catalog only while it responds to probes. It refuses no call."""

    name: str
    made: Callable[[], LanceNamespace | None]
    """Returns the namespace, or None while it is not connected."""

    def check(self) -> None:
        """Implement `lance_bridge_federated.children.Gate`."""

    def run(self, call: Callable[[], T]) -> T:
        """Implement `lance_bridge_federated.children.Gate`.

        Raises what the call does, and ServiceUnavailableError (17) if a probe failed or had no
        reply in time: two seconds, or ten for a catalog of another library.
        """
        return call_while(_Probes(self).require_answer, call)


class _Probes:
    """Probes of a catalog, one after the other."""

    def __init__(self, catalog: ProbedCatalog) -> None:
        self._catalog = catalog
        self._began_at = 0.0
        self._asked: futures.Future[LanceNamespaceError | None] | None = None

    def require_answer(self) -> None:
        """Check that the catalog responds. Raises what `ProbedCatalog.run` does."""
        namespace = self._catalog.made()
        if namespace is None:
            return  # the call still connects it
        is_own = isinstance(namespace, LanceBridgeNamespace)
        most = TIMEOUT_SECONDS if is_own else _OTHERS_SECONDS
        now, asked = time.monotonic(), self._asked
        if asked is None or (asked.done() and now - self._began_at >= PAUSE_SECONDS):
            self._asked = asked = futures.Future()
            self._began_at = now
            work = partial(probe, lambda: namespace, most)
            threading.Thread(target=fulfil, args=(asked, work), daemon=True).start()
        elif not asked.done() and now - self._began_at > most + STEP_SECONDS:
            raise self._error(f"it did not respond within {most:g} s")
        error = asked.result() if asked.done() else None
        if error is not None and error.code == ErrorCode.SERVICE_UNAVAILABLE:
            raise self._error(str(error)) from error

    def _error(self, why: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"The catalog '{self._catalog.name}' does not respond: {why}"
        )
