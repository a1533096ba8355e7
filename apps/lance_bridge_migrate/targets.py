"""Entries and namespaces that a migration plans, creates or changes in a catalog, known by a mark.

The mark is an internal property, which callers do not see. By the mark, later runs and undo
recognise what this migration made, even after a lost reply or the death of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
)
from pydantic import Field

from lance_bridge import locations
from lance_bridge.catalog import (
    GUARD,
    LATEST,
    MANAGED_BY,
    RESERVED_PREFIX,
    Column,
    NamespaceRecord,
    Path,
)
from lance_bridge.catalog_scan import read_entry
from lance_bridge.connection import Connection
from lance_bridge.entry import TableEntry
from lance_bridge.errors import (
    concurrent_modification,
    display,
    retry_after_readback,
    table_already_exists,
)
from lance_bridge.managed_state import RELEASED
from lance_bridge.records import ENTRY_ID, FOREIGN_COMMITS, check_properties
from lance_bridge.records import MARK as MANAGERS_MARK
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from .migration import ItemFacts, Step, StepContext
from .plan import Facts, Item, ItemType, Problem, blocker, blockers_in, digest, warning

MARK = RESERVED_PREFIX + "migration"
"""The property of entries and namespaces that contains `Plan.mark`."""

AFTER = "after"
"""The fact with `entry_facts` after the last step that made or changed the entry."""
MANAGING = "managing"
"""The fact that is true from when a step starts to make the catalog manage the table's versions
until it is done. A run that died then may or may not have changed the entry."""
_OF_MANAGEMENT = (MANAGED_BY, GUARD, FOREIGN_COMMITS, MANAGERS_MARK, RELEASED)
"""Properties that such a step sets, beside `LATEST`."""
_THREADS = 8
_DROPPED = "dropped"
"""The fact with the location whose entry undo is about to drop."""
_VOLATILE = (ENTRY_ID, LATEST, RESERVED_PREFIX + "revision", RESERVED_PREFIX + "declared_at")
"""Properties that change without an explicit change of the entry."""


def entries_of_names(tables: Tables, paths: Collection[Path]) -> dict[Path, TableEntry]:
    """Return the entries that have these names or are in their namespaces.

    A listing may leave out an entry that the user has no right to list, and a namespace may refuse
    to be listed: an entry is then read by its name. One that exists and may not be read is returned
    as unreadable.
    """
    found: dict[Path, TableEntry] = {}
    for namespace in sorted({path[:-1] for path in paths}):
        with suppress(NamespaceNotFoundError, PermissionDeniedError):
            found.update({each.path: each for each in tables.scan(namespace)})
    catalog = tables.connection.catalog
    with ThreadPoolExecutor(_THREADS) as threads:
        unlisted = threads.map(partial(read_entry, catalog), (p for p in paths if p not in found))
        records = [each for each in unlisted if each is not None]
    return {**found, **{each.path: TableEntry(tables.connection, each) for each in records}}


def find_own_table(work: StepContext) -> Table | None:
    """Return the item's target if its entry has the item's mark, else None.

    Raises:
        InvalidInputError: (13) the entry was changed, and is no longer a Lance table.
    """
    entry = work.target_tables.find(work.item.target)
    return Table.of(entry) if entry is not None and is_own(work, entry) else None


def load_own_table(work: StepContext) -> Table:
    """Return the table that this migration made. Raises ConcurrentModification (14)."""
    table = find_own_table(work)
    if table is None:
        raise concurrent_modification(work.item.target)
    return table


def is_own(work: StepContext, entry: TableEntry) -> bool:
    """Return whether an entry has the item's mark."""
    return entry.record.properties.get(MARK) == work.mark


def entry_facts(entry: TableEntry) -> Facts:
    """Return the location and properties of an entry, to detect later changes.

    Properties that change without an explicit change of the entry are left out.
    """
    kept = {k: v for k, v in sorted(entry.record.properties.items()) if k not in _VOLATILE}
    return {"location": entry.uri if entry.location else None, "properties": kept}


def entry_fingerprint(entry: TableEntry) -> str:
    """Return a digest of `entry_facts` and `entry_identity`."""
    return digest([entry_identity(entry), entry_facts(entry)])


def entry_identity(entry: TableEntry) -> str:
    """Return an identifier that a recreated entry of the same name does not share, or ""."""
    return entry.entry_id or entry.record.identity or ""


# -- creating --------------------------------------------------------------------------------------


