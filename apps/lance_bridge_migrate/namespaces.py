"""Namespaces that a migration creates for its tables, and removes on undo."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from lance_namespace.errors import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)

from lance_bridge.catalog import NamespaceRecord, Path
from lance_bridge.connection import Connection
from lance_bridge.lost_replies import retry_after_readback

from .migration import Step, StepContext
from .plan import Item, ItemType, blocker
from .targets import MARK


def missing_namespaces(connection: Connection, tables: Iterable[Path]) -> list[Item]:
    """Return an item for each missing namespace of these tables, outermost first.

    The item is blocked if the namespace cannot be created.
    """
    wanted = {path[:depth] for path in tables for depth in range(1, len(path))}
    ordered = sorted(wanted, key=lambda path: (len(path), path))
    return [_item(connection, path) for path in ordered if not _exists(connection, path)]


def _exists(connection: Connection, path: Path) -> bool:
    try:
        connection.catalog.load_namespace(path)
    except NamespaceNotFoundError:
        return False
    except PermissionDeniedError:
        return True  # it exists, and may not be seen
    return True


def _item(connection: Connection, path: Path) -> Item:
    item = Item(type=ItemType.NAMESPACE, source=path, target=path)
    capabilities = connection.capabilities
    reason = capabilities.no_namespace_changes
    if not reason and len(path) < capabilities.levels:
        reason = capabilities.no_outer_namespace_changes
    return item.with_problems(blocker(f"It cannot be created: {reason}")) if reason else item


def namespace_steps() -> list[Step]:
    """Return the steps of a namespace's item."""
    return [Step("namespace", _create, _remove)]


def _create(work: StepContext) -> None:
    catalog = work.target_tables.connection.catalog
    record = NamespaceRecord(work.item.target, {MARK: work.mark})
    # Another process may have created it.
    with suppress(NamespaceAlreadyExistsError):
        retry_after_readback(lambda: catalog.create_namespace(record), lambda: _is_own(work))


def _is_own(work: StepContext) -> bool:
    try:
        record = work.target_tables.connection.catalog.load_namespace(work.item.target)
    except NamespaceNotFoundError:
        return False
    return record.properties.get(MARK) == work.mark


def _remove(work: StepContext) -> None:
    """Drop a namespace that has this migration's mark, unless it has content."""
    connection, path = work.target_tables.connection, work.item.target
    with suppress(NamespaceNotFoundError, NamespaceNotEmptyError):
        if _is_own(work) and not _has_content(connection, path):
            retry_after_readback(
                lambda: connection.catalog.drop_namespace(path), lambda: not _is_own(work)
            )


def _has_content(connection: Connection, path: Path) -> bool:
    is_innermost = len(path) == connection.capabilities.levels
    children = (
        connection.catalog.list_tables if is_innermost else connection.catalog.list_namespaces
    )
    return next(iter(children(path)), None) is not None
