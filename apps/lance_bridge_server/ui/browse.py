"""The pages that list and find tables: a namespace, a search, and errors."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge.names import UNAVAILABLE
from lance_bridge_federated import FederatedNamespace, Scope, Search

from ..errors import STATUS_BY_CODE, error_headers, public_text
from ..http.exchange import exchange_of
from ..queries.calling import Method
from .rendering import address, html_page, shown_properties
from .request import OPERATION_BY_NAME, Result, UiRequest, as_result, error_text, gather
from .tree import Node, is_no_level, load_tree

# -- namespaces ------------------------------------------------------------------------------------


_PAGE_SIZE = 100


@dataclass(frozen=True)
class Listing:
    """A page of names with their links."""

    links: list[tuple[str, str]] = field(default_factory=list)
    """Names with addresses."""
    next_page: str = ""
    first_page: str = ""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Catalogs that are left out, and why."""
    message: str = ""
    """Why there are no names."""


async def show_namespace(ui: UiRequest) -> Response:
    """Return the page of a namespace."""
    path = ui.names
    has_catalogs = not path and isinstance(ui.gateway.namespace, FederatedNamespace)
    down = await ui.gateway.health.silent_now() if has_catalogs else set()
    tree, namespaces, tables, properties = await gather(
        load_tree(ui, path),
        _list(ui, "namespaces", path),
        _list(ui, "tables", path),
        _properties(ui, path),
    )
    failed = _failure(namespaces, tables)
    if failed is not None:
        is_down = isinstance(failed, ServiceUnavailableError)
        return error_page(ui.http, failed, tree=tree if is_down else None)
    if tables.value:
        has_more = bool(tables.value.page_token)
        tree.add_tables(path, tables.value.tables, has_more=has_more)
    return ui.page(
        "namespace.html",
        tree=tree,
        path=path,
        namespaces=_listing(ui, path, namespaces, "namespaces"),
        tables=_listing(ui, path, tables, "tables"),
        properties=properties,
        has_others=bool(path) and tables.error is None,
        down=down,
    )


def _failure(namespaces: Result[Any], tables: Result[Any]) -> LanceNamespaceError | None:
    """Return the error if neither listing succeeded, else None."""
    if namespaces.error is None or tables.error is None:
        return None
    return tables.error if is_no_level(namespaces) else namespaces.error


async def _list(ui: UiRequest, kind: str, path: Sequence[str]) -> Result[Any]:
    token = ui.text(f"{kind}_page")
    fields = {"id": list(path), "limit": _PAGE_SIZE, "page_token": token or None}
    method = ui.table_names.list_tables if kind == "tables" else None
    return await ui.attempt(f"list_{kind}", fields, method=method)


async def _properties(ui: UiRequest, path: Sequence[str]) -> dict[str, str]:
    """Return the properties of a namespace, or none for the root or if they cannot be read."""
    if not path:
        return {}
    found = await ui.attempt("describe_namespace", {"id": list(path)})
    return shown_properties(found.value.properties) if found.value else {}


def _listing(ui: UiRequest, path: list[str], part: Result[Any], kind: str) -> Listing:
    parameter = f"{kind}_page"
    if part.error is not None:
        is_expected = is_no_level(part) and not ui.text(parameter)
        return Listing(message="" if is_expected else part.message)
    answer = part.require()
    page = "table" if kind == "tables" else "namespace"
    own = "namespace" if path else ""
    following = {parameter: answer.page_token}
    return Listing(
        [(name, address(page, [*path, name])) for name in getattr(answer, kind)],
        address(own, path, **following) if answer.page_token else "",
        address("namespace", path) if ui.text(parameter) else "",
        {
            key.removeprefix(UNAVAILABLE): why
            for key, why in (answer.context or {}).items()
            if key.startswith(UNAVAILABLE)
        },
    )


# -- errors ----------------------------------------------------------------------------------------


_TITLES = {
    400: "Bad request",
    401: "Sign in to see this",
    403: "Not allowed",
    404: "Not found",
    406: "Not supported",
    429: "Too many requests",
    503: "No response",
}


def error_page(
    request: Request,
    error: LanceNamespaceError,
    *,
    status: int | None = None,
    tree: Node | None = None,
) -> Response:
    """Return the page of an error.

    Args:
        status: Overrides the status of the error's code.
        tree: The tree beside the page, if it is known.
    """
    code = ErrorCode(error.code)
    status = status or STATUS_BY_CODE[code]
    exchange_of(request.scope).code = code.value
    page = html_page(
        "error.html",
        section="",
        status=status,
        principal=request.state.principal,
        tree=tree,
        title=_TITLES.get(status, "Something went wrong"),
        message=error_text(error),
        code=code,
        request_id=request.state.request_id,
    )
    page.headers.update(error_headers(error))
    return page