def create_entry(
    work: StepContext,
    location: str,
    properties: Mapping[str, str],
    columns: tuple[Column, ...] | None = None,
) -> Table:
    """Create the entry of the item's target, or return the one that an earlier run made.

    Args:
        location: The location of its data. The entry of an earlier run keeps its location.
        properties: The validated properties of the caller.
        columns: The columns of a table that has no data yet; None for one with data.

    Raises:
        TableAlreadyExistsError: (5) the name is taken by another entry.
        NamespaceNotFoundError: (1)
    """
    path = work.item.target
    earlier = find_own_table(work) if work.is_repeated else None
    if earlier is not None:
        return earlier
    marked = {**properties, MARK: work.mark}
    try:
        is_new = columns is not None
        return work.target_tables.add_entry(
            path, location, marked, declared=is_new, columns=columns or ()
        )
    except TableAlreadyExistsError as error:
        earlier = find_own_table(work)
        if earlier is None:
            raise table_already_exists(path, "it was created after the plan was made") from error
        return earlier


def allocate_location(work: StepContext) -> str:
    """Return the location that an earlier run noted, if it is still free, or a new one.

    The caller must note it before creating the entry: a run may reserve a location and then die.
    """
    tables, path = work.target_tables, work.item.target
    noted = str(work.facts.get("location") or "")
    if noted and not tables.at(path, noted).storage(write=True).has_dataset(noted):
        return noted
    return tables.allocate_location(path)


# -- undoing ---------------------------------------------------------------------------------------


def require_unchanged(work: StepContext) -> None:
    """Check that the target's entry is unchanged since this migration, or does not exist.

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
            return  # this migration did not create the entry
        raise InvalidTableStateError(
            f"'{entry.name}' is not the entry that migration {work.plan.id} made: it was created "
            "since"
        )
    kept = _without_management if work.facts.get(MANAGING) else dict
    if after and kept(entry_facts(entry)) != kept(after):
        raise InvalidTableStateError(
            f"'{entry.name}' was changed since migration {work.plan.id} made it: undo that change "
            "first, or skip the table"
        )


def _without_management(facts: Facts) -> Facts:
    kept = {k: v for k, v in facts["properties"].items() if k not in _OF_MANAGEMENT}
    return {**facts, "properties": kept}


def _require_not_renamed(work: StepContext) -> None:
    """Raise InvalidTableState (19) if the entry was renamed within its namespace."""
    with suppress(NamespaceNotFoundError):
        for entry in work.target_tables.scan(work.item.target[:-1]):
            if is_own(work, entry):
                raise InvalidTableStateError(
                    f"'{work.item.name}' was renamed to '{entry.name}' since migration "
                    f"{work.plan.id} made it: rename it back first, or skip the table"
                )


CheckFiles = Callable[[StepContext, Table], None]
"""Raises InvalidTableState (19) if other writers wrote some of a table's files."""


def undo_entry(
    work: StepContext, *, check_files: CheckFiles | None = None, source: Tables | None = None
) -> None:
    """Remove the entry that this migration made, if it exists.

    Args:
        check_files: Given if this migration also wrote the data, which is then deleted.
        source: The catalog of the source table, which may have an entry for the same files.

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
        check_files(work, table)
        _require_droppable(work, table, source)
        work.note(**{_DROPPED: table.location})
        work.target_tables.drop_with_data(table)
        return
    with table.finished_for_removal() as finished:
        finished.remove()


def _require_droppable(work: StepContext, table: Table, source: Tables | None) -> None:
    """Raise InvalidTableState (19) if an entry of either catalog shares the location."""
    work.target_tables.require_droppable(table)
    if source is not None:
        source.require_unshared([table.record], work.item.source[:-1])


def _delete_leftovers(work: StepContext, check_files: CheckFiles, source: Tables | None) -> None:
    """Delete what is left at the noted location if the entry does not exist.

    This is the reservation of a run that died before it created the entry, or the files of an undo
    that died after it dropped the entry. The files are checked again, because the undo may have
    failed instead, and a user may have removed the entry to keep the files, and written to them.
    """
    dropped = str(work.facts.get(_DROPPED) or "")
    location = dropped or str(work.facts.get("location") or "")
    if not location:
        return
    table = work.target_tables.at(work.item.target, location)
    try:
        _require_droppable(work, table, source)
    except InvalidTableStateError:
        return  # the location now belongs to another entry
    storage = table.storage(write=True)
    has_data = storage.has_dataset(location)
    if dropped:
        if has_data:
            check_files(work, table)
        storage.delete_table(location)
    elif storage.is_occupied(location) and not has_data:
        storage.release(location, [locations.for_lance(location)])


def step_with_data(
    describe: Callable[[StepContext], tuple[Mapping[str, str], tuple[Column, ...]]],
    check_files: CheckFiles,
    *,
    manages: bool = False,
    has_source_entry: bool = False,
) -> Step:
    """Return the step that creates the entry of data that later steps write. Its undo deletes both.

    Args:
        describe: Returns the properties and the columns of the new table.
        manages: Whether the catalog is to manage the table's versions from the start.
        has_source_entry: Whether the source is a catalog, too.
    """

    def create(work: StepContext) -> Facts:
        location = allocate_location(work)
        work.note(location=location)
        properties, columns = describe(work)
        table = create_entry(work, location, properties, columns)
        table = table.manage() if manages else table
        return {AFTER: entry_facts(table), "location": table.location}

    def check_undo(work: StepContext) -> None:
        require_unchanged(work)
        table = find_own_table(work)
        if table is not None:
            check_files(work, table)

    def undo(work: StepContext) -> None:
        source = work.source_tables if has_source_entry else None
        undo_entry(work, check_files=check_files, source=source)

    return Step("entry", create, undo, check_undo)


def replace_properties(
    entry: TableEntry, properties: Mapping[str, str], ownership: Mapping[str, str] | None = None
) -> None:
    """Replace all properties of an entry, including those of the table format.

    Args:
        ownership: The result of `Catalog.load_ownership` to restore; None makes it external.

    Raises:
        ConcurrentModificationError: (14) a concurrent modification was detected.
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


