"""Reading a whole catalog, namespace by namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from lance_namespace.errors import NamespaceNotFoundError, PermissionDeniedError

from .catalog import Catalog, Path, TableRecord
from .errors import display, marking_other_entries

_THREADS = 8
"""Namespaces that are read at once."""


def innermost_namespaces(catalog: Catalog, parent: Path = ()) -> Iterator[Path]:
    """Yield the sorted paths of all namespaces that can hold tables, except those just dropped."""
    if len(parent) == catalog.capabilities.levels:
        yield parent
        return
    try:
        children = list(catalog.list_namespaces(parent))
    except NamespaceNotFoundError:
        if not parent:
            raise
        return
    for child in children:
        yield from innermost_namespaces(catalog, (*parent, child))


def scan_locations(
    catalog: Catalog,
    namespaces: Iterable[Path] | None,
    explain: Callable[[str, PermissionDeniedError], str],
) -> Iterator[tuple[TableRecord, bool]]:
    """Yield the entries that have a location or cannot be read, and whether the catalog lists them.

    Args:
        namespaces: The namespaces to read; None for the whole catalog and the server's entries that
            it does not list. A namespace that does not exist has no entries.
        explain: Returns the message of an error from what may not be read, and why.

    Raises:
        PermissionDeniedError: (15) a namespace may not be read.
        LanceNamespaceError: Like this one, it is marked by `marking_other_entries`.
    """
    with marking_other_entries():
        yield from _scan(catalog, namespaces, explain)


def _scan(
    catalog: Catalog,
    namespaces: Iterable[Path] | None,
    explain: Callable[[str, PermissionDeniedError], str],
) -> Iterator[tuple[TableRecord, bool]]:
    def read(namespace: Path) -> list[TableRecord]:
        try:
            records = catalog.scan_tables(namespace)
            return [each for each in records if each.location or not each.is_readable]
        except NamespaceNotFoundError:
            return []
        except PermissionDeniedError as error:
            raise PermissionDeniedError(explain(f"'{display(namespace)}'", error)) from error

    scope = innermost_namespaces(catalog) if namespaces is None else namespaces
    with ThreadPoolExecutor(_THREADS) as threads:
        for records in threads.map(read, scope):
            yield from ((each, True) for each in records)
    if namespaces is None:
        try:
            yield from ((each, False) for each in catalog.scan_hidden_tables())
        except PermissionDeniedError as error:
            what = "another catalog of the server"
            raise PermissionDeniedError(explain(what, error)) from error
