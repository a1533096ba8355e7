"""Entries that a migration creates or changes in a catalog, each recognised by its mark.

The mark is a property that core keeps for itself, so that no caller sees it. By it a later run, and
undoing, recognise what this migration made, whatever happened to a reply or to the process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from lance_namespace.errors import (
    InvalidTableStateError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_bridge import location as locations
from lance_bridge.catalog import LATEST, RESERVED_PREFIX, Column, Path, TableRecord
from lance_bridge.connection import Connection
from lance_bridge.entry import TableEntry
from lance_bridge.errors import concurrent_modification, display, table_already_exists
from lance_bridge.lost_replies import retry_after_readback
from lance_bridge.managed import conversion
from lance_bridge.records import ENTRY_ID
from lance_bridge.tables import creation, dropping
from lance_bridge.tables import locations as placement
from lance_bridge.tables.overlap import LocationIndex

from .migration import Work
from .plan import Facts, Item, ItemType

MARK = RESERVED_PREFIX + "migration"
"""The property of entries, and of namespaces, that holds `Plan.mark`."""

AFTER = "after"
"""The fact that holds `entry_facts` of an entry when the step that made it was done."""
_DROPPED = "dropped"
"""The fact that holds the location whose entry undoing is about to drop."""
_CHANGING = (ENTRY_ID, LATEST, RESERVED_PREFIX + "revision", RESERVED_PREFIX + "declared_at")
"""Properties that change without a change of the table's entry by hand."""

# -- reading -------------------------------------------------------------------------------------