# -- namespaces ------------------------------------------------------------------------------------


def missing_namespaces(connection: Connection, tables: Iterable[Path]) -> list[Item]:
    """Return an item for each missing namespace of these tables, outermost first.

    The item is blocked if the namespace cannot be created.
    """
    wanted = {path[:depth] for path in tables for depth in range(1, len(path))}
    ordered = sorted(wanted, key=lambda path: (len(path), path))
    return [
        _namespace_item(connection, path)
        for path in ordered
        if not _namespace_exists(connection, path)
    ]


def _namespace_exists(connection: Connection, path: Path) -> bool:
    try:
        with suppress(PermissionDeniedError):  # it exists, and may not be seen
            connection.catalog.load_namespace(path)
    except NamespaceNotFoundError:
        return False
    return True


def _namespace_item(connection: Connection, path: Path) -> Item:
    item = Item(type=ItemType.NAMESPACE, source=path, target=path)
    capabilities = connection.capabilities
    reason = capabilities.no_namespace_changes
    if not reason and len(path) < capabilities.levels:
        reason = capabilities.no_outer_namespace_changes
    return item.with_problems(blocker(f"It cannot be created: {reason}")) if reason else item


def namespace_steps() -> list[Step]:
    """Return the steps of a namespace's item."""
    return [Step("namespace", _create_namespace, _remove_namespace)]


def _create_namespace(work: StepContext) -> None:
    catalog = work.target_tables.connection.catalog
    record = NamespaceRecord(work.item.target, {MARK: work.mark})
    # Another process may have created it.
    with suppress(NamespaceAlreadyExistsError):
        retry_after_readback(
            lambda: catalog.create_namespace(record), lambda: _is_own_namespace(work)
        )


def _is_own_namespace(work: StepContext) -> bool:
    try:
        record = work.target_tables.connection.catalog.load_namespace(work.item.target)
    except NamespaceNotFoundError:
        return False
    return record.properties.get(MARK) == work.mark


def _remove_namespace(work: StepContext) -> None:
    """Drop a namespace that has this migration's mark, unless it has content."""
    connection, path = work.target_tables.connection, work.item.target
    with suppress(NamespaceNotFoundError, NamespaceNotEmptyError):
        if _is_own_namespace(work) and not _has_content(connection, path):
            retry_after_readback(
                lambda: connection.catalog.drop_namespace(path), lambda: not _is_own_namespace(work)
            )


def _has_content(connection: Connection, path: Path) -> bool:
    catalog, is_innermost = connection.catalog, len(path) == connection.capabilities.levels
    children = catalog.list_tables(path) if is_innermost else catalog.list_namespaces(path)
    return next(iter(children), None) is not None


# -- planning --------------------------------------------------------------------------------------


NO_DATA = "It is declared and has no data yet"


class EntryFacts(ItemFacts):
    """The facts about a table that gets an entry.

    Attributes:
        location: Its existing location, or "" if a step allocates one.
        properties: The properties of its entry that callers see.
        managed: Whether the catalog will manage its versions.
    """

    location: str = ""
    properties: dict[str, str] = Field(default_factory=dict)
    managed: bool = False


