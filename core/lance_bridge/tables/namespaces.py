"""Namespaces: create, list, describe, change, drop."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
)

from ..catalog import NamespaceRecord, NamespaceWords, Path, TableRecord
from ..connection import Connection
from ..dotted_names import first_names
from ..entry import TableEntry
from ..errors import (
    ProtectedError,
    display,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
    retry_after_readback,
    unsupported,
)
from ..records import (
    ENTRY_ID,
    RETENTION,
    check_key,
    check_property,
    is_reserved,
    with_known_keys,
)
from ..requests import CreateMode, DropBehavior, DropMode
from . import dropping, retention
from .dropping import LocationIndex
from .protection import RemovalProtection

_NAMED = 5
_REPORTED = 100
"""How many of the dropped tables an error names; the log names all."""

logger = logging.getLogger(__name__)


def create(
    connection: Connection, path: Path, mode: CreateMode, properties: Mapping[str, str] | None
) -> dict[str, str]:
    """Create a namespace and return its properties. Source: CreateNamespace.

    Raises:
        NamespaceAlreadyExistsError: (2) it exists and the mode is Create.
        NamespaceNotEmptyError: (3) it is not empty and the mode is Overwrite.
        InvalidTableStateError: (19) it is protected and the mode is Overwrite.
        NamespaceNotFoundError: (1) its parent does not exist.
        InvalidInputError: (13) the root, or properties that the catalog refuses.
        UnsupportedOperationError: (0) the catalog cannot create namespaces of this level, or cannot
            hold the versions of tables.
    """
    if not path:
        raise invalid("The root namespace exists already and cannot be created")
    _require_changes(connection, path)
    given = with_known_keys(properties or {})
    for key, value in given.items():
        check_property(key, value)
    connection.check_namespace_management(path, given)
    record = NamespaceRecord(path, {**given, ENTRY_ID: uuid.uuid4().hex})
    try:
        retry_after_readback(
            lambda: connection.catalog.create_namespace(record),
            lambda: _was_created(connection, record),
        )
    except NamespaceAlreadyExistsError as error:
        return _handle_existing(connection, record, mode, error)
    return given


def _visible(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that callers see; table-format properties mean nothing here."""
    return {k: v for k, v in properties.items() if not is_reserved(k)}


def _handle_existing(
    connection: Connection, record: NamespaceRecord, mode: CreateMode, cause: Exception
) -> dict[str, str]:
    if mode is CreateMode.CREATE:
        raise namespace_already_exists(record.path) from cause
    if mode is CreateMode.OVERWRITE:
        # Replacing its properties never leaves a moment without the namespace, nor loses a table.
        _refuse_content(connection, record.path)
        RemovalProtection(connection).require_namespace(record.path, "overwritten")
        retry_after_readback(
            lambda: connection.catalog.alter_namespace(record),
            lambda: _was_altered(connection, record),
        )
        return _visible(record.properties)
    return _visible(connection.catalog.load_namespace(record.path).properties)


def _was_created(connection: Connection, record: NamespaceRecord) -> bool:
    try:
        found = connection.catalog.load_namespace(record.path)
    except NamespaceNotFoundError:
        return False
    if ENTRY_ID in found.properties or len(record.path) == connection.capabilities.levels:
        return found.properties.get(ENTRY_ID) == record.properties[ENTRY_ID]
    return True  # an outer level need not be able to hold properties


def _was_altered(connection: Connection, record: NamespaceRecord) -> bool:
    """Return whether the namespace has these properties; not every level can hold our own."""
    found = connection.catalog.load_namespace(record.path).properties
    if ENTRY_ID in found:
        return found[ENTRY_ID] == record.properties[ENTRY_ID]
    wanted = _visible(record.properties)
    return all(found.get(key) == value for key, value in wanted.items())


def describe(connection: Connection, path: Path) -> dict[str, str]:
    """Return a namespace's properties; the root has none. Source: DescribeNamespace.

    Raises:
        NamespaceNotFoundError: (1)
    """
    if not path:
        return {}
    return _visible(connection.catalog.load_namespace(path).properties)