def find_entry(connection: Connection, path: Path) -> TableRecord | None:
    """Return the entry of a name, Lance's or not, or None where the catalog says there is none."""
    try:
        return connection.catalog.load_table(path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return None


def find_entries(connection: Connection, items: Iterable[Item]) -> dict[str, TableRecord]:
    """Return the entries that tables of a plan have in the target now, by the items' keys.

    Each namespace is read once, as a whole.
    """
    keys = {item.target: item.key for item in items if item.type is ItemType.TABLE}
    found: dict[str, TableRecord] = {}
    for namespace in sorted({path[:-1] for path in keys}):
        with suppress(NamespaceNotFoundError):
            records = connection.catalog.scan_tables(namespace)
            found.update({keys[each.path]: each for each in records if each.path in keys})
    return found


def find_own_entry(work: Work) -> TableRecord | None:
    """Return the entry of the item's target where it carries the item's mark, else None."""
    record = find_entry(work.target_connection, work.item.target)
    return record if record is not None and is_own(work, record) else None


def load_own_entry(work: Work) -> TableRecord:
    """Return the entry that this migration made. Raises ConcurrentModification (14)."""
    record = find_own_entry(work)
    if record is None:
        raise concurrent_modification(work.item.target)
    return record


def is_own(work: Work, record: TableRecord) -> bool:
    """Return True where an entry carries the item's mark."""
    return record.properties.get(MARK) == work.mark


def entry_facts(record: TableRecord) -> Facts:
    """Return what an entry holds, as facts: to be compared with what it holds later.

    What changes without a change of the entry by hand is left out.
    """
    kept = {k: v for k, v in sorted(record.properties.items()) if k not in _CHANGING}
    location = locations.for_lance(record.location) if record.location else None
    return {"location": location, "properties": kept}


def entry_fingerprint(record: TableRecord) -> str:
    """Return a digest of `entry_facts` and of an entry's identity."""
    text = json.dumps([entry_identity(record), entry_facts(record)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def entry_identity(record: TableRecord) -> str:
    """Return what differs between an entry and a later one of its name; "" if nothing does."""
    return record.properties.get(ENTRY_ID) or record.identity or ""


# -- creating --------------------------------------------------------------------------------------


def create_entry(
    work: Work,
    location: str,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> TableRecord:
    """Create the entry of the item's target, or return the one that an earlier run made.

    Args:
        location: Where its data is or will be. An earlier run's own entry keeps its location.
        properties: The caller's, checked already.
        declared: Whether the data is still to come.
        columns: Those of the data, if they are known.

    Raises:
        TableAlreadyExistsError: (5) another entry has the name.
        NamespaceNotFoundError: (1)
    """
    connection, path = work.target_connection, work.item.target
    earlier = find_own_entry(work) if work.is_repeated else None
    if earlier is not None:
        return earlier
    marked = {**properties, MARK: work.mark}
    try:
        return creation.add(
            connection, path, location, marked, declared=declared, columns=columns
        ).record
    except TableAlreadyExistsError as error:
        earlier = find_own_entry(work)
        if earlier is None:
            raise table_already_exists(path, "it was created after the plan was made") from error
        return earlier


def allocate_location(work: Work) -> str:
    """Return the location that an earlier run noted, if it is still free, or else a free one.

    Note it before the entry is made: an earlier run may have reserved it and died then.
    """
    connection, path = work.target_connection, work.item.target
    noted = str(work.facts.get("location") or "")
    if noted and not TableEntry(connection, TableRecord(path, noted)).storage(
        write=True
    ).has_dataset(noted):
        return noted
    home = placement.LazyNamespace(connection, path[:-1])
    return placement.allocate(path, home, must_read=True)


# -- undoing ---------------------------------------------------------------------------------------


def require_unchanged(work: Work) -> None:
    """Check that the target's entry is as this migration left it, or gone.

    Raises:
        InvalidTableStateError: (19) it was changed, renamed or replaced since.
    """
    after = work.facts.get(AFTER, {})
    record = find_entry(work.target_connection, work.item.target)
    if record is None:
        _require_not_renamed(work)
        return
    name = display(record.path)
    if not is_own(work, record):
        if not after:
            return  # the name was taken before this migration made anything there
        raise InvalidTableStateError(
            f"'{name}' is not the entry that migration {work.plan.id} made: it was created since"
        )
    if after and entry_facts(record) != after:
        raise InvalidTableStateError(
            f"'{name}' was changed since migration {work.plan.id} made it: undo that change first, "
            "or skip the table"
        )


def _require_not_renamed(work: Work) -> None:
    """Raise InvalidTableState (19) where the entry has another name in its namespace now."""
    with suppress(NamespaceNotFoundError):
        for record in work.target_connection.catalog.scan_tables(work.item.target[:-1]):
            if is_own(work, record):
                raise InvalidTableStateError(
                    f"'{work.item.name}' was renamed to '{display(record.path)}' since migration "
                    f"{work.plan.id} made it: rename it back first, or skip the table"
                )


CheckFiles = Callable[[TableRecord], None]
"""Raises InvalidTableState (19) where others wrote some of a table's files."""


def undo_entry(
    work: Work, *, check_files: CheckFiles | None = None, source: Connection | None = None
) -> None:
    """Remove the entry that this migration made; one that is gone needs nothing.

    Args:
        check_files: Where this migration wrote the data, too. Then its files are deleted.
        source: The catalog that the table comes from: one of its entries may be for the same files.

    Raises:
        InvalidTableStateError: (19) as `require_unchanged` and `check_files`; or another entry
            shares the location whose files would be deleted.
    """
    require_unchanged(work)
    record = find_own_entry(work)
    if record is None:
        if check_files is not None:
            _delete_leftovers(work, check_files, source)
        return
    if check_files is not None:
        check_files(record)
        _require_droppable(work, record, source)
        work.note(**{_DROPPED: record.location})
        dropping.drop_with_data(TableEntry(work.target_connection, record))
        return
    conversion.finish_latest(TableEntry(work.target_connection, record))
    TableEntry(work.target_connection, record).remove()


def _require_droppable(work: Work, record: TableRecord, source: Connection | None) -> None:
    """Raise InvalidTableState (19) where an entry of either catalog shares the location."""
    dropping.require_droppable(
        TableEntry(work.target_connection, record),
        LocationIndex(work.target_connection, [record.path[:-1]]),
    )
    if source is not None:
        index = LocationIndex(source, [work.item.source[:-1]])
        index.refuse_shared(record, of_another_catalog=True)


def _delete_leftovers(work: Work, check_files: CheckFiles, source: Connection | None) -> None:
    """Delete what is left at the location of an entry that does not exist.

    That is the reservation of a run that died before it made the entry, or the files that an
    earlier undo left, which died after it had dropped the entry. Or that one failed, and another
    user has removed the entry to keep the files, and has written since: so they are checked again.
    """
    dropped = str(work.facts.get(_DROPPED) or "")
    location = dropped or str(work.facts.get("location") or "")
    if not location:
        return
    record = TableRecord(work.item.target, location)
    try:
        _require_droppable(work, record, source)
    except InvalidTableStateError:
        return  # another entry has them now
    storage = TableEntry(work.target_connection, record).storage(write=True)
    has_data = storage.has_dataset(location)
    if dropped:
        if has_data:
            check_files(record)
        storage.delete_table(location)
    elif storage.is_occupied(location) and not has_data:
        storage.release(location, [locations.for_lance(location)])


# -- entries that existed before -------------------------------------------------------------------


def replace_properties(
    connection: Connection,
    record: TableRecord,
    properties: Mapping[str, str],
    ownership: Mapping[str, str] | None = None,
) -> TableRecord:
    """Give an entry these properties, those of the table format included, for what it has.

    Args:
        ownership: What `Catalog.load_ownership` returned, to be restored; None makes it external.

    Raises:
        ConcurrentModificationError: (14) it was modified concurrently, as far as that is seen.
        UnsupportedOperationError: (0) the catalog cannot change entries.
    """
    TableEntry(connection, record).require_alterable("The entry of")
    changed = record.with_properties(properties)

    def change() -> None:
        if ownership is None:
            connection.catalog.alter_table(changed)
        else:
            connection.catalog.alter_ownership(changed, ownership)

    def is_changed() -> bool:
        return entry_facts(connection.catalog.load_table(record.path)) == entry_facts(changed)

    retry_after_readback(change, is_changed)
    return changed
