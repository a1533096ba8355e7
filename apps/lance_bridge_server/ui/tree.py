"""The tree of namespaces and tables in the sidebar of each page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)

from lance_bridge_federated import FederatedNamespace

from .rendering import address
from .request import Result, UiRequest, as_result, gather

_NAMES = 50
"""How many names of a level are shown. The level's page has the others."""
_SECONDS = 5.0


@dataclass
class Node:
    """A namespace or table in the tree."""

    name: str
    address: str
    is_table: bool = False
    is_current: bool = False
    is_down: bool = False
    """Whether it is a catalog that does not respond."""
    children: list[Node] | None = None
    """None if it is not opened."""
    message: str = ""
    """Why its children are missing."""
    more: str = ""
    """The address of the page with all children, if some are left out."""

    def mark_down(self, catalogs: Collection[str]) -> None:
        """Mark those of its children that are catalogs which do not respond."""
        for each in self.children or ():
            each.is_down = each.name in catalogs

    def add_tables(
        self, path: Sequence[str], tables: Sequence[tuple[str, str]], *, has_more: bool
    ) -> None:
        """Add tables to the innermost opened namespace.

        Args:
            path: The path of that namespace.
            tables: Names with addresses.
        """
        inner = self
        while opened := [each for each in inner.children or () if each.children is not None]:
            inner = opened[0]
        nodes = (Node(name, link, is_table=True) for name, link in tables[:_NAMES])
        inner.children = [*(inner.children or ()), *nodes]
        if has_more or len(tables) > _NAMES:
            inner.more = address("namespace", path)


async def load_tree(ui: UiRequest, path: Sequence[str], *, is_table: bool = False) -> Node:
    """Return the root of the tree, opened down to a path.

    Args:
        path: The path of the object on the page.
        is_table: Whether that is a table. Its siblings are not listed, because there may be many.
    """
    opened = list(path[:-1] if is_table else path)
    depths = range(len(opened) + 1)
    levels: list[Node] = await gather(
        *(_load_level(ui, opened[:n], opened[n : n + 1]) for n in depths)
    )
    root = node = levels[0]
    if isinstance(ui.gateway.namespace, FederatedNamespace):
        root.mark_down(ui.gateway.health.silent())
    for level in levels[1:]:
        node.children = [level if each.name == level.name else each for each in node.children or ()]
        node = level
    if is_table:
        table = Node(path[-1], address("table", path), is_table=True, is_current=True)
        node.children = [*(node.children or ()), table]
        node.more = address("namespace", opened)
    else:
        node.is_current = True
    return root


async def _load_level(ui: UiRequest, path: Sequence[str], shown: Sequence[str]) -> Node:
    """Return an opened namespace. Args: shown: Names to show even if they are not in its list."""
    own = address("namespace" if path else "", path)
    fields = {"id": list(path), "limit": _NAMES}
    part = await _attempt_while_it_responds(ui, path, fields)
    listed = part.value.namespaces if part.value else []
    names = [*(each for each in shown if each not in listed), *listed]
    return Node(
        path[-1] if path else "",
        own,
        children=[Node(each, address("namespace", [*path, each])) for each in names],
        message="" if is_no_level(part) else part.message,
        more=own if part.value and part.value.page_token else "",
    )


async def _attempt_while_it_responds(
    ui: UiRequest, path: Sequence[str], fields: Mapping[str, Any]
) -> Result[Any]:
    """List namespaces, and wait no longer than the catalog of the path responds."""
    start = partial(ui.call, "list_namespaces", fields, seconds=_SECONDS)
    watched = ui.gateway.watched_catalog(path)
    part = await as_result(watched.wait_for(start) if watched is not None else start())
    if isinstance(part.error, ServiceUnavailableError):
        return Result(error=ui.explain(part.error, "list_namespaces", path))
    return part


def is_no_level(part: Result[object]) -> bool:
    """Return whether a listing failed because the level cannot contain such objects."""
    return isinstance(part.error, (InvalidInputError, UnsupportedOperationError))
