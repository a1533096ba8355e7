"""What listings show of tables beside their names: entries, figures of versions, and counts.

A page has the names, formats and owners of its tables. Its script requests the figures afterwards,
of some tables at a time, so that no page waits for storage.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from pydantic import Field
from starlette.responses import JSONResponse, Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.catalog import TableRecord
from lance_bridge.dataset import VersionSummary
from lance_bridge.errors import OF_ONE_OBJECT, TableNotWrittenError, invalid
from lance_bridge.paging import all_pages

from .caches import catalog_at
from .rendering import PRIVATE_HEADERS, address, format_bytes, format_count, format_time
from .request import (
    OPERATION_BY_NAME,
    PageTimeLimitError,
    UiRequest,
    VisibleNamespace,
    error_text,
)

# -- entries ---------------------------------------------------------------------------------------


LANCE = "Lance"
_THREADS = 8


@dataclass(frozen=True)
class Entry:
    """What the entry of a table in its catalog says."""

    format: str = LANCE
    """Empty if it is unknown."""
    owner: str = ""

    @classmethod
    def of(cls, record: TableRecord) -> Entry:
        """Return what a record says."""
        return cls(record.format, record.owner)

    @property
    def is_lance(self) -> bool:
        """Whether it is a Lance table."""
        return self.format == LANCE


class EntryPage(api.ListTablesResponse):
    """Tables of a namespace with their entries. Those of hidden tables may be among the entries."""

    entries: dict[str, Entry] = Field(default_factory=dict, exclude=True)


def load_entries(
    namespace: LanceNamespace, request: Any, names: Sequence[str], *, all_at_once: bool
) -> EntryPage:
    """Return some tables of a namespace with their entries; without the entries that are gone.

    Args:
        all_at_once: Whether to read the entries of the whole namespace, because it has few others.

    Raises:
        NamespaceNotFoundError: (1)
        LanceNamespaceError: The catalog's own.
    """
    child, path = catalog_at(namespace, request.id or ())
    if not isinstance(child, LanceBridgeNamespace):  # these have Lance tables only
        return EntryPage(tables=list(names), entries=dict.fromkeys(names, Entry()))
    parent = child.namespace_path(path, of_tables=True)
    if all_at_once:
        records = list(child.catalog.scan_tables(parent))
    else:
        with ThreadPoolExecutor(_THREADS) as threads:
            load = partial(_load_record, child)
            found = threads.map(load, ((*parent, name) for name in names))
            records = [each for each in found if each is not None]
    entries = {each.path[-1]: Entry.of(each) for each in records}
    return EntryPage(tables=list(names), entries=entries)


def _load_record(namespace: LanceBridgeNamespace, path: tuple[str, ...]) -> TableRecord | None:
    try:
        return namespace.catalog.load_table(path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return None
    except OF_ONE_OBJECT:
        return TableRecord.unreadable(path)


# -- figures ---------------------------------------------------------------------------------------


MOST_FIGURES = 20
"""Tables whose figures one request may ask for."""
_SECONDS = 10.0
"""After this time, no further table is read for a request."""
_GRACE_SECONDS = 10.0
_FIGURE_THREADS = 4

Figure = tuple[str, float]
"""A text, and the number to sort by."""


async def send_figures(ui: UiRequest) -> Response:
    """Return the figures of some tables of a namespace as JSON, by the names of the tables.

    Each table has its figures or a `problem`: a principal that may not read its statistics, for
    example, gets no figure.

    Raises:
        InvalidInputError: (13) too many tables, or none.
    """
    path, names = ui.names, ui.http.query_params.getlist("table")
    if not 0 < len(names) <= MOST_FIGURES:
        raise invalid(f"Give 1 to {MOST_FIGURES} names as `table`")
    work = partial(_read_figures, ui, path, names, time.monotonic() + _SECONDS)
    operation, seconds = OPERATION_BY_NAME["get_table_stats"], _SECONDS + _GRACE_SECONDS
    catalog = ui.gateway.catalog_of(path)
    found = await ui.gateway.work(
        ui.http, work, operation, seconds, catalog, has_answered=_has_answered
    )
    figures = {name: each.shown for name, each in found.items()}
    return JSONResponse({"figures": figures}, headers=dict(PRIVATE_HEADERS))


@dataclass(frozen=True)
class _TableFigures:
    """The figures of a table, or why there are none."""

    shown: Mapping[str, Figure | str]
    has_answered: bool | None = True
    """Whether the catalog responded; None if that is unknown."""


def _has_answered(found: Mapping[str, _TableFigures]) -> bool | None:
    """Return whether the catalog responded: not if it failed for one table; None if unknown."""
    known = {each.has_answered for each in found.values()}
    return False if False in known else (True in known or None)


def _read_figures(
    ui: UiRequest, path: Sequence[str], names: Sequence[str], deadline: float
) -> dict[str, _TableFigures]:
    read = partial(_figures_of, ui, path, deadline)
    with ThreadPoolExecutor(_FIGURE_THREADS) as threads:
        return dict(zip(names, threads.map(read, names), strict=True))


def _figures_of(ui: UiRequest, path: Sequence[str], deadline: float, name: str) -> _TableFigures:
    if time.monotonic() > deadline:
        return _TableFigures({"problem": "The time limit was exceeded"}, None)
    operation = OPERATION_BY_NAME["get_table_stats"]
    try:
        summary = ui.gateway.call_sync(
            ui.http, operation, {"id": [*path, name]}, _same, method=ui.caches.summaries.read
        )
    except TableNotWrittenError:
        return _TableFigures({"problem": "declared, no data yet"})
    except LanceNamespaceError as error:
        is_down = isinstance(error, ServiceUnavailableError)
        return _TableFigures({"problem": error_text(error)}, False if is_down else None)
    return _TableFigures(figures_of(summary))


def _same(result: Any) -> Any:
    return result


def figures_of(summary: VersionSummary) -> dict[str, Figure]:
    """Return the figures of a version, without those that are unknown."""
    counts = {
        "rows": summary.rows,
        "version": summary.version,
        "fragments": summary.fragments,
        "indices": summary.indices,
    }
    figures: dict[str, Figure] = {key: (format_count(n), n) for key, n in counts.items()}
    if summary.size is not None:
        figures["size"] = (format_bytes(summary.size), summary.size)
    if summary.changed_millis is not None:
        figures["changed"] = (format_time(summary.changed_millis), summary.changed_millis)
    return figures


# -- counts ----------------------------------------------------------------------------------------


_COUNT_SECONDS = 5.0
_MOST_COUNTED = 500
"""Namespaces whose tables are counted."""
_COUNT_PAGE = 1_000
"""Names that are listed at once, so that the time limit ends a long listing."""


async def send_counts(ui: UiRequest) -> Response:
    """Return the numbers of namespaces and tables in a catalog that the principal sees, as JSON.

    A ``+`` follows the numbers if not all could be counted in time.

    Raises:
        LanceNamespaceError: The catalog cannot be listed at all.
    """
    path = ui.names
    namespace = VisibleNamespace(ui, path, time.monotonic() + _COUNT_SECONDS)
    child, _ = catalog_at(ui.gateway.namespace, path)
    levels = child.capabilities.levels if isinstance(child, LanceBridgeNamespace) else None
    work = partial(count_objects, namespace, levels)
    operation, seconds = OPERATION_BY_NAME["list_namespaces"], _COUNT_SECONDS + _GRACE_SECONDS
    catalog = ui.gateway.catalog_of(path)
    found: Counts = await ui.gateway.work(
        ui.http, work, operation, seconds, catalog, has_answered=lambda each: not each.has_failed
    )
    return JSONResponse({"figures": found.figures()}, headers=dict(PRIVATE_HEADERS))


@dataclass
class Counts:
    """The numbers of namespaces and tables in a catalog."""

    namespaces: int = 0
    tables: int = 0
    is_complete: bool = True
    has_failed: bool = False
    """Whether the catalog did not respond to a listing."""

    def figures(self) -> dict[str, Figure]:
        """Return the numbers as figures."""
        more = "" if self.is_complete else "+"
        counts = {"namespaces": self.namespaces, "tables": self.tables}
        return {key: (f"{n:,}{more}", n) for key, n in counts.items()}


def count_objects(namespace: LanceNamespace, levels: int | None) -> Counts:
    """Count the namespaces and tables that a listing has.

    Args:
        levels: The level of namespaces that holds the tables; None if any may.

    Raises:
        LanceNamespaceError: The first listing failed.
    """
    counts, pending = Counts(), deque[list[str]]([[]])
    for _ in range(_MOST_COUNTED):
        path = pending.popleft()
        try:
            for children, tables in _contents(namespace, path, levels):
                counts.namespaces += len(children)
                counts.tables += len(tables)
                pending.extend([*path, name] for name in children)
        except ServiceUnavailableError as error:
            if counts == Counts() and not path:
                raise
            counts.is_complete = False
            counts.has_failed = not isinstance(error, PageTimeLimitError)
            return counts
        if not pending:
            return counts
    counts.is_complete = False
    return counts


def _contents(
    namespace: LanceNamespace, path: list[str], levels: int | None
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the namespaces and the tables in a namespace, page by page."""
    if levels is None or len(path) < levels:
        request: Any = api.ListNamespacesRequest(id=path, limit=_COUNT_PAGE)
        for page in _pages(namespace.list_namespaces, request):
            yield page.namespaces, []
    if levels is None or len(path) == levels:
        request = api.ListTablesRequest(id=path, limit=_COUNT_PAGE)
        for page in _pages(namespace.list_tables, request):
            yield [], page.tables


def _pages(list_page: Callable[[Any], Any], request: Any) -> Iterator[Any]:
    # The level has no such objects, or the namespace was dropped.
    with suppress(InvalidInputError, UnsupportedOperationError, NamespaceNotFoundError):
        yield from all_pages(list_page, request)


# -- changes ---------------------------------------------------------------------------------------


_MOST_CHANGES = 8


@dataclass(frozen=True)
class Change:
    """The latest change of a table."""

    name: str
    address: str
    time_millis: int | None
    rows: int | None


def latest_changes(ui: UiRequest) -> list[Change]:
    """Return the latest changes of tables that pages have read and that the principal may read.

    Catalogs that are called as the principal are left out: they may hide a table from one caller
    that another has read.
    """
    found = ui.caches.summaries.changed_last(ui.gateway.namespace)
    authorizer, principal = ui.gateway.authorizer, ui.principal
    visible = set(authorizer.filter(principal, "list_tables", [path for path, _ in found]))
    allowed = (
        Change(".".join(path), address("table", path), each.changed_millis, each.rows)
        for path, each in found
        if path in visible and authorizer.check(principal, "get_table_stats", path).allowed
    )
    return list(islice(allowed, _MOST_CHANGES))
