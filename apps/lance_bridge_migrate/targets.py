"""Entries that a migration makes or changes in a catalog, each recognised by its mark.

The mark is a property that core keeps for itself, so that no caller sees it. It tells a later run,
and the undoing, what is this migration's own work: whatever became of a reply, and whenever the
process died.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from lance_namespace.errors import (
    InvalidTableStateError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import RESERVED_PREFIX, Column, Path, TableRecord
from lance_bridge.entries import placement, tables
from lance_bridge.entries.outcome import settle
from lance_bridge.entries.properties import ENTRY_ID
from lance_bridge.entries.sharing import LocationIndex
from lance_bridge.errors import display, table_already_exists
from lance_bridge.managed import conversion
from lance_bridge.managed.state import LATEST

from .kind import Work
from .plan import Facts, Item, What

MARK = RESERVED_PREFIX + "migration"
"""The property of entries, and of namespaces, that holds `Plan.mark`."""

_DROPPED = "dropped"
"""The fact that names the location whose entry an undoing is about to drop."""

AnyWork = Work[Any, Any, Any]

_CHANGING = (ENTRY_ID, LATEST, RESERVED_PREFIX + "revision", RESERVED_PREFIX + "declared_at")
"""Properties that change without anybody having changed the table's entry by hand."""

# -- reading -------------------------------------------------------------------------------------


def path_in(bridge: Bridge, names: Path) -> Path:
    """Return names as the catalog stores them. Raises InvalidInput (13): names it does not take."""
    return bridge.table_path(names)