@dataclass(frozen=True)
class Candidate:
    """A table that should get an entry.

    Attributes:
        source: Its identifier in the source.
        target: Its identifier in the catalog, not validated yet.
        facts: The facts, not validated yet.
        fingerprint: See `Item`; likewise nothing_to_do, rows and bytes.
        hints: Notes for the plan.
    """

    source: Path
    target: Path
    facts: EntryFacts
    fingerprint: str = ""
    nothing_to_do: str = ""
    problems: tuple[Problem, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    hints: tuple[str, ...] = ()


def plan_items(
    tables: Tables, candidates: Iterable[Candidate], *, make_namespaces: bool
) -> list[Item]:
    """Return the items of a plan: missing namespaces and the tables.

    Args:
        make_namespaces: Whether to create missing namespaces; otherwise their tables are blocked.
    """
    planned = [_plan_table(tables, each) for each in candidates]
    wanted = {item.target for item in planned if item.is_to_do}
    missing = missing_namespaces(tables.connection, wanted)
    absent = {item.target for item in missing}
    parents = {path[:-1] for path in wanted} - absent
    existing = entries_of_names(tables, {path for path in wanted if path[:-1] in parents})
    managing = {path for path in parents if _manages_versions(tables, path)}
    if not make_namespaces:
        planned = [_require_namespace(item, absent) for item in planned]
    planned = [_compare_with_entry(item, existing.get(item.target)) for item in planned]
    with ThreadPoolExecutor(_THREADS) as threads:
        planned = list(threads.map(partial(_require_unmanaged, tables), planned))
    for number, item in enumerate(planned):
        if item.target[:-1] in managing:
            facts = {**item.facts, "managed": True}
            planned[number] = item.model_copy(update={"facts": facts})
    return [*missing, *planned] if make_namespaces else planned


def _plan_table(tables: Tables, found: Candidate) -> Item:
    """Return the item of a table, with the problems of its names, location and properties."""
    problems = list(found.problems)
    target, location = found.target, found.facts.location
    if not blockers_in(problems):
        try:
            target = tables.path_of(found.target)
            location = locations.check(location) if location else ""
        except InvalidInputError as error:
            problems.append(blocker(str(error)))
    properties, refused = _check_properties(found.facts.properties)
    facts = found.facts.model_copy(update={"location": location, "properties": properties})
    return Item(
        source=found.source,
        target=target,
        facts=facts.to_json(),
        fingerprint=found.fingerprint,
        nothing_to_do=found.nothing_to_do,
        problems=(*problems, *refused),
        rows=found.rows,
        bytes=found.bytes,
    )


def _check_properties(given: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    kept: dict[str, str] = {}
    problems = []
    for key, value in given.items():
        try:
            kept.update(check_properties({key: value}))
        except InvalidInputError as error:
            problems.append(warning(f"A property is left out: {error}"))
    return kept, problems


def _require_namespace(item: Item, absent: set[Path]) -> Item:
    outer = [item.target[:depth] for depth in range(1, len(item.target))]
    missing = [path for path in outer if path in absent]
    if not missing or not item.is_to_do:
        return item
    text = f"Namespace '{display(missing[0])}' does not exist: create it, or let the migration"
    return item.with_problems(blocker(f"{text} create it"))


def _manages_versions(tables: Tables, namespace: Path) -> bool:
    """Return whether the catalog manages the versions of new tables in a namespace."""
    with suppress(NamespaceNotFoundError):
        return tables.wants_management((*namespace, ""))
    return False


def _compare_with_entry(item: Item, entry: TableEntry | None) -> Item:
    """Return the item, blocked or with nothing to do if its name already has an entry."""
    if entry is None or not item.is_to_do:
        return item
    if not entry.record.is_readable:
        text = "The name is already used by an entry that exists and cannot be read"
        return item.with_problems(blocker(text))
    location = item.facts["location"] and locations.key(item.facts["location"])
    is_lance = entry.record.is_lance
    if is_lance and entry.location and locations.key(entry.location) == location:
        return item.model_copy(update={"nothing_to_do": "It has an entry for that location"})
    found = f"a Lance table at {entry.location}" if is_lance else entry.describe_type()
    return item.with_problems(blocker(f"The name is already used by {found}"))


def _require_unmanaged(tables: Tables, item: Item) -> Item:
    """Return the item, blocked if another entry manages the versions at its location."""
    location = item.facts["location"]
    if not item.is_to_do or not location:
        return item
    try:
        manager = tables.find_manager(item.target, location)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))
    text = (
        f"Its versions are managed by {manager}. Return them to the storage with `lance-bridge "
        "managed end`, or register an entry that only reads with `lance-bridge table register "
        "--force`"
    )
    return item.with_problems(blocker(text)) if manager else item


def manage_versions(work: StepContext) -> Facts:
    """Make the catalog manage the versions of the table."""
    work.note(**{MANAGING: True})
    return {AFTER: entry_facts(load_own_table(work).manage()), MANAGING: False}
