"""The page of a namespace: the namespaces and tables in it. The first page is that of the root."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge.names import UNAVAILABLE

from ..errors import STATUS_BY_CODE, error_headers
from ..gateway.health import OK
from ..http.exchange import exchange_of
from .rendering import address, html_page
from .request import Result, UiRequest, error_text, gather

# -- namespaces ------------------------------------------------------------------------------------


_PAGE_SIZE = 100
_STATES_SECONDS = 0.5


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
    tree, namespaces, tables, properties = await gather(
        load_tree(ui, path),
        _list(ui, "list_namespaces", path),
        _list(ui, "list_tables", path),
        _properties(ui, path),
    )
    failed = _failure(namespaces, tables)
    if failed is not None:
        is_down = isinstance(failed, ServiceUnavailableError)
        return error_page(ui.http, failed, tree=tree if is_down else None)
    if tables.value:
        has_more = bool(tables.value.page_token)
        tree.add_tables(path, tables.value.tables, has_more=has_more)
    return html_page(
        "namespace.html",
        principal=ui.principal,
        tree=tree,
        path=path,
        namespaces=_listing(ui, path, namespaces, "namespaces"),
        tables=_listing(ui, path, tables, "tables"),
        properties=properties,
        has_others=bool(path) and tables.error is None,
        states=await _states(ui) if not path else {},
    )


def _failure(namespaces: Result[Any], tables: Result[Any]) -> LanceNamespaceError | None:
    """Return the error if neither listing succeeded, else None."""
    if namespaces.error is None or tables.error is None:
        return None
    return tables.error if is_no_level(namespaces) else namespaces.error


async def _states(ui: UiRequest) -> dict[str, str]:
    """Return the states of the catalogs that do not respond.

    A page does not wait for a catalog that hangs: the next page shows its state.
    """
    states = asyncio.ensure_future(ui.gateway.health.states())
    done, _ = await asyncio.wait({states}, timeout=_STATES_SECONDS)
    found = states.result() if done else {}
    return {name: state for name, state in found.items() if state != OK}


async def _list(ui: UiRequest, operation: str, path: Sequence[str]) -> Result[Any]:
    is_tables = operation == "list_tables"
    token = ui.text(_parameter("tables" if is_tables else "namespaces"))
    fields = {"id": list(path), "limit": _PAGE_SIZE, "page_token": token or None}
    method = ui.table_names.list_tables if is_tables else None
    return await ui.attempt(operation, fields, method=method)


async def _properties(ui: UiRequest, path: Sequence[str]) -> dict[str, str]:
    """Return the properties of a namespace, or none for the root or if they cannot be read."""
    if not path:
        return {}
    found = await ui.attempt("describe_namespace", {"id": list(path)})
    return dict(sorted((found.value.properties or {}).items())) if found.value else {}


def _parameter(kind: str) -> str:
    return f"{kind}_page"


def _listing(ui: UiRequest, path: list[str], part: Result[Any], kind: str) -> Listing:
    if part.error is not None:
        return Listing(
            message="" if is_no_level(part) and not ui.text(_parameter(kind)) else part.message
        )
    answer = part.require()
    page = "table" if kind == "tables" else "namespace"
    names = getattr(answer, kind)
    return Listing(
        [(name, address(page, [*path, name])) for name in names],
        _page_address(path, kind, answer.page_token) if answer.page_token else "",
        address("namespace", path) if ui.text(_parameter(kind)) else "",
        {
            key.removeprefix(UNAVAILABLE): why
            for key, why in (answer.context or {}).items()
            if key.startswith(UNAVAILABLE)
        },
    )


def _page_address(path: Sequence[str], kind: str, token: str) -> str:
    return address("namespace" if path else "", path, **{_parameter(kind): token})


# -- the tree of catalogs --------------------------------------------------------------------------


# -- tree ------------------------------------------------------------------------------------------


_NAMES = 50
"""How many names of a level are shown. The level's page has the others."""
_SECONDS = 5.0


@dataclass
class Node:
    """A namespace or table in the tree."""

    name: str
    address: str
    is_table: bool = False
    is_current: bool = False
    children: list[Node] | None = None
    """None if it is not opened."""
    message: str = ""
    """Why its children are missing."""
    more: str = ""
    """The address of the page with all children, if some are left out."""

    def add_tables(self, path: Sequence[str], names: Sequence[str], *, has_more: bool) -> None:
        """Add tables to the innermost opened namespace, which has the given path."""
        inner = self
        while opened := [each for each in inner.children or () if each.children is not None]:
            inner = opened[0]
        tables = (Node(each, address("table", [*path, each]), True) for each in names[:_NAMES])
        inner.children = [*(inner.children or ()), *tables]
        if has_more or len(names) > _NAMES:
            inner.more = address("namespace", path)


@dataclass
class _Level:
    """The first names of a level, or why they are missing."""

    names: list[str] = field(default_factory=list)
    has_more: bool = False
    message: str = ""


async def load_tree(ui: UiRequest, path: Sequence[str], *, is_table: bool = False) -> Node:
    """Return the root of the tree, opened down to a path.

    Args:
        path: The path of the object on the page.
        is_table: Whether that is a table. Its siblings are not listed, because there may be many.
    """
    opened = list(path[:-1] if is_table else path)
    levels = await gather(*(_load_level(ui, opened[:depth]) for depth in range(len(opened) + 1)))
    root = node = _node([], levels[0], opened[:1])
    for depth, level in enumerate(levels[1:], 1):
        at = opened[:depth]
        inner = _node(at, level, opened[depth : depth + 1])
        _replace_child(node, inner)
        node = inner
    if is_table:
        node.children = [*(node.children or ()), Node(path[-1], "", True, True)]
        node.children[-1].address = address("table", path)
        node.more = address("namespace", opened)
    else:
        node.is_current = True
    return root


async def _load_level(ui: UiRequest, path: Sequence[str]) -> _Level:
    fields = {"id": list(path), "limit": _NAMES}
    part = await ui.attempt("list_namespaces", fields, seconds=_SECONDS)
    if part.error is not None:
        return _Level(message="" if is_no_level(part) else part.message)
    answer = part.require()
    return _Level(list(answer.namespaces), bool(answer.page_token))


def is_no_level(part: Result[object]) -> bool:
    """Return whether a listing failed because the level cannot contain such objects."""
    return isinstance(part.error, (InvalidInputError, UnsupportedOperationError))


def _node(path: Sequence[str], level: _Level, shown: Iterable[str]) -> Node:
    """Return an opened namespace. Args: shown: Names to show even if they are not in the level."""
    names = [*(each for each in shown if each not in level.names), *level.names]
    return Node(
        path[-1] if path else "",
        address("namespace" if path else "", path),
        children=[Node(each, address("namespace", [*path, each])) for each in names],
        message=level.message,
        more=address("namespace" if path else "", path) if level.has_more else "",
    )


def _replace_child(node: Node, inner: Node) -> None:
    """Replace a closed child by the same namespace opened."""
    node.children = [inner if each.name == inner.name else each for each in node.children or ()]


# -- errors ----------------------------------------------------------------------------------------


_TITLES = {
    400: "Bad request",
    401: "Sign in to see this",
    403: "Not allowed",
    404: "Not found",
    406: "Not supported",
    429: "Too many requests",
    503: "Service unavailable",
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
