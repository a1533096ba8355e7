"""Reading a whole catalog, namespace by namespace."""

from __future__ import annotations

from collections.abc import Iterator

from lance_namespace.errors import NamespaceNotFoundError

from .catalog import Catalog, Path


def innermost_namespaces(catalog: Catalog, parent: Path = ()) -> Iterator[Path]:
    """Yield the paths of all namespaces that can hold tables, sorted; vanishing ones left out."""
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