# -- search ----------------------------------------------------------------------------------------


_SEARCH_SECONDS = 15.0
_GRACE_SECONDS = 15.0
"""Extra time for calls that are running when the time is over."""
_MOST_MATCHES = 200
_LONGEST = 300


@dataclass(frozen=True)
class Found:
    """A table with its matching text."""

    name: str
    address: str
    where: str
    text: str


@dataclass(frozen=True)
class Results:
    """The tables that a search found, and the catalogs and tables that it could not search."""

    found: list[Found] = field(default_factory=list)
    has_more: bool = False
    unavailable: Mapping[str, str] = field(default_factory=dict)
    unread: int = 0
    """The number of tables of which only the name was searched."""


async def show_search(ui: UiRequest) -> Response:
    """Return the page of a search; without a word, only its form."""
    word = ui.text("q")
    scopes = _requested_scopes(ui)
    return ui.page(
        "search.html",
        section="Search",
        word=word,
        scopes={each: each in scopes for each in Scope},
        results=await _search(ui, word, scopes) if word else Results(),
    )


async def _search(ui: UiRequest, word: str, scopes: frozenset[Scope]) -> Results:
    """Search all visible catalogs concurrently: one that is down does not delay the others."""
    catalogs = await _visible_catalogs(ui)
    deadline = time.monotonic() + _SEARCH_SECONDS

    def search_in(name: str, path: list[str]) -> Awaitable[Result[Results]]:
        namespace = partial(VisibleNamespace, ui, path, deadline)
        work = partial(_results_of, Search({name: namespace}, word, scopes), path)
        operation, seconds = ui.http.state.operation, _SEARCH_SECONDS + _GRACE_SECONDS
        start = partial(ui.gateway.work, ui.http, work, operation, seconds)
        watched = ui.gateway.watched_catalog(path)
        return as_result(watched.wait_for(start) if watched is not None else start())

    parts = await gather(*(search_in(name, path) for name, path in catalogs.items()))
    found, unavailable, unread = [], {}, 0
    for name, part in zip(catalogs, parts, strict=True):
        if part.error is not None:
            unavailable[_shown(name)] = part.message
            continue
        found += part.value.found
        unavailable |= part.value.unavailable
        unread += part.value.unread
    return Results(found[:_MOST_MATCHES], len(found) > _MOST_MATCHES, unavailable, unread)


def _requested_scopes(ui: UiRequest) -> frozenset[Scope]:
    named = ui.http.query_params.getlist("in")
    return frozenset(each for each in Scope if each.value in named) or frozenset({Scope.NAME})


async def _visible_catalogs(ui: UiRequest) -> dict[str, list[str]]:
    """Return the catalogs by name, each with the path of its root."""
    if not isinstance(ui.gateway.namespace, FederatedNamespace):
        return {"": []}
    answer = await ui.call("list_namespaces", {"id": []})
    return {name: [name] for name in answer.namespaces}


def _results_of(search: Search, path: list[str]) -> Results:
    """Run a search in one catalog, with one match more than the page shows.

    Args:
        path: The catalog's path in the gateway's namespace.
    """
    found = []
    for each in islice(search, _MOST_MATCHES + 1):
        table = [*path, *each.table]
        text = "" if each.scope is Scope.NAME else each.text[:_LONGEST]
        found.append(Found(".".join(table), address("table", table), each.scope.value, text))
    unavailable = {
        _shown(name): public_text(why, ErrorCode.SERVICE_UNAVAILABLE)
        for name, why in search.unavailable.items()
    }
    return Results(found, unavailable=unavailable, unread=len(search.unread))


def _shown(catalog: str) -> str:
    return catalog or "The catalog"


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

    def list_namespaces(self, request: Any) -> Any:
        """List as the API does. Raises ServiceUnavailable (17) after the deadline."""
        return self._call("list_namespaces", request)

    def list_tables(self, request: Any) -> Any:
        """List as the API does. Raises ServiceUnavailable (17) after the deadline."""
        return self._call("list_tables", request, self.ui.table_names.list_tables)

    def describe_table(self, request: Any) -> Any:
        """Describe as the API does. Raises ServiceUnavailable (17) after the deadline."""
        return self._call("describe_table", request)

    def _call(self, operation: str, request: Any, method: Method | None = None) -> Any:
        if time.monotonic() > self.deadline:
            raise ServiceUnavailableError("The time limit of this page was exceeded")
        fields = request.model_dump(exclude_none=True)
        fields["id"] = [*self.parent, *(request.id or ())]
        http, known = self.ui.http, OPERATION_BY_NAME[operation]
        return self.ui.gateway.call_sync(http, known, fields, lambda result: result, method=method)
