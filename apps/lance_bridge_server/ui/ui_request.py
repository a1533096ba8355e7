"""A request for a page, and the operations that the page runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from starlette.requests import Request

from ..errors import public_text
from ..execution import Method
from ..gateway import Gateway
from ..operations import OPERATIONS
from ..principals import Principal
from .table_names import TableNames
from .urls import names_in

T = TypeVar("T")

OPERATION_BY_NAME = {each.name: each for each in OPERATIONS}
_SECONDS = 20.0
"""How long an operation may take. After that, the page lacks its part."""


@dataclass(frozen=True)
class Part(Generic[T]):
    """A part of a page, or why it is missing."""

    value: T | None = None
    error: LanceNamespaceError | None = None

    @property
    def message(self) -> str:
        """Why it is missing, without secrets and addresses; empty if it is not missing."""
        return error_text(self.error) if self.error else ""

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
        return await self.gateway.call(http, known, fields, read, seconds, method=method)

    async def attempt(
        self,
        operation: str,
        fields: Mapping[str, Any],
        read: Callable[[Any], Any] = lambda result: result,
        seconds: float = _SECONDS,
        *,
        method: Method | None = None,
    ) -> Part[Any]:
        """Run an operation for a part of the page, and return its result or error."""
        return await as_part(self.call(operation, fields, read, seconds, method=method))


async def as_part(work: Awaitable[T]) -> Part[T]:
    """Await work, and return its result or its error of the API."""
    try:
        return Part(await work)
    except LanceNamespaceError as error:
        return Part(error=error)


async def together(*parts: Awaitable[Any]) -> list[Any]:
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
