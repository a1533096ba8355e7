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
)

from lance_bridge import location as locations
from lance_bridge.catalog import LATEST, RESERVED_PREFIX, Column, Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import concurrent_modification, table_already_exists
from lance_bridge.lost_replies import retry_after_readback
from lance_bridge.records import ENTRY_ID
from lance_bridge.table import Table
from lance_bridge.tables import Tables

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


def find_entries(tables: Tables, items: Iterable[Item]) -> dict[str, TableEntry]:
    """Return the entries that tables of a plan have in the target now, by the items' keys.

    Each namespace is read once, as a whole.
    """
    keys = {item.target: item.key for item in items if item.type is ItemType.TABLE}
    found = entries_in(tables, {path[:-1] for path in keys})
    return {key: found[path] for path, key in keys.items() if path in found}


def entries_in(tables: Tables, namespaces: Iterable[Path]) -> dict[Path, TableEntry]:
    """Return the entries of namespaces, Lance's or not; a namespace that is missing has none."""
    found: dict[Path, TableEntry] = {}
    for namespace in sorted(namespaces):
        with suppress(NamespaceNotFoundError):
            found.update({each.path: each for each in tables.scan(namespace)})
    return found


def find_own_table(work: Work) -> Table | None:
    """Return the item's target where its entry carries the item's mark, else None.

    Raises:
        InvalidInputError: (13) its entry was changed, and is not a Lance table's.
    """
    entry = work.target_tables.find(work.item.target)
    return Table.of(entry) if entry is not None and is_own(work, entry) else None


def load_own_table(work: Work) -> Table:
    """Return the table that this migration made. Raises ConcurrentModification (14)."""
    table = find_own_table(work)
    if table is None:
        raise concurrent_modification(work.item.target)
    return table


def is_own(work: Work, entry: TableEntry) -> bool:
    """Return True where an entry carries the item's mark."""
    return entry.record.properties.get(MARK) == work.mark


def entry_facts(entry: TableEntry) -> Facts:
    """Return what an entry holds, as facts: to be compared with what it holds later.

    What changes without a change of the entry by hand is left out.
    """
    kept = {k: v for k, v in sorted(entry.record.properties.items()) if k not in _CHANGING}
    return {"location": entry.uri if entry.location else None, "properties": kept}


