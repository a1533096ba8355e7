"""Reading a whole catalog, namespace by namespace.

A namespace that cannot be read is a result like others: what reads the catalog decides whether to
go on without it, or to refuse because of what it may hold. See `errors.OF_ONE_OBJECT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)

from .catalog import Catalog, Path, TableRecord
from .errors import OF_ONE_OBJECT, display, marking_other_entries

_THREADS = 8
"""Namespaces that are read at once."""

Unreadable = Callable[[Path, LanceNamespaceError], None]
"""Called with a namespace that cannot be read, and why; it may raise."""


def innermost_namespaces(
    catalog: Catalog, parent: Path = (), unreadable: Unreadable | None = None
) -> Iterator[Path]:
    """Yield the sorted paths of all namespaces that can hold tables, except those just dropped.

    Args:
        parent: The namespace to begin at.
        unreadable: Called for a namespace below it whose own namespaces cannot be listed. By
            default the error is raised.
    """
    if len(parent) == catalog.capabilities.levels:
        yield parent
        return
    try:
        children = list(catalog.list_namespaces(parent))
    except NamespaceNotFoundError:
        if not parent:
            raise
        return
    except OF_ONE_OBJECT as error:
        if not parent or unreadable is None:
            raise
        unreadable(parent, error)
        return
    for child in children:
        yield from innermost_namespaces(catalog, (*parent, child), unreadable)


def scan_locations(
    catalog: Catalog,
    namespaces: Iterable[Path] | None,
    explain: Callable[[str, LanceNamespaceError], str],
) -> Iterator[tuple[TableRecord, bool]]:
    """Yield the entries that have locations or cannot be read, and whether the catalog lists them.

    Args:
        namespaces: The namespaces to read; None for the whole catalog and the server's entries that
            it does not list. A namespace that does not exist has no entries.
        explain: Returns the message of an error from what cannot be read, and why.

    Raises:
        PermissionDeniedError: (15) a namespace may not be read.
        InvalidTableStateError: (19) a namespace cannot be read, and others can.
        LanceNamespaceError: Like these two, it is marked by `marking_other_entries`.
    """
    with marking_other_entries():
        yield from _scan(catalog, namespaces, explain)


def _scan(
    catalog: Catalog,
    namespaces: Iterable[Path] | None,
    explain: Callable[[str, LanceNamespaceError], str],
) -> Iterator[tuple[TableRecord, bool]]:
    def refuse(what: str, error: LanceNamespaceError) -> NoReturn:
        denied = isinstance(error, PermissionDeniedError)
        error_type = PermissionDeniedError if denied else InvalidTableStateError
        raise error_type(explain(what, error)) from error

    def read(namespace: Path) -> list[TableRecord]:
        try:
            records = catalog.scan_tables(namespace)
            return [each for each in records if each.all_locations or not each.is_readable]
        except NamespaceNotFoundError:
            return []
        except OF_ONE_OBJECT as error:
            refuse(f"'{display(namespace)}'", error)

    scope = namespaces
    if scope is None:
        scope = innermost_namespaces(
            catalog, unreadable=lambda path, error: refuse(f"'{display(path)}'", error)
        )
    with ThreadPoolExecutor(_THREADS) as threads:
        for records in threads.map(read, scope):
            yield from ((each, True) for each in records)
    if namespaces is None:
        try:
            yield from ((each, False) for each in catalog.scan_hidden_tables())
        except OF_ONE_OBJECT as error:
            refuse("another catalog of the server", error)
