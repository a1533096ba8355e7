"""Listing Lance tables, page by page."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from ..catalog import Path, TableRecord
from ..connection import Connection
from ..errors import display
from ..paging import PageRequest
from ..scan import UNREADABLE, innermost_namespaces, why_unreadable
from ..table import Table

logger = logging.getLogger(__name__)

_CHUNK = 100
_THREADS = 8


def list_tables(
    connection: Connection, namespace: Path, page: PageRequest, *, include_declared: bool
) -> tuple[list[str], str | None]:
    """Return one page of the names of a namespace's Lance tables. Source: ListTables.

    Raises:
        NamespaceNotFoundError: (1)
    """
    after = page.after[-1] if page.after is not None else None
    if include_declared:
        names = connection.catalog.list_tables(namespace, lance_only=True)
        rest: Iterator[Path] = ((name,) for name in names if after is None or name > after)
    else:
        records = connection.catalog.scan_tables(namespace, lance_only=True, after=after)
        # A server may have several entries of one name by mistake.
        rest = (path for path, _ in groupby(_tables_with_data(connection, records)))
    found, token = page.cut(_take_page(rest, page))
    return [name for (name,) in found], token


def list_all_tables(
    connection: Connection, page: PageRequest, *, include_declared: bool
) -> tuple[list[Path], str | None]:
    """Return one page of the paths of all Lance tables, by namespace. Source: ListAllTables.

    Only the namespaces that the page needs are read: those that the catalog lists, and the property
    `default-namespace`. Namespaces that are dropped concurrently are
    omitted, and so are those that cannot be read, or that the caller may not list, as catalogs do.

    Raises:
        LanceNamespaceError: No namespace could be read.
    """
    return page.cut(_take_page(_all_tables(connection, page, include_declared), page))


def _all_tables(
    connection: Connection, page: PageRequest, include_declared: bool
) -> Iterator[Path]:
    unread: list[LanceNamespaceError] = []

    def leave_out(namespace: Path, error: LanceNamespaceError) -> None:
        logger.warning("listed without '%s': %s", display(namespace), error)
        unread.append(error)

    has_read = page.after is not None
    namespaces = innermost_namespaces(
        connection.catalog, unreadable=leave_out, named=connection.named_namespaces
    )
    for namespace in namespaces:
        if page.after is not None and namespace < page.after[:-1]:
            continue
        within = PageRequest(page.scope, None, _after_in_namespace(page.after, namespace))
        try:
            names, _ = list_tables(connection, namespace, within, include_declared=include_declared)
        except UNREADABLE as error:
            reason = why_unreadable(connection.catalog, namespace, error)
            if reason is not None:
                leave_out(namespace, reason)
            continue
        has_read = True
        yield from ((*namespace, name) for name in names)
    if unread and not has_read and not all(isinstance(e, PermissionDeniedError) for e in unread):
        raise unread[0]


def _after_in_namespace(after: Path | None, namespace: Path) -> Path | None:
    return after[-1:] if after is not None and after[:-1] == namespace else None


def _take_page(paths: Iterator[Path], page: PageRequest) -> list[Path]:
    """Take at most one path more than a page has, to see whether another page follows."""
    taken: list[Path] = []
    for path in paths:
        taken.append(path)
        if page.limit is not None and len(taken) > page.limit:
            break
    return taken


def _tables_with_data(connection: Connection, records: Iterable[TableRecord]) -> Iterator[Path]:
    """Yield the tables that hold data; reads the storage at most one chunk ahead."""
    waiting = iter(records)
    with ThreadPoolExecutor(_THREADS) as threads:
        while chunk := list(islice(waiting, _CHUNK)):
            has_data = threads.map(lambda record: _may_have_data(connection, record), chunk)
            yield from (
                record.path[-1:] for record, data in zip(chunk, has_data, strict=True) if data
            )


def _may_have_data(connection: Connection, record: TableRecord) -> bool:
    """Return False for a table that was never written; True if its data is missing, or unknown."""
    try:
        return not Table(connection, record).is_declared()
    except LanceNamespaceError as error:
        logger.warning("listed, though no data was found: %s: %s", record.path, error)
        return True