def entry_fingerprint(entry: TableEntry) -> str:
    """Return a digest of `entry_facts` and of an entry's identity."""
    text = json.dumps([entry_identity(entry), entry_facts(entry)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def entry_identity(entry: TableEntry) -> str:
    """Return what differs between an entry and a later one of its name; "" if nothing does."""
    return entry.entry_id or entry.record.identity or ""


# -- creating --------------------------------------------------------------------------------------


def create_entry(
    work: Work,
    location: str,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> Table:
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
    path = work.item.target
    earlier = find_own_table(work) if work.is_repeated else None
    if earlier is not None:
        return earlier
    marked = {**properties, MARK: work.mark}
    try:
        return work.target_tables.add_entry(
            path, location, marked, declared=declared, columns=columns
        )
    except TableAlreadyExistsError as error:
        earlier = find_own_table(work)
        if earlier is None:
            raise table_already_exists(path, "it was created after the plan was made") from error
        return earlier


def allocate_location(work: Work) -> str:
    """Return the location that an earlier run noted, if it is still free, or else a free one.

    Note it before the entry is made: an earlier run may have reserved it and died then.
    """
    tables, path = work.target_tables, work.item.target
    noted = str(work.facts.get("location") or "")
    if noted and not tables.at(path, noted).storage(write=True).has_dataset(noted):
        return noted
    return tables.allocate_location(path)


# -- undoing ---------------------------------------------------------------------------------------


def require_unchanged(work: Work) -> None:
    """Check that the target's entry is as this migration left it, or gone.

    Raises:
        InvalidTableStateError: (19) it was changed, renamed or replaced since.
    """
    after = work.facts.get(AFTER, {})
    entry = work.target_tables.find(work.item.target)
    if entry is None:
        _require_not_renamed(work)
        return
    if not is_own(work, entry):
        if not after:
            return  # the name was taken before this migration made anything there
        raise InvalidTableStateError(
            f"'{entry.name}' is not the entry that migration {work.plan.id} made: it was created "
            "since"
        )
    if after and entry_facts(entry) != after:
        raise InvalidTableStateError(
            f"'{entry.name}' was changed since migration {work.plan.id} made it: undo that change "
            "first, or skip the table"
        )


def _require_not_renamed(work: Work) -> None:
    """Raise InvalidTableState (19) where the entry has another name in its namespace now."""
    with suppress(NamespaceNotFoundError):
        for entry in work.target_tables.scan(work.item.target[:-1]):
            if is_own(work, entry):
                raise InvalidTableStateError(
                    f"'{work.item.name}' was renamed to '{entry.name}' since migration "
                    f"{work.plan.id} made it: rename it back first, or skip the table"
                )


CheckFiles = Callable[[Table], None]
"""Raises InvalidTableState (19) where others wrote some of a table's files."""


def undo_entry(
    work: Work, *, check_files: CheckFiles | None = None, source: Tables | None = None
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
    table = find_own_table(work)
    if table is None:
        if check_files is not None:
            _delete_leftovers(work, check_files, source)
        return
    if check_files is not None:
        check_files(table)
        _require_droppable(work, table, source)
        work.note(**{_DROPPED: table.location})
        work.target_tables.drop_with_data(table)
        return
    with table.finished_for_removal() as finished:
        finished.remove()


def _require_droppable(work: Work, table: Table, source: Tables | None) -> None:
    """Raise InvalidTableState (19) where an entry of either catalog shares the location."""
    work.target_tables.require_droppable(table)
    if source is not None:
        source.require_unshared(table, work.item.source[:-1])


def _delete_leftovers(work: Work, check_files: CheckFiles, source: Tables | None) -> None:
    """Delete what is left at the location of an entry that does not exist.

    That is the reservation of a run that died before it made the entry, or the files that an
    earlier undo left, which died after it had dropped the entry. Or that one failed, and another
    user has removed the entry to keep the files, and has written since: so they are checked again.
    """
    dropped = str(work.facts.get(_DROPPED) or "")
    location = dropped or str(work.facts.get("location") or "")
    if not location:
        return
    table = work.target_tables.at(work.item.target, location)
    try:
        _require_droppable(work, table, source)
    except InvalidTableStateError:
        return  # another entry has them now
    storage = table.storage(write=True)
    has_data = storage.has_dataset(location)
    if dropped:
        if has_data:
            check_files(table)
        storage.delete_table(location)
    elif storage.is_occupied(location) and not has_data:
        storage.release(location, [locations.for_lance(location)])


# -- entries that existed before -------------------------------------------------------------------


def replace_properties(
    entry: TableEntry,
    properties: Mapping[str, str],
    ownership: Mapping[str, str] | None = None,
) -> TableEntry:
    """Give an entry these properties, those of the table format included, for what it has.

    Args:
        ownership: What `Catalog.load_ownership` returned, to be restored; None makes it external.

    Raises:
        ConcurrentModificationError: (14) it was modified concurrently, as far as that is seen.
        UnsupportedOperationError: (0) the catalog cannot change entries.
    """
    entry.require_alterable("The entry of")
    changed = entry.with_record(entry.record.with_properties(properties))
    catalog = entry.connection.catalog

    def change() -> None:
        if ownership is None:
            catalog.alter_table(changed.record)
        else:
            catalog.alter_ownership(changed.record, ownership)

    def is_changed() -> bool:
        now = entry.with_record(catalog.load_table(entry.path))
        return entry_facts(now) == entry_facts(changed)

    retry_after_readback(change, is_changed)
    return changed
