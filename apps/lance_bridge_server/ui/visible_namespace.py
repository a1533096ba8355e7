"""A catalog as the principal of a page sees it, for code that works on a namespace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import ServiceUnavailableError

from ..execution import Method
from .ui_request import OPERATION_BY_NAME, UiRequest


@dataclass
class VisibleNamespace(LanceNamespace):
    """Lists and describes the objects in one namespace, with identifiers relative to it.

    Each call is authorized and recorded like a call of the API, and runs in the calling thread.
    """

    ui: UiRequest
    parent: list[str]
    """The namespace that is the root of this one."""
    deadline: float
    """By `time.monotonic`. No call is made after it."""

    def namespace_id(self) -> str:
        """Return the id of the namespace."""
        return f"VisibleNamespace {{ parent: {self.parent} }}"

    def list_namespaces(self, request: api.ListNamespacesRequest) -> api.ListNamespacesResponse:
        """List as the API does. Raises ServiceUnavailable (17) after the deadline."""
        found: api.ListNamespacesResponse = self._call("list_namespaces", request)
        return found

    def list_tables(self, request: api.ListTablesRequest) -> api.ListTablesResponse:
        """List as the API does. Raises ServiceUnavailable (17) after the deadline."""
        found: api.ListTablesResponse = self._call(
            "list_tables", request, self.ui.table_names.list_tables
        )
        return found

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        """Describe as the API does. Raises ServiceUnavailable (17) after the deadline."""
        found: api.DescribeTableResponse = self._call("describe_table", request)
        return found

    def _call(self, operation: str, request: Any, method: Method | None = None) -> Any:
        if time.monotonic() > self.deadline:
            raise ServiceUnavailableError("The time limit of this page was exceeded")
        fields = request.model_dump(exclude_none=True)
        fields["id"] = [*self.parent, *(request.id or ())]
        return self.ui.gateway.call_sync(
            self.ui.http,
            OPERATION_BY_NAME[operation],
            fields,
            lambda result: result,
            method=method,
        )
