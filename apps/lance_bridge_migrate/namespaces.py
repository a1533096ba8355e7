"""Namespaces that a migration makes for its tables, and removes again when it is undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from lance_namespace.errors import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import NamespaceRecord, Path
from lance_bridge.entries.outcome import settle

from .kind import Step, Work
from .plan import Item, What, blocker
from .targets import MARK, AnyWork


def missing(bridge: Bridge, tables: Iterable[Path]) -> list[Item]:
    """Return an item for each namespace of these tables-to-be that is not there, outermost first.

    One that cannot be made is blocked.
    """
    wanted = {path[:depth] for path in tables for depth in range(1, len(path))}
    ordered = sorted(wanted, key=lambda path: (len(path), path))
    return [_item(bridge, path) for path in ordered if not _exists(bridge, path)]


def _exists(bridge: Bridge, path: Path) -> bool:
    try:
        bridge.catalog.load_namespace(path)
    except NamespaceNotFoundError:
        return False
    return True


def _item(bridge: Bridge, path: Path) -> Item:
    item = Item(what=What.NAMESPACE, source=path, target=path)
    capabilities = bridge.capabilities
    reason = capabilities.no_namespace_changes
    if not reason and len(path) < capabilities.levels:
        reason = capabilities.no_outer_namespace_changes
    return item.with_problems(blocker(f"It cannot be made: {reason}")) if reason else item


def steps(target: Callable[[AnyWork], Bridge]) -> list[Step[Any, Any, Any]]:
    """Return the steps of a namespace's item.

    Args:
        target: Returns the bridge of the target that a work has.
    """
    return [
        Step(
            "namespace",
            lambda work: _make(target(work), work),
            lambda work: _remove(target(work), work),
        )
    ]


def _make(bridge: Bridge, work: Work[Any, Any, Any]) -> None:
    record = NamespaceRecord(work.item.target, {MARK: work.mark})
    # Where an earlier run made it, or somebody else did, it is there, which is all that is needed.
    with suppress(NamespaceAlreadyExistsError):
        settle(lambda: bridge.catalog.create_namespace(record), lambda: _is_own(bridge, work))


def _is_own(bridge: Bridge, work: AnyWork) -> bool:
    try:
        return bridge.catalog.load_namespace(work.item.target).properties.get(MARK) == work.mark
    except NamespaceNotFoundError:
        return False


def _remove(bridge: Bridge, work: AnyWork) -> None:
    """Drop a namespace that carries this migration's mark, unless something is in it by now."""
    path = work.item.target
    with suppress(NamespaceNotFoundError, NamespaceNotEmptyError):
        if _is_own(bridge, work) and not _has_content(bridge, path):
            settle(lambda: bridge.catalog.drop_namespace(path), lambda: not _is_own(bridge, work))


def _has_content(bridge: Bridge, path: Path) -> bool:
    is_innermost = len(path) == bridge.capabilities.levels
    inside = bridge.catalog.list_tables if is_innermost else bridge.catalog.list_namespaces
    return next(iter(inside(path)), None) is not None