def found(bridge: Bridge, path: Path) -> TableRecord | None:
    """Return the entry of a name, Lance's or not, or None where the catalog says there is none."""
    try:
        return bridge.catalog.load_table(path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return None


def entries_of(bridge: Bridge, items: Iterable[Item]) -> dict[str, TableRecord]:
    """Return the entries that tables of a plan have in the target by now, by the items' keys.

    Each namespace is read once, as a whole.
    """
    wanted = {item.target: item.key for item in items if item.what is What.TABLE}
    seen: dict[str, TableRecord] = {}
    for namespace in sorted({path[:-1] for path in wanted}):
        with suppress(NamespaceNotFoundError):
            records = bridge.catalog.scan_tables(namespace)
            seen.update({wanted[each.path]: each for each in records if each.path in wanted})
    return seen


def own(bridge: Bridge, work: AnyWork) -> TableRecord | None:
    """Return the entry of the item's target where it carries the item's mark, else None."""
    record = found(bridge, work.item.target)
    return record if record is not None and is_own(work, record) else None


def is_own(work: AnyWork, record: TableRecord) -> bool:
    """Return True where an entry carries the item's mark."""
    return record.properties.get(MARK) == work.mark


def state_of(record: TableRecord) -> Facts:
    """Return what an entry holds, as facts: to be compared with what it holds later.

    Left out is what changes without anybody changing the entry by hand.
    """
    kept = {k: v for k, v in sorted(record.properties.items()) if k not in _CHANGING}
    place = locations.for_lance(record.location) if record.location else None
    return {"location": place, "properties": kept}


def fingerprint_of(record: TableRecord) -> str:
    """Return a digest of `state_of` an entry and of its identity."""
    text = json.dumps([identity_of(record), state_of(record)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def identity_of(record: TableRecord) -> str:
    """Return what tells an entry from a later one of the same name; "" where nothing does."""
    return record.properties.get(ENTRY_ID) or record.identity or ""


# -- tables --------------------------------------------------------------------------------------


def claim(
    bridge: Bridge,
    work: AnyWork,
    location: str,
    properties: Mapping[str, str],
    *,
    declared: bool = False,
    columns: tuple[Column, ...] = (),
) -> TableRecord:
    """Make the entry of the item's target, or return the one that an earlier run made.

    Args:
        location: Where its data is or will be. An earlier run's own entry keeps its location.
        properties: The caller's, checked already.
        declared: Whether the data is still to come.
        columns: Those of the data, where they are known.

    Raises:
        TableAlreadyExistsError: (5) the name is taken by something else.
        NamespaceNotFoundError: (1)
    """
    path = work.item.target
    if work.is_repeated:
        earlier = own(bridge, work)
        if earlier is not None:
            return earlier
    marked = {**properties, MARK: work.mark}
    try:
        return tables.add(bridge, path, location, marked, declared=declared, columns=columns)
    except TableAlreadyExistsError as error:
        earlier = own(bridge, work)
        if earlier is None:
            raise table_already_exists(path, "somebody else has made it since the plan") from error
        return earlier


def free_location(bridge: Bridge, path: Path) -> str:
    """Return where a new table of that name goes; see `placement.default_location`."""
    home = placement.Home(bridge, path[:-1])
    return placement.free_location(bridge, path, home, must_look=True)


def require_unchanged(bridge: Bridge, work: AnyWork, after: Facts) -> None:
    """Check that the target's entry is as this migration left it, or gone.

    Args:
        after: `state_of` the entry when the step that made it was done.

    Raises:
        InvalidTableStateError: (19) somebody else made or changed it.
    """
    record = found(bridge, work.item.target)
    if record is None:
        return
    name = display(record.path)
    if not is_own(work, record):
        if not after:
            return  # the name was taken before this migration made anything there
        raise InvalidTableStateError(
            f"'{name}' is not the entry that migration {work.plan.id} made: somebody else has made "
            "it since"
        )
    if after and state_of(record) != after:
        raise InvalidTableStateError(
            f"'{name}' was changed since migration {work.plan.id} made it: undo that first, or "
            "leave it alone"
        )


CheckFiles = Callable[[TableRecord], None]
"""Raises InvalidTableState (19) where a table's files are not all of the migration's own making."""


def take_back(
    bridge: Bridge,
    work: AnyWork,
    after: Facts,
    *,
    check_files: CheckFiles | None = None,
    source: Bridge | None = None,
) -> None:
    """Remove the entry that this migration made; where it is gone, there is nothing to do.

    Args:
        after: As in `require_unchanged`.
        check_files: Where this migration wrote the data, too. Then its files are deleted.
        source: The catalog that the table comes from: one of its entries may be for the same files.

    Raises:
        InvalidTableStateError: (19) as `require_unchanged` and `check_files`; or another entry
            shares the location whose files would be deleted.
    """
    require_unchanged(bridge, work, after)
    record = own(bridge, work)
    if record is None:
        if check_files is not None:
            _delete_left(bridge, work, check_files, source)
        return
    if check_files is not None:
        check_files(record)
        _require_droppable(bridge, work, record, source)
        work.note(**{_DROPPED: record.location})
        tables.drop_with_data(bridge, record)
        return
    conversion.finish_latest(bridge, record)
    tables.drop_entry(bridge, record)


def _require_droppable(
    bridge: Bridge, work: AnyWork, record: TableRecord, source: Bridge | None
) -> None:
    """Raise InvalidTableState (19) where an entry of either catalog shares the location."""
    tables.require_droppable(record, LocationIndex(bridge, [record.path[:-1]]))
    if source is not None:
        index = LocationIndex(source, [work.item.source[:-1]])
        index.refuse_shared(record, of_another_catalog=True)


def _delete_left(
    bridge: Bridge, work: AnyWork, check_files: CheckFiles, source: Bridge | None
) -> None:
    """Delete what is left at the place of an entry that is not there.

    That is the mark of a run that died before it made the entry, or the files that an earlier
    undoing left, which died after it had dropped the entry. Or that one failed, and somebody else
    has taken the entry away to keep the files, and has written since: so they are looked at again.
    """
    dropped = str(work.facts.get(_DROPPED) or "")
    place = dropped or str(work.facts.get("location") or "")
    if not place:
        return
    record = TableRecord(work.item.target, place)
    try:
        _require_droppable(bridge, work, record, source)
    except InvalidTableStateError:
        return  # somebody else has an entry for them by now
    storage = bridge.storage(record, write=True)
    has_data = storage.has_dataset(place)
    if dropped:
        if has_data:
            check_files(record)
        storage.delete_table(place)
    elif storage.is_occupied(place) and not has_data:
        storage.release(place, [locations.for_lance(place)])


# -- entries that were there before --------------------------------------------------------------


def replace_properties(
    bridge: Bridge,
    record: TableRecord,
    properties: Mapping[str, str],
    marks: Mapping[str, str] | None = None,
) -> TableRecord:
    """Give an entry these properties, Lance's marks among them, in place of what it has.

    Args:
        marks: Those of `Catalog.load_marks` to give it back; None makes it external.

    Raises:
        ConcurrentModificationError: (14) somebody changed it meanwhile, where that can be told.
        UnsupportedOperationError: (0) the catalog cannot change entries.
    """
    tables.require_change(bridge, record, "The entry of")
    changed = record.with_properties(properties)

    def change() -> None:
        if marks is None:
            bridge.catalog.alter_table(changed)
        else:
            bridge.catalog.alter_marks(changed, marks)

    settle(change, lambda: state_of(bridge.catalog.load_table(record.path)) == state_of(changed))
    return changed
