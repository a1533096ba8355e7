"""The pages that list: the catalogs, the namespaces and tables of a namespace; and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from lance_namespace.errors import (
    ErrorCode,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from starlette.requests import Request
from starlette.responses import Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.dotted_names import UNAVAILABLE
from lance_bridge_federated import FederatedNamespace

from ..access.authorizer import AllowAll
from ..access.permissions import RUN_DOCTOR
from ..errors import STATUS_BY_CODE, error_headers, public_text
from ..http.exchange import exchange_of
from .figures import Entry, EntryPage, latest_changes, load_entries
from .rendering import address, html_page, shown_properties
from .request import Result, UiRequest, error_text, gather
from .tree import Node, is_no_level, load_tree

T = TypeVar("T")

# -- catalogs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CatalogLine:
    """A catalog on the first page."""

    name: str
    kind: str
    """The name of its implementation."""
    location: str
    """Where it is; empty for principals that may not run the doctor on it."""
    is_down: bool
    message: str = ""
    """Why it is not listed; empty if it is."""


async def show_catalogs(ui: UiRequest) -> Response:
    """Return the first page: the catalogs, or the namespaces of the one that is the root."""
    if not isinstance(ui.gateway.namespace, FederatedNamespace):
        return await show_namespace(ui)
    down = await ui.gateway.health.silent_now()
    tree, listed = await gather(load_tree(ui, ()), ui.call("list_namespaces", {"id": []}))
    unavailable = _unavailable(listed)
    names = sorted({*listed.namespaces, *unavailable})
    lines = [_catalog_line(ui, name, unavailable.get(name, ""), down) for name in names]
    return ui.page(
        "catalogs.html",
        loads_figures=True,
        tree=tree,
        catalogs=lines,
        has_locations=any(each.location for each in lines),
        changes=latest_changes(ui),
    )


def _catalog_line(ui: UiRequest, name: str, message: str, down: set[str]) -> CatalogLine:
    catalog = ui.gateway.catalogs.get(name)
    kind = location = ""
    if isinstance(catalog, LanceBridgeNamespace):
        kind = catalog.impl
        if ui.gateway.authorizer.check(ui.principal, RUN_DOCTOR, (name,)).allowed:
            location = catalog.catalog.describe_connection()
    is_down = name in down
    return CatalogLine(name, kind, location, is_down, "" if is_down else message)


def _unavailable(answer: Any) -> dict[str, str]:
    """Return the catalogs that a listing left out, and why."""
    return {
        key.removeprefix(UNAVAILABLE): public_text(why, ErrorCode.SERVICE_UNAVAILABLE)
        for key, why in (answer.context or {}).items()
        if key.startswith(UNAVAILABLE)
    }


# -- namespaces ------------------------------------------------------------------------------------


_PAGE_SIZE = 100
_MOST_NAMES = 20_000
"""Tables that a page counts and sorts, without an authorizer."""
_MOST_CHECKED = 500
"""Tables that a page counts and sorts if each has to be authorized; further pages check more."""
_MOST_ENTRIES = 500
"""Tables of a namespace whose entries are all read, so that formats can be chosen and sorted by."""


@dataclass(frozen=True)
class Listing:
    """A page of the names of namespaces with their links."""

    links: list[tuple[str, str]] = field(default_factory=list)
    """Names with addresses."""
    next_page: str = ""
    first_page: str = ""
    message: str = ""
    """Why there are no names."""


async def show_namespace(ui: UiRequest) -> Response:
    """Return the page of a namespace."""
    path = ui.names
    tree, namespaces, tables, properties = await gather(
        load_tree(ui, path),
        _list_namespaces(ui, path),
        _list_tables(ui, path),
        _properties(ui, path),
    )
    failed = _failure(namespaces, tables)
    if failed is not None:
        is_down = isinstance(failed, ServiceUnavailableError)
        return error_page(ui.http, failed, tree=tree if is_down else None)
    listing = await load_tables(ui, tables.value) if tables.value else TableListing()
    if listing.lines:
        shown = [(each.name, each.address) for each in listing.lines]
        tree.add_tables(path, shown, has_more=listing.total > len(shown))
    return ui.page(
        "namespace.html",
        loads_figures=True,
        tree=tree,
        path=path,
        namespaces=_listing(ui, path, namespaces),
        tables=listing,
        tables_message="" if is_no_level(tables) else tables.message,
        properties=properties,
    )


def _failure(namespaces: Result[Any], tables: Result[Any]) -> LanceNamespaceError | None:
    """Return the error if neither listing succeeded, else None."""
    if namespaces.error is None or tables.error is None:
        return None
    return tables.error if is_no_level(namespaces) else namespaces.error


async def _list_namespaces(ui: UiRequest, path: Sequence[str]) -> Result[Any]:
    token = ui.text("namespaces_page")
    fields = {"id": list(path), "limit": _PAGE_SIZE, "page_token": token or None}
    return await ui.attempt("list_namespaces", fields)


async def _list_tables(ui: UiRequest, path: Sequence[str]) -> Result[Any]:
    """Return the names of the tables of all formats that the principal sees, or the first ones."""
    fields = {"id": list(path), "limit": _most_names(ui)}
    return await ui.attempt("list_tables", fields, method=ui.caches.table_names.list_tables)


def _most_names(ui: UiRequest) -> int:
    if _sees_all(ui):
        return _MOST_NAMES
    return max(_MOST_CHECKED, TableChoice.of(ui).page * _PAGE_SIZE + 1)


def _sees_all(ui: UiRequest) -> bool:
    """Return whether no table is hidden from the principal by the authorizer."""
    return type(ui.gateway.authorizer) is AllowAll


async def _properties(ui: UiRequest, path: Sequence[str]) -> dict[str, str]:
    """Return the properties of a namespace, or none for the root or if they cannot be read."""
    if not path:
        return {}
    found = await ui.attempt("describe_namespace", {"id": list(path)})
    return shown_properties(found.value.properties) if found.value else {}


def _listing(ui: UiRequest, path: list[str], part: Result[Any]) -> Listing:
    parameter = "namespaces_page"
    if part.error is not None:
        is_expected = is_no_level(part) and not ui.text(parameter)
        return Listing(message="" if is_expected else part.message)
    answer = part.require()
    own = "namespace" if path else ""
    following = {parameter: answer.page_token}
    return Listing(
        [(name, address("namespace", [*path, name])) for name in answer.namespaces],
        address(own, path, **following) if answer.page_token else "",
        address(own, path) if ui.text(parameter) else "",
    )


# -- tables ----------------------------------------------------------------------------------------


_SORTED = ("name", "format", "owner")
UNKNOWN = "unknown"
"""The format of a table in addresses and on pages if it is not known."""


@dataclass(frozen=True)
class TableChoice:
    """The tables that the address of a page asks for, and their order."""

    path: list[str]
    word: str = ""
    """A part of their names."""
    format: str = ""
    """Their format; empty for all."""
    sort: str = "name"
    """One of `_SORTED`, with ``-`` before it for a descending order."""
    page: int = 1

    @classmethod
    def of(cls, ui: UiRequest) -> TableChoice:
        """Return the choice in the address of a page. What is malformed has its default."""
        sort, page = ui.text("sort"), ui.text("page")
        return cls(
            ui.names,
            ui.text("name"),
            ui.text("format"),
            sort if sort.removeprefix("-") in _SORTED else "name",
            max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    @property
    def address(self) -> str:
        """The address of the page."""
        return address(
            "namespace" if self.path else "",
            self.path,
            name=self.word,
            format=self.format,
            sort="" if self.sort == "name" else self.sort,
            page="" if self.page == 1 else self.page,
        )

    def order_of(self, column: str) -> str:
        """Return the value of ``aria-sort`` for a column; empty if it is not sorted."""
        if self.sort == column:
            return "ascending"
        return "descending" if self.sort == f"-{column}" else ""

    def sorted_by(self, column: str) -> TableChoice:
        """Return the choice sorted by a column, descending if it is already sorted ascending."""
        return replace(self, sort=f"-{column}" if self.sort == column else column, page=1)

    def takes_name(self, name: str) -> bool:
        """Return whether it includes a table by its name."""
        return self.word.casefold() in name.casefold()

    def takes(self, format_: str) -> bool:
        """Return whether it includes a table by its format."""
        return self.format in ("", format_)

    def cut(self, found: list[T]) -> list[T]:
        """Return the part of a list that is on the page."""
        start = (self.page - 1) * _PAGE_SIZE
        return found[start : start + _PAGE_SIZE]

    def at_page(self, page: int) -> TableChoice:
        """Return the choice with another page."""
        return replace(self, page=page)


@dataclass(frozen=True)
class TableLine:
    """A table in the listing of its namespace."""

    name: str
    address: str
    format: str
    owner: str

    @classmethod
    def of(cls, path: Sequence[str], name: str, entry: Entry | None) -> TableLine:
        """Return the line of a table, whose entry may be unknown."""
        entry = entry or Entry("")
        page = "table" if entry.is_lance else "other"
        format_ = entry.format or UNKNOWN
        return cls(name, address(page, [*path, name]), format_, entry.owner)


@dataclass(frozen=True)
class TableListing:
    """A page of the tables of a namespace."""

    choice: TableChoice = field(default_factory=lambda: TableChoice([]))
    lines: list[TableLine] = field(default_factory=list)
    total: int = 0
    """How many tables match."""
    all: int = 0
    """How many tables there are."""
    is_cut: bool = False
    """Whether more tables match than were counted."""
    has_more: bool = False
    """Whether there are more tables than were counted."""
    formats: list[str] = field(default_factory=list)
    """The formats of all tables; empty if only those of the page are known."""

    @property
    def first(self) -> int:
        """The number of the first table of the page, from one."""
        return (self.choice.page - 1) * _PAGE_SIZE + 1

    @property
    def last(self) -> int:
        """The number of the last table of the page."""
        return self.first + len(self.lines) - 1

    @property
    def previous_page(self) -> str:
        """The address of the page before; empty if there is none."""
        page = self.choice.page - 1
        return self.choice.at_page(page).address if page else ""

    @property
    def next_page(self) -> str:
        """The address of the page after; empty if there is none."""
        return self.choice.at_page(self.choice.page + 1).address if self.last < self.total else ""

    def heading(self, column: str) -> tuple[str, str]:
        """Return the address of the page sorted by a column, or "", and its ``aria-sort``."""
        can_sort = self.formats or (column == "name" and not self.is_cut)
        link = self.choice.sorted_by(column).address if can_sort else ""
        return link, self.choice.order_of(column)


async def load_tables(ui: UiRequest, answer: Any) -> TableListing:
    """Return the page of tables that an address asks for.

    Args:
        answer: The names of all tables that the principal sees.
    """
    choice, names = TableChoice.of(ui), sorted(set(answer.tables))
    if len(names) <= _MOST_ENTRIES and not answer.page_token:
        return await _load_few(ui, choice, names)
    found, count = answer, len(names)
    if answer.page_token and choice.word:
        method = partial(ui.caches.table_names.list_tables, word=choice.word)
        fields = {"id": choice.path, "limit": _most_names(ui)}
        found = await ui.call("list_tables", fields, method=method)
    listing = await _load_many(ui, choice, sorted(set(found.tables)), is_cut=bool(found.page_token))
    return replace(listing, all=count, has_more=bool(answer.page_token))


async def _load_few(ui: UiRequest, choice: TableChoice, names: list[str]) -> TableListing:
    """Return the page of a namespace all of whose entries are read."""
    # The namespace may have many more tables that the principal does not see.
    entries = await _entries(ui, choice.path, names, all_at_once=_sees_all(ui))
    lines = [TableLine.of(choice.path, name, entries.get(name)) for name in names]
    formats = sorted({each.format for each in lines}, key=str.casefold)
    lines = [each for each in lines if choice.takes_name(each.name) and choice.takes(each.format)]
    lines.sort(key=lambda each: getattr(each, choice.sort.removeprefix("-")).casefold())
    if choice.sort.startswith("-"):
        lines.reverse()
    return TableListing(choice, choice.cut(lines), len(lines), len(names), formats=formats)


async def _load_many(
    ui: UiRequest, choice: TableChoice, names: list[str], *, is_cut: bool
) -> TableListing:
    """Return the page of a namespace of which only the entries on the page are read."""
    is_down = choice.sort == "-name" and not is_cut
    choice = replace(choice, format="", sort="-name" if is_down else "name")
    found = [name for name in names if choice.takes_name(name)]
    if is_down:
        found.reverse()
    wanted = choice.cut(found)
    entries = await _entries(ui, choice.path, wanted, all_at_once=False)
    lines = [TableLine.of(choice.path, name, entries.get(name)) for name in wanted]
    return TableListing(choice, lines, len(found), len(names), is_cut)


async def _entries(
    ui: UiRequest, path: Sequence[str], names: Sequence[str], *, all_at_once: bool
) -> Mapping[str, Entry]:
    """Return entries of a namespace by name; none if they cannot be read."""
    if not names:
        return {}
    method = partial(load_entries, names=names, all_at_once=all_at_once)
    fields = {"id": list(path), "limit": len(names)}
    found: Result[EntryPage] = await ui.attempt("list_tables", fields, method=method)
    return found.value.entries if found.value else {}


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
_RETRIED = (429, 503)


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
        can_retry=status in _RETRIED,
        code=code,
        request_id=request.state.request_id,
    )
    page.headers.update(error_headers(error))
    return page
