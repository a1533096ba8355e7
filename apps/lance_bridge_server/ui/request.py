"""A request for a page: the operations that it runs, and the names of tables, which are cached."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    ServiceUnavailableError,
    ThrottlingError,
)
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.catalog import Path
from lance_bridge.errors import OutcomeUnknownError, display
from lance_bridge.paging import PageRequest, encode_token
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.identifiers import with_text

from ..access.authentication import Principal
from ..access.permissions import catalog_of
from ..errors import public_text
from ..gateway.breakers import CatalogUnavailableError
from ..gateway.gateway import Gateway
from ..operations import OPERATIONS
from ..queries.calling import Method
from .rendering import html_page, names_in

# -- names -----------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)

_LONG_SECONDS = 0.2
"""Faster listings are not cached."""
_FRESH_SECONDS = 30.0
"""How long names are used without listing them again."""
_MOST_SECONDS = 600.0
"""How long they are used at most, while they are listed in the background."""
_MOST_LISTINGS = 16


@dataclass
class _CachedNames:
    """The cached names of one namespace."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while they are listed, so that concurrent requests list only once."""
    names: list[str] = field(default_factory=list)
    listed_at: float = float("-inf")
    """By `time.monotonic`."""

    def age(self) -> float:
        """Return the age of the names in seconds."""
        return time.monotonic() - self.listed_at

    def list_again(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        """List the names, and cache them if that took long. Raises what the catalog raises."""
        started = time.monotonic()
        page = PageRequest("names", None, None)
        names, _ = namespace.tables.list(path, page)
        now = time.monotonic()
        is_long = now - started >= _LONG_SECONDS
        self.names, self.listed_at = (names, now) if is_long else ([], float("-inf"))
        return names


class TableNames:
    """The names of Lance tables, by catalog and namespace. Safe to share between threads.

    They are cached for each namespace object, and filtered for the principal after each call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[Any, OrderedDict[Path, _CachedNames]]
        self._kept = weakref.WeakKeyDictionary()

    def list_tables(self, namespace: LanceNamespace, request: Any) -> api.ListTablesResponse:
        """Return a page as `LanceNamespace.list_tables`. Raises what that raises."""
        names = list(request.id or ())
        child, inner = catalog_at(namespace, names)
        if not isinstance(child, LanceBridgeNamespace):
            return namespace.list_tables(request)
        page = PageRequest.parse(f"tables of {names}", request.limit, request.page_token)
        found = self._names(child, child.namespace_path(inner, of_tables=True))
        start = bisect_right(found, page.after[0]) if page.after else 0
        end = len(found) if page.limit is None else start + page.limit
        token = encode_token(page.scope, (found[end - 1],)) if end < len(found) else None
        return api.ListTablesResponse(tables=found[start:end], page_token=token)

    def _names(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        kept = self._cached_names(namespace, path)
        if _FRESH_SECONDS < kept.age() <= _MOST_SECONDS:
            self._refresh(kept, namespace, path)
        if kept.age() <= _MOST_SECONDS:
            return kept.names
        with kept.lock:
            fresh = kept.age() <= _FRESH_SECONDS  # another request may have listed them
            return kept.names if fresh else kept.list_again(namespace, path)

    def _cached_names(self, namespace: LanceBridgeNamespace, path: Path) -> _CachedNames:
        with self._lock:
            listings = self._kept.setdefault(namespace, OrderedDict())
            found = listings.setdefault(path, _CachedNames())
            listings.move_to_end(path)
            if len(listings) > _MOST_LISTINGS:
                listings.popitem(last=False)
            return found

    def _refresh(self, kept: _CachedNames, namespace: LanceBridgeNamespace, path: Path) -> None:
        """List names in the background, unless that is already running."""
        if kept.lock.acquire(blocking=False):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(_list_and_release, kept, namespace, path), daemon=True
            ).start()


def _list_and_release(kept: _CachedNames, namespace: LanceBridgeNamespace, path: Path) -> None:
    try:
        kept.list_again(namespace, path)
    except LanceNamespaceError as error:
        kept.listed_at = float("-inf")  # the next page says why
        _log.warning("The tables of %s could not be listed: %s", path, error)
    finally:
        kept.lock.release()


def catalog_at(namespace: LanceNamespace, names: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the catalog of an identifier, and the identifier in that catalog."""
    child = catalog_of(namespace, tuple(names))
    return child, list(names if child is namespace else names[1:])


# -- request ---------------------------------------------------------------------------------------


T = TypeVar("T")

OPERATION_BY_NAME = {each.name: each for each in OPERATIONS}
_OF_CATALOG = ("list_namespaces", "list_tables", "describe_namespace")
"""Operations that only call the catalog."""
_BUSY = "the server is busy"
"""A part of the message of errors that are about no catalog."""
_SECONDS = 20.0
"""How long an operation may take. After that, the page lacks its part."""


@dataclass(frozen=True)
class Result(Generic[T]):
    """A part of a page, or why it is missing."""

    value: T | None = None
    error: LanceNamespaceError | None = None

    @property
    def message(self) -> str:
        """Why it is missing, without secrets and addresses; empty if it is not missing."""
        return error_text(self.error) if self.error else ""

    @property
    def can_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return isinstance(self.error, (ServiceUnavailableError, ThrottlingError))

    def require(self) -> T:
        """Return the value. Raises the error if it is missing."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # T may be None itself


@dataclass(frozen=True)
class UiRequest:
    """A request for a page."""

    gateway: Gateway
    http: Request
    table_names: TableNames = field(default_factory=TableNames)

    @property
    def principal(self) -> Principal:
        found: Principal = self.http.state.principal
        return found

    @property
    def names(self) -> list[str]:
        """The names of the namespace or table that the page shows. Raises InvalidInput (13)."""
        return names_in(self.http.path_params.get("path", ""))

    def text(self, name: str) -> str:
        """Return a parameter of the query, stripped of white space, or an empty string."""
        return self.http.query_params.get(name, "").strip()

    def page(self, template: str, **context: Any) -> Response:
        """Render a page for the principal; see `html_page`."""
        return html_page(template, principal=self.principal, **context)

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        read: Callable[[Any], Any] = lambda result: result,
        seconds: float = _SECONDS,
        *,
        method: Method | None = None,
    ) -> Any:
        """Run an operation for the principal; see `Gateway.call`.

        Args:
            operation: The method of `lance_namespace.LanceNamespace`.
            method: Replaces that method.

        Raises:
            LanceNamespaceError: What the operation raises.
        """
        http, known = self.http, OPERATION_BY_NAME[operation]
        started = time.monotonic()
        try:
            return await self.gateway.call(http, known, fields, read, seconds, method=method)
        except ServiceUnavailableError as error:
            raise self.explain(error, operation, fields["id"], started) from error

    def explain(
        self,
        error: ServiceUnavailableError,
        operation: str,
        id: Sequence[str],
        started: float = math.inf,
    ) -> ServiceUnavailableError:
        """Return an error that says what did not respond, without the words of libraries.

        Errors about a busy server, or about the storage of a table, are returned unchanged.

        Args:
            operation: The operation that raised it, or that it names.
            id: The object of the operation.
            started: When the operation began, by `time.monotonic`, if that is known.
        """
        catalog, text = self.gateway.catalog_of(id), str(error)
        is_child = isinstance(self.gateway.namespace, FederatedNamespace) and id
        whole = f"'{id[0]}'" if is_child else "The catalog"
        if isinstance(error, OutcomeUnknownError):
            return error
        if isinstance(error, CatalogUnavailableError) and catalog is not None:
            return with_text(error, f"{whole} did not respond within {catalog.timeout:g} s")
        if text.startswith(f"{operation} did not respond"):
            subject = f"'{display(id)}'" if id else whole
            return with_text(error, f"{subject}{text.removeprefix(operation)}")
        if operation not in _OF_CATALOG or _BUSY in text:
            return error
        _log.info("%s of %s: %s", operation, display(id), text)
        seconds = time.monotonic() - started
        within = f" within {math.ceil(seconds)} s" if seconds >= 1 else ""
        return with_text(error, f"{whole} did not respond{within}")

    async def attempt(
        self, operation: str, fields: Mapping[str, Any], *given: Any, **options: Any
    ) -> Result[Any]:
        """Run an operation as `call` does for a part of the page; return its result or error."""
        return await as_result(self.call(operation, fields, *given, **options))


async def as_result(work: Awaitable[T]) -> Result[T]:
    """Await work, and return its result or its error of the API."""
    try:
        return Result(await work)
    except LanceNamespaceError as error:
        return Result(error=error)


async def gather(*parts: Awaitable[Any]) -> list[Any]:
    """Await several parts of a page concurrently, and return their results in order.

    The first error is raised after all have ended, so that none outlives the request.
    """
    results = await asyncio.gather(*parts, return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results


def public_finding(text: str) -> str:
    """Return a text of the doctor without secrets and addresses."""
    return public_text(text, ErrorCode.INVALID_INPUT)


def error_text(error: LanceNamespaceError) -> str:
    """Return the message of an error without secrets and addresses."""
    return public_text(str(error), ErrorCode(error.code))
