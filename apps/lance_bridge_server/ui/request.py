"""A request for a page: the operations that it runs, and what its principal sees."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    ServiceUnavailableError,
    ThrottlingError,
)
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge.errors import OutcomeUnknownError, display
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated.identifiers import with_text

from ..access.authentication import Principal
from ..errors import public_text
from ..gateway.breakers import CatalogUnavailableError
from ..gateway.gateway import Gateway
from ..operations import OPERATIONS
from ..queries.calling import Method
from ..queries.runs import Run, RunGroup
from .caches import Caches
from .rendering import html_page, names_in

# -- request ---------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)
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
    caches: Caches = field(default_factory=Caches)
    runs: RunGroup = field(default_factory=RunGroup)
    """Ends its queries."""

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
            run = self.runs.add(Run(seconds))
            return await self.gateway.call(
                http, known, fields, read, seconds, method=method, run=run
            )
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
        text = str(error)
        is_child = isinstance(self.gateway.namespace, FederatedNamespace) and id
        whole = f"'{id[0]}'" if is_child else "The catalog"
        if isinstance(error, OutcomeUnknownError) or text.startswith(f"{whole} did not respond"):
            return error
        if isinstance(error, CatalogUnavailableError):
            return with_text(error, f"{whole} did not respond")
        if text.startswith(f"{operation} did not respond"):
            subject = f"'{display(id)}'" if id else whole
            return with_text(error, f"{subject}{text.removeprefix(operation)}")
        if operation not in _OF_CATALOG or _BUSY in text:
            return error
        _log.info("%s of %s: %s", operation, display(id), text)
        seconds = time.monotonic() - started
        within = f" within {int(seconds)} s" if seconds >= 1 else ""
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


# -- namespaces that a principal sees --------------------------------------------------------------


class PageTimeLimitError(ServiceUnavailableError):
    """A page has no time left for a call, which was not made."""


@dataclass
class VisibleNamespace(LanceNamespace):
    """Lists and describes the objects in one namespace, with identifiers relative to it.

    Tables of all formats are listed. Each call is authorized and recorded like a call of the API,
    and runs in the calling thread.
    """

    ui: UiRequest
    parent: list[str]
    """The namespace that is the root of this one."""
    deadline: float
    """By `time.monotonic`. No call is made after it."""
    describe: Method | None = None
    """Replaces the description of a table."""

    def namespace_id(self) -> str:
        """Return the id of the namespace."""
        return f"VisibleNamespace {{ parent: {self.parent} }}"

    def list_namespaces(self, request: Any) -> Any:
        """List as the API does. Raises ServiceUnavailable (17) after the deadline."""
        return self.call("list_namespaces", request)

    def list_tables(self, request: Any) -> Any:
        """List tables of all formats. Raises ServiceUnavailable (17) after the deadline."""
        return self.call("list_tables", request, self.ui.caches.table_names.list_tables)

    def describe_table(self, request: Any) -> Any:
        """Describe as the API does. Raises ServiceUnavailable (17) after the deadline."""
        return self.call("describe_table", request, self.describe)

    def call(self, operation: str, request: Any, method: Method | None = None) -> Any:
        """Run an operation. Raises ServiceUnavailable (17) after the deadline."""
        started = time.monotonic()
        if started > self.deadline:
            raise PageTimeLimitError("The time limit of this page was exceeded")
        fields = request.model_dump(exclude_none=True)
        fields["id"] = [*self.parent, *(request.id or ())]
        http, known = self.ui.http, OPERATION_BY_NAME[operation]
        try:
            return self.ui.gateway.call_sync(http, known, fields, _unchanged, method=method)
        except ServiceUnavailableError as error:
            raise self.ui.explain(error, operation, fields["id"], started) from error


def _unchanged(result: Any) -> Any:
    return result