def change_properties(
    connection: Connection, path: Path, updates: Mapping[str, str], removals: Collection[str]
) -> dict[str, str]:
    """Set and remove properties of a namespace, and return all; the others stay.

    Raises:
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) the root, or a key or value that the catalog refuses.
        UnsupportedOperationError: (0) the catalog cannot change namespaces, or not the comment.
    """
    if not path:
        raise invalid("The root namespace has no properties")
    updates = with_known_keys(updates)
    for key, value in updates.items():
        check_property(key, value)
    for key in removals:
        check_key(key)
    connection.check_namespace_management(path, updates)
    if reason := connection.capabilities.no_namespace_changes:
        raise unsupported(f"Namespace '{display(path)}' cannot change: {reason}")
    record = connection.catalog.load_namespace(path)
    kept = {key: value for key, value in record.properties.items() if key not in removals}
    changed = replace(record, properties={**kept, **updates})
    if changed == record:
        return _visible(record.properties)

    def has_happened() -> bool:
        found = connection.catalog.load_namespace(path).properties
        was_set = all(found.get(key) == value for key, value in updates.items())
        return was_set and not any(key in found for key in set(removals) - updates.keys())

    retry_after_readback(lambda: connection.catalog.alter_namespace(changed), has_happened)
    _require_comment(connection, path, updates)
    return _visible(changed.properties)


def _require_comment(connection: Connection, path: Path, updates: Mapping[str, str]) -> None:
    """Raise if the comment did not change: Hive before 4 silently ignores it."""
    words = connection.capabilities.namespace_words or (NamespaceWords(),) * len(path)
    key = words[len(path) - 1].comment
    if not key or key not in updates:
        return
    if connection.catalog.load_namespace(path).properties.get(key) != updates[key]:
        raise unsupported(
            f"The comment of namespace '{display(path)}' cannot be changed: its catalog keeps "
            "the one it was created with. The other changes were made"
        )


def list_children(connection: Connection, path: Path) -> list[str]:
    """Return the names of all child namespaces, sorted. Source: ListNamespaces.

    Raises:
        NamespaceNotFoundError: (1)
    """
    if len(path) == connection.capabilities.levels:
        connection.catalog.load_namespace(path)
        return []
    return list(connection.catalog.list_namespaces(path))


def drop(
    connection: Connection, path: Path, mode: DropMode, behavior: DropBehavior
) -> dict[str, str]:
    """Drop a namespace and return the properties that it had. Source: DropNamespace.

    Restrict deletes no file. Cascade drops each Lance table as DropTable would, and changes nothing
    if one of them could not be dropped, an entry of another type exists, or the catalog reports
    that the caller may not drop the namespace. A later error names the dropped tables. Restrict
    drops only a link itself; Cascade on a link is refused.

    Raises:
        NamespaceNotFoundError: (1) it does not exist and the mode is Fail.
        NamespaceNotEmptyError: (3) anything is inside, or with Cascade anything but Lance tables.
        InvalidTableStateError: (19) it is protected; or Cascade, and a table or a namespace inside
            is protected, a table shares its location with another, or an entry cannot be read.
        InvalidInputError: (13) the root, or Cascade on a link.
        UnsupportedOperationError: (0) the catalog cannot drop namespaces of this level.
    """
    if not path:
        raise invalid("The root namespace cannot be dropped")
    _require_changes(connection, path)
    try:
        return _drop(connection, path, behavior)
    except NamespaceNotFoundError:
        # Another client may have dropped it concurrently, or only a namespace inside.
        if mode is DropMode.FAIL or not _is_gone(connection, path):
            raise
        return {}


def _drop(connection: Connection, path: Path, behavior: DropBehavior) -> dict[str, str]:
    record = connection.catalog.load_namespace(path)
    protection = RemovalProtection(connection)
    protection.note(record)
    protection.require_namespace(path, "dropped")
    if behavior is DropBehavior.CASCADE:
        if record.link_to:
            raise invalid(
                f"Namespace '{display(path)}' is a link to {record.link_to}: drop the tables there"
            )
        _cascade(connection, record, protection)
    else:
        _drop_if_empty(connection, record)
    return _visible(record.properties)


def _drop_if_empty(connection: Connection, record: NamespaceRecord) -> None:
    if not connection.capabilities.atomic_restrict and not record.link_to:
        _refuse_content(connection, record.path)
    _drop_entry(connection, record.path)


def _drop_entry(connection: Connection, path: Path) -> None:
    retry_after_readback(
        lambda: connection.catalog.drop_namespace(path), lambda: _is_gone(connection, path)
    )


def _is_gone(connection: Connection, path: Path) -> bool:
    try:
        connection.catalog.load_namespace(path)
    except NamespaceNotFoundError:
        return True
    return False


def _refuse_content(connection: Connection, path: Path) -> None:
    if len(path) < connection.capabilities.levels:
        inside, content = list(connection.catalog.list_namespaces(path)), "namespaces"
    else:
        inside, content = list(connection.catalog.list_tables(path)), "tables"
    if inside:
        raise namespace_not_empty(path, f"It contains {content} {first_names(inside, _NAMED)}")


