"""The page that searches tables by name, column and property, in every catalog."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from lance_namespace.errors import ErrorCode
from starlette.responses import Response

from lance_bridge_federated import FederatedNamespace, Scope, Search

from ..errors import public_text
from .addresses import address
from .rendering import html_page
from .ui_request import Part, UiRequest, as_part
from .visible_namespace import VisibleNamespace

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
    results: Part[Results] = Part(Results())
    if word:
        catalogs = await _visible_catalogs(ui)
        deadline = time.monotonic() + _SECONDS
        search = Search(
            {
                name: partial(VisibleNamespace, ui, parent, deadline)
                for name, parent in catalogs.items()
            },
            word,
            scopes,
        )
        work = partial(_results_of, search, catalogs)
        running = ui.gateway.work(ui.http, work, ui.http.state.operation, _SECONDS + _GRACE_SECONDS)
        results = await as_part(running)
    return html_page(
        "search.html",
        section="Search",
        principal=ui.principal,
        word=word,
        scopes={each: each in scopes for each in Scope},
        results=results,
    )


def _requested_scopes(ui: UiRequest) -> frozenset[Scope]:
    named = ui.http.query_params.getlist("in")
    return frozenset(each for each in Scope if each.value in named) or frozenset({Scope.NAME})


async def _visible_catalogs(ui: UiRequest) -> dict[str, list[str]]:
    """Return the catalogs by name, each with the path of its root."""
    if not isinstance(ui.gateway.namespace, FederatedNamespace):
        return {"": []}
    answer = await ui.call("list_namespaces", {"id": []})
    return {name: [name] for name in answer.namespaces}


def _results_of(search: Search, catalogs: Mapping[str, list[str]]) -> Results:
    matches = list(islice(search, _MOST_MATCHES + 1))
    found = []
    for each in matches[:_MOST_MATCHES]:
        path = [*catalogs[each.catalog], *each.table]
        text = "" if each.scope is Scope.NAME else each.text[:_LONGEST]
        found.append(Found(".".join(path), address("table", path), each.scope.value, text))
    unavailable = {
        name or "The catalog": public_text(why, ErrorCode.SERVICE_UNAVAILABLE)
        for name, why in search.unavailable.items()
    }
    return Results(found, len(matches) > _MOST_MATCHES, unavailable, len(search.unread))
