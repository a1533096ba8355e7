"""The page that finds tables of every format by names, columns and properties."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField, JsonArrowSchema
from starlette.responses import Response

from lance_bridge_federated import FederatedNamespace, Scope, Search

from ..errors import public_text
from .browse import UNKNOWN
from .figures import Entry, load_entries
from .foreign import ForeignColumn, describe_foreign
from .rendering import address, shown_properties
from .request import Result, UiRequest, VisibleNamespace, as_result, gather
from .tree import load_tree

_SEARCH_SECONDS = 15.0
_GRACE_SECONDS = 15.0
"""Extra time for calls that are running when the time is over."""
_MOST_MATCHES = 200
_LONGEST = 300

Path = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A table with its matching text."""

    path: Path
    where: str
    text: str
    entry: Entry

    @property
    def name(self) -> str:
        """The full name."""
        return ".".join(self.path)

    @property
    def format(self) -> str:
        """The format of the table."""
        return self.entry.format or UNKNOWN

    @property
    def address(self) -> str:
        """The address of the table's page."""
        return address("table" if self.entry.is_lance else "other", self.path)


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
    tree, results = await gather(load_tree(ui, ()), _search(ui, word, scopes))
    return ui.page(
        "search.html",
        section="Search",
        tree=tree,
        word=word,
        scopes={each: each in scopes for each in Scope},
        results=results,
    )


async def _search(ui: UiRequest, word: str, scopes: frozenset[Scope]) -> Results:
    """Search all visible catalogs concurrently: one that is down does not delay the others."""
    if not word:
        return Results()
    catalogs = await _visible_catalogs(ui)
    deadline = time.monotonic() + _SEARCH_SECONDS
    parts = await gather(
        *(_search_in(ui, path, word, scopes, deadline) for path in catalogs.values())
    )
    found, unavailable, unread = [], {}, 0
    for name, part in zip(catalogs, parts, strict=True):
        if part.error is not None:
            unavailable[_shown(name)] = part.message
            continue
        found += part.value.found
        unavailable |= part.value.unavailable
        unread += part.value.unread
    return Results(found[:_MOST_MATCHES], len(found) > _MOST_MATCHES, unavailable, unread)


async def _search_in(
    ui: UiRequest, path: list[str], word: str, scopes: frozenset[Scope], deadline: float
) -> Result[Results]:
    """Search one catalog. Args: path: The catalog's path in the gateway's namespace."""
    namespace = VisibleNamespace(ui, path, deadline, _describe_any)
    search = Search({"".join(path): lambda: namespace}, word, scopes)
    operation, seconds = ui.http.state.operation, _SEARCH_SECONDS + _GRACE_SECONDS
    work = partial(_results_of, search, namespace)
    start = partial(ui.gateway.work, ui.http, work, operation, seconds)
    watched = ui.gateway.watched_catalog(path)
    part: Awaitable[Results] = watched.wait_for(start) if watched is not None else start()
    found = await as_result(part)
    if isinstance(found.error, ServiceUnavailableError):
        return Result(error=ui.explain(found.error, operation.name, path))
    return found


def _requested_scopes(ui: UiRequest) -> frozenset[Scope]:
    named = ui.http.query_params.getlist("in")
    return frozenset(each for each in Scope if each.value in named) or frozenset({Scope.NAME})


async def _visible_catalogs(ui: UiRequest) -> dict[str, list[str]]:
    """Return the catalogs by name, each with the path of its root."""
    if not isinstance(ui.gateway.namespace, FederatedNamespace):
        return {"": []}
    answer = await ui.call("list_namespaces", {"id": []})
    return {name: [name] for name in answer.namespaces}


def _results_of(search: Search, namespace: VisibleNamespace) -> Results:
    """Run a search in one catalog, with one match more than the page shows."""
    matches = list(islice(search, _MOST_MATCHES + 1))
    entries = _entries_of(namespace, {each.table for each in matches})
    found = [
        Found(
            (*namespace.parent, *each.table),
            each.scope.value,
            "" if each.scope is Scope.NAME else each.text[:_LONGEST],
            entries.get(each.table, Entry("")),
        )
        for each in matches
    ]
    unavailable = {
        _shown(name): public_text(why, ErrorCode.SERVICE_UNAVAILABLE)
        for name, why in search.unavailable.items()
    }
    return Results(found, unavailable=unavailable, unread=len(search.unread))


def _shown(catalog: str) -> str:
    return catalog or "the catalog"


# -- tables of every format ------------------------------------------------------------------------


def _entries_of(namespace: VisibleNamespace, tables: set[Path]) -> dict[Path, Entry]:
    """Return the entries of tables, without those that cannot be read in time."""
    names: dict[Path, list[str]] = defaultdict(list)
    for path in sorted(tables):
        names[path[:-1]].append(path[-1])
    entries: dict[Path, Entry] = {}
    for parent, wanted in names.items():
        method = partial(load_entries, names=wanted, all_at_once=False)
        request = api.ListTablesRequest(id=list(parent), limit=len(wanted))
        try:
            found = namespace.call("list_tables", request, method).entries
        except LanceNamespaceError:
            continue
        entries |= {(*parent, name): entry for name, entry in found.items()}
    return entries


def _describe_any(namespace: LanceNamespace, request: Any) -> api.DescribeTableResponse:
    """Describe a table of any format, without the values that may be secrets.

    Raises:
        LanceNamespaceError: As `LanceNamespace.describe_table`.
    """
    try:
        found = namespace.describe_table(request)
    except InvalidInputError:  # the error for tables of other formats
        table = describe_foreign(namespace, request)
        if table is None or table.is_lance:
            raise
        schema = JsonArrowSchema(fields=list(_fields(table.columns)))
        answer = api.DescribeTableResponse(properties=dict(table.properties))
        answer.var_schema = schema
        return answer
    return found.model_copy(update={"properties": shown_properties(found.properties)})


def _fields(columns: Sequence[ForeignColumn]) -> Iterator[JsonArrowField]:
    """Yield columns as fields of Arrow, named by their paths, with the types of the catalog."""
    path: list[str] = []
    for each in columns:
        path[each.depth :] = [each.name]
        type_ = JsonArrowDataType(type=each.type)
        yield JsonArrowField(name=".".join(path), type=type_, nullable=each.nullable)