def _cascade(
    connection: Connection, record: NamespaceRecord, protection: RemovalProtection
) -> None:
    """Drop all Lance tables and namespaces under a namespace, and itself, after all checks."""
    inner, records = _list_content(connection, record.path)
    try:
        for child in inner:
            protection.require_namespace(child, "dropped")
        for table in records:
            protection.require_table(table, "dropped")
    except ProtectedError as error:
        name = display(record.path)
        raise InvalidTableStateError(f"Namespace '{name}' cannot be dropped: {error}") from error
    _require_cascade(connection, record.path, inner, records)
    _refuse_retention(connection, record, records)
    dropped = 0
    try:
        for table in records:
            dropping.drop_with_data(TableEntry(connection, table))
            dropped += 1
        for child in inner:
            _drop_entry(connection, child)
        _drop_if_empty(connection, record)
    except LanceNamespaceError as error:
        if not dropped:
            raise
        raise _partial_drop_error(record.path, records, dropped, error) from error


def _refuse_retention(
    connection: Connection, namespace: NamespaceRecord, records: list[TableRecord]
) -> None:
    """Check that no table would be deleted that DropTable would keep."""
    for path in {record.path[:-1] for record in records}:
        own = namespace if path == namespace.path else connection.catalog.load_namespace(path)
        if retention.period_of(connection, own):
            raise InvalidTableStateError(
                f"Namespace '{display(namespace.path)}' cannot be dropped with its tables: those "
                f"of '{display(path)}' have '{RETENTION}', so that they can be taken back. Drop "
                f"and purge them first, or set the property '{RETENTION}' of the namespace to 0"
            )


def _require_cascade(
    connection: Connection, path: Path, inner: list[Path], records: list[TableRecord]
) -> None:
    """Check all that can be checked before anything is dropped."""
    unreadable = [display(record.path) for record in records if not record.is_readable]
    if unreadable:
        raise InvalidTableStateError(
            f"Namespace '{display(path)}' cannot be dropped with its tables: it contains entries "
            f"that cannot be read: {first_names(unreadable, _NAMED)}. Deregister the other tables, "
            "or drop them one by one"
        )
    dropped = [display(record.path) for record in records if record.is_dropped]
    if dropped:
        raise namespace_not_empty(
            path,
            f"It contains dropped tables that can be taken back: {first_names(dropped, _NAMED)}. "
            "Purge them first",
        )
    foreign = [display(record.path) for record in records if not record.is_lance]
    if foreign:
        raise namespace_not_empty(
            path,
            f"Cascade drops Lance tables only, and it also contains {first_names(foreign, _NAMED)}",
        )
    for each in (*inner, path):
        connection.catalog.require_droppable(each)
    if not records:
        return
    for name, entries in Counter(record.path for record in records).items():
        if entries > 1:
            connection.catalog.load_table(
                name
            )  # raises, and says why it can be neither read nor dropped
    index = LocationIndex(connection, records)
    for record in records:
        dropping.require_droppable(TableEntry(connection, record), index)
    # The namespaces that are not empty: from this one to those of the tables.
    occupied = {
        record.path[:end] for record in records for end in range(len(path), len(record.path))
    }
    for each in sorted(occupied):
        connection.catalog.require_drop_permission(each)


def _partial_drop_error(
    path: Path, records: list[TableRecord], dropped: int, cause: LanceNamespaceError
) -> LanceNamespaceError:
    """Return the cause with the names of the dropped and the remaining tables."""
    names = [display(record.path) for record in records]
    gone, failed, left = names[:dropped], names[dropped : dropped + 1], names[dropped + 1 :]
    logger.warning("dropped with their data: %s", ", ".join(gone))
    parts = [
        f"Namespace '{display(path)}' is dropped in part. "
        f"Dropped with their data: {first_names(gone, _REPORTED)}",
        f"Failed at: {failed[0]}" if failed else "No table is left",
        *([f"Not dropped: {first_names(left, _REPORTED)}"] if left else []),
        str(cause),
    ]
    return type(cause)(". ".join(parts))


def _list_content(connection: Connection, path: Path) -> tuple[list[Path], list[TableRecord]]:
    """Return the namespaces below ``path``, innermost first, and all their table entries."""
    if len(path) == connection.capabilities.levels:
        return [], list(connection.catalog.scan_tables(path))
    inner: list[Path] = []
    records: list[TableRecord] = []
    for child in connection.catalog.list_namespaces(path):
        below, entries = _list_content(connection, (*path, child))
        inner += [*below, (*path, child)]
        records += entries
    return inner, records


def _require_changes(connection: Connection, path: Path) -> None:
    capabilities = connection.capabilities
    reason = capabilities.no_namespace_changes
    if not reason and len(path) < capabilities.levels:
        reason = capabilities.no_outer_namespace_changes
    if reason:
        raise unsupported(f"Namespace '{display(path)}' cannot be created or dropped: {reason}")
