"""Lists the tables of a namespace that cannot list them all itself, one namespace after the other.

ListAllTables of pylance's own namespaces returns only the tables of the root, without pages.
"""

from __future__ import annotations

from collections.abc import Iterator

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)

from lance_bridge import LanceBridgeNamespace
from lance_bridge.paging import PageRequest, names_of_all_pages

_SCOPE = "all tables"
_PAGE = 1000

Path = tuple[str, ...]


def is_native(namespace: LanceNamespace) -> bool:
    """Return whether a namespace is pylance's own."""
    cls = type(namespace)
    return f"{cls.__module__}.{cls.__qualname__}" in api.NATIVE_IMPLS.values()


def walk(
    namespace: LanceNamespace,
    *,
    include_declared: bool | None = None,
    after: Path | None = None,
    parent: Path = (),
) -> Iterator[Path]:
    """Yield the tables under a namespace: its own, then those of its children, each sorted.

    A namespace that is dropped concurrently has none, nor has a level that cannot hold tables.

    Args:
        after: The table after which to begin; it need not exist.

    Raises:
        LanceNamespaceError: a namespace cannot be listed.
    """
    start = after[:-1] if after is not None else ()
    if parent >= start:
        last = after[-1] if after is not None and parent == start else None
        for name in _list_tables(namespace, parent, include_declared):
            if last is None or name > last:
                yield (*parent, name)
    for name in _list_children(namespace, parent):
        path = (*parent, name)
        if path >= start[: len(path)]:
            yield from walk(namespace, include_declared=include_declared, after=after, parent=path)


def _list_tables(namespace: LanceNamespace, path: Path, include_declared: bool | None) -> list[str]:
    request = api.ListTablesRequest(id=list(path), include_declared=include_declared)
    try:
        return sorted(names_of_all_pages(namespace.list_tables, request, "tables"))
    except InvalidInputError:
        return []  # this level contains only namespaces
    except NamespaceNotFoundError:
        if not path:
            raise  # the root cannot be dropped
        return []


def _list_children(namespace: LanceNamespace, path: Path) -> list[str]:
    request = api.ListNamespacesRequest(id=list(path))
    try:
        return sorted(names_of_all_pages(namespace.list_namespaces, request, "namespaces"))
    except UnsupportedOperationError:
        return []
    except NamespaceNotFoundError:
        if not path:
            raise
        return []


def all_paths(namespace: LanceNamespace) -> Iterator[Path]:
    """Yield the tables of a namespace of any implementation.

    Raises:
        LanceNamespaceError: they cannot be listed.
    """
    if isinstance(namespace, LanceBridgeNamespace):
        # ListAllTables joins names with a character that names may contain.
        token = None
        while True:
            page = PageRequest.parse(_SCOPE, _PAGE, token)
            paths, token = namespace.tables.list_all(page)
            yield from paths
            if token is None:
                return
    yield from walk(namespace)
