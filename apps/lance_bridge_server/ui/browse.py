"""The page of a namespace: the namespaces and tables in it. The first page is that of the root."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from starlette.responses import Response

from lance_bridge.names import UNAVAILABLE

from ..gateway.health import OK
from .rendering import address, html_page
from .request import Result, UiRequest, gather
from .tree import error_page, is_no_level, load_tree

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
