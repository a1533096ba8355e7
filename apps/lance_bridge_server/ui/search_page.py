"""The page that searches tables by name, column and property, in every catalog."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from lance_namespace.errors import ErrorCode
from starlette.responses import Response

from lance_bridge_federated import FederatedNamespace, Scope, Search

from ..errors import public_text
from .rendering import address, html_page
from .request import Result, UiRequest, VisibleNamespace, as_result, gather

_SECONDS = 15.0
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
    return html_page(
        "search.html",
        section="Search",
        principal=ui.principal,
        word=word,
        scopes={each: each in scopes for each in Scope},
        results=await _search(ui, word, scopes) if word else Results(),
    )


async def _search(ui: UiRequest, word: str, scopes: frozenset[Scope]) -> Results:
    """Search all visible catalogs concurrently: a slow one does not delay or fail the others."""
    catalogs = await _visible_catalogs(ui)
    deadline = time.monotonic() + _SECONDS

    def search_in(name: str, path: list[str]) -> Awaitable[Result[Results]]:
        namespace = partial(VisibleNamespace, ui, path, deadline)
        work = partial(_results_of, Search({name: namespace}, word, scopes), path)
        operation = ui.http.state.operation
        return as_result(ui.gateway.work(ui.http, work, operation, _SECONDS + _GRACE_SECONDS))

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
