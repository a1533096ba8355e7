"""Changes who manages tables of a catalog, without moving them.

``properties`` sets the table-format properties of this or of other implementations: `table_type`
with its letter case, `managed_by`, and whether the table is external, so that the catalog does not
delete its files. With ``others``, tables stay external: only undo restores whether the catalog
owned a table. ``management`` moves the versions of tables into their catalog, or back to storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError, TableNotFoundError

from lance_bridge.catalog import IMPLEMENTATION, LANCE, LATEST, MANAGED_BY, STORAGE, TABLE_TYPE
from lance_bridge.entry import TableEntry
from lance_bridge.errors import concurrent_modification
from lance_bridge.table import Table

from .. import Level
from ..endpoints import Endpoints, Selection, entries_of
from ..migration import ItemFacts, MigrationType, Step, StepContext, Survey
from ..plan import Facts, Item, Problem, blocker, digest
from ..record import Check
from ..targets import (
    AFTER,
    MARK,
    entry_facts,
    entry_fingerprint,
    entry_identity,
    is_own,
    replace_properties,
)


class PropertiesOptions(Selection):
    """Which entries to change, and the table-format properties to set.

    Attributes:
        to: ``ours`` for what this implementation writes: ``table_type=lance``,
            ``managed_by=storage``, external. ``others`` for `table_type` and `managed_by`.
        table_type: With ``others``, the value in its letter case.
        managed_by: With ``others``, the value, or "" for none.
    """

    to: Literal["ours", "others"] = "ours"
    table_type: Literal["lance", "LANCE"] = "LANCE"
    managed_by: Literal["storage", "catalog", ""] = "storage"

    def wanted(self) -> dict[str, str]:
        """Return the properties to set; "" for a property to remove."""
        if self.to == "ours":
            return {TABLE_TYPE: LANCE, MANAGED_BY: STORAGE}
        return {TABLE_TYPE: self.table_type, MANAGED_BY: self.managed_by}


class PropertiesFacts(ItemFacts):
    """The facts about an entry to change.

    Attributes:
        wanted: See `PropertiesOptions.wanted`.
        before: `entry_facts` when the plan was made.
        ownership: The result of `Catalog.load_ownership` when the plan was made.
    """

    wanted: dict[str, str]
    before: dict[str, Any]
    ownership: dict[str, str] | None = None


class Properties(MigrationType):
    """The migration type that this module describes."""

    name = "properties"
    options_type = PropertiesOptions

    def survey(self, endpoints: Endpoints, options: PropertiesOptions) -> Survey:
        entries = entries_of(endpoints.target_tables, options, lance_only=True)
        return Survey([_properties_item(entry, options) for entry in entries])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.target_tables.load_entry(item.source))

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - the same for all items
        return [Step("properties", _change, _change_back, _check_change_back)]

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:  # noqa: ARG002 - the same
        facts = PropertiesFacts.of(work.item)
        entry = work.target_tables.find(work.item.target)
        found = None if entry is None else _format_properties(entry)
        before = facts.before["location"]
        now = None if entry is None else entry_facts(entry)["location"]
        return [
            Check(name="properties", ok=found == facts.wanted, expected=facts.wanted, found=found),
            Check(name="location", ok=now == before, expected=before, found=now),
        ]


def _format_properties(entry: TableEntry) -> dict[str, str]:
    return {key: entry.record.properties.get(key, "") for key in (TABLE_TYPE, MANAGED_BY)}


def _properties_item(entry: TableEntry, options: PropertiesOptions) -> Item:
    record, connection = entry.record, entry.connection
    facts = PropertiesFacts(wanted=options.wanted(), before=entry_facts(entry))
    item = Item(
        source=entry.path,
        target=entry.path,
        facts=facts.to_json(),
        fingerprint=entry_fingerprint(entry),
    )
    is_ours = _format_properties(entry) == facts.wanted
    if record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
        holder = "its catalog" if LATEST in record.properties else "another implementation"
        why = f"Its versions are managed by {holder}, which these properties do not change"
        return item.model_copy(update={"nothing_to_do": why})
    if is_ours and (record.is_external or options.to == "others"):
        return item.model_copy(update={"nothing_to_do": "It has these properties"})
    if reason := connection.capabilities.no_alter:
        return item.with_problems(blocker(f"Entries cannot change: {reason}"))
    if record.link_to:
        return item.with_problems(blocker(f"It is a link to {record.link_to}: change that table"))
    try:
        ownership = dict(connection.catalog.load_ownership(record.path))
    except TableNotFoundError as error:  # dropped since it was listed
        return item.with_problems(blocker(str(error)))
    return item.model_copy(update={"facts": {**item.facts, "ownership": ownership}})


def _change(work: StepContext) -> Facts:
    facts, entry = PropertiesFacts.of(work.item), work.target_tables.load_entry(work.item.target)
    if is_own(work, entry):
        return {}  # by an earlier run
    if entry_facts(entry) != facts.before:
        raise concurrent_modification(entry.path)
    kept = {k: v for k, v in entry.record.properties.items() if k not in facts.wanted}
    new = {**kept, **{k: v for k, v in facts.wanted.items() if v}, MARK: work.mark}
    # Noted before the change: if this run dies after it, undo still detects changes of others.
    changed = entry.with_record(entry.record.with_properties(new))
    work.note(**{AFTER: entry_facts(changed)})
    replace_properties(entry, new)
    return {}


def _check_change_back(work: StepContext) -> TableEntry | None:
    """Return the entry if it is unchanged since this migration, or None if nothing is to undo.

    Raises:
        InvalidTableStateError: (19) it was changed or replaced since.
    """
    entry = work.target_tables.find(work.item.target)
    if entry is None:
        return None
    now = entry_facts(entry)
    if now == PropertiesFacts.of(work.item).before:
        return None
    if is_own(work, entry) and now == work.facts.get(AFTER):
        return entry
    raise InvalidTableStateError(
        f"'{entry.name}' was changed since migration {work.plan.id} changed its "
        "properties: undo that change first, or skip the table"
    )


def _change_back(work: StepContext) -> None:
    entry = _check_change_back(work)
    if entry is None:
        return
    facts, seen = PropertiesFacts.of(work.item), entry_facts(entry)["properties"]
    hidden = {k: v for k, v in entry.record.properties.items() if k not in seen}
    before = {**hidden, **facts.before["properties"]}
    replace_properties(entry, before, facts.ownership)


# -- versions --------------------------------------------------------------------------------------


_OPPOSITE = {"catalog": "storage", "storage": "catalog"}
_NOTES = {
    "catalog": "Stop all writers first: those that opened a table before continue to write to its "
    "storage, and those commits are not visible",
    "storage": "Writers may continue: they commit to the storage once they open a table again",
}


class ManagementOptions(Selection):
    """Which tables to convert, and what will manage their versions.

    Attributes:
        to: ``catalog`` makes tables implementation-managed, ``storage`` storage-managed.
    """

    to: Literal["catalog", "storage"]


class ManagementFacts(ItemFacts):
    """The facts about a table: the `entry_identity` of its entry."""

    identity: str


class Management(MigrationType):
    """The migration type that this module describes."""

    name = "management"
    options_type = ManagementOptions

    def survey(self, endpoints: Endpoints, options: ManagementOptions) -> Survey:
        tables = endpoints.target_tables
        entries = list(entries_of(tables, options, lance_only=True))
        sharing = tables.find_sharing(entries) if options.to == "catalog" else {}
        items = [_management_item(entry, options, sharing.get(entry.path, [])) for entry in entries]
        return Survey(items, [_NOTES[options.to]])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return _fingerprint(endpoints.target_tables.load_entry(item.source))

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - the same for all items
        return [Step("convert", _convert, _convert_back, _check_convert_back)]

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:
        to, before = work.options.to, work.facts.get("version", 0)
        table = work.target_tables.load(work.item.target)
        now = _managed_by(table)
        checks = [Check(name="versions", ok=now == to, expected=to, found=now)]
        if level.includes(Level.COUNTS) and before:
            version = int(table.open().version)
            is_kept = version >= before
            checks.append(Check(name="version", ok=is_kept, expected=before, found=version))
        return checks


def _managed_by(entry: TableEntry) -> str:
    return "storage" if entry.managed is None else "catalog"


def _fingerprint(entry: TableEntry) -> str:
    return digest([entry_identity(entry), entry.record.location, _managed_by(entry)])


def _management_item(
    entry: TableEntry, options: ManagementOptions, others: Sequence[TableEntry]
) -> Item:
    item = Item(
        source=entry.path,
        target=entry.path,
        fingerprint=_fingerprint(entry),
        facts=ManagementFacts(identity=entry_identity(entry)).to_json(),
    )
    try:
        table = Table.of(entry)
        table.require_own_versions()
        if _managed_by(table) == options.to:
            return item.model_copy(update={"nothing_to_do": f"Its {options.to} holds its versions"})
        return item.with_problems(*_problems(table, options.to, others))
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _problems(table: Table, to: str, others: Sequence[TableEntry]) -> Iterator[Problem]:
    """Yield problems that prevent the conversion. Raises what the conversion would raise.

    Args:
        others: Other entries for the location of the table.
    """
    if to == "catalog":
        table.connection.require_manageable(f"Table '{table.name}'")
        table.latest_in_storage()
        manager = str(table.other_manager() or "") or (f"'{others[0].name}'" if others else "")
        if manager:
            yield blocker(f"{manager} has the same location: deregister one of the two first")
    elif outside := table.out_of_band_versions().versions:
        yield blocker(
            f"Version {outside[0].version} was not committed through the catalog, and would become "
            "visible: adopt or discard it first (lance-bridge managed)"
        )


def _convert(work: StepContext) -> Facts:
    table = _find_planned_table(work)
    if table is None:
        raise concurrent_modification(work.item.target)
    if _managed_by(table) == work.options.to:
        # If another user converted it, not an earlier run, there is nothing to undo.
        return {} if work.is_repeated else {"by_others": True}
    if "version" not in work.facts:
        state = table.managed  # a table without data has version 0
        work.note(version=table.latest_in_storage() if state is None else state.version)
    _change_management(work, table, work.options.to)
    return {}


def _change_management(work: StepContext, table: Table, to: str) -> None:
    """Convert a table, taking over the lock of an earlier run that died."""
    if to == "catalog":
        table.manage()
    else:
        table.release(holder=work.mark.rpartition("/")[2])


def _find_planned_table(work: StepContext) -> Table | None:
    """Return the plan's table, or None if it was dropped or replaced."""
    entry = work.target_tables.find(work.item.target)
    expected = ManagementFacts.of(work.item).identity
    return Table.of(entry) if entry is not None and entry_identity(entry) == expected else None


def _check_convert_back(work: StepContext) -> Table | None:
    """Return the table to convert back, if it is one.

    Raises:
        InvalidTableStateError: (19) undo would show or hide versions of other writers.
    """
    entry = work.target_tables.find(work.item.target)
    if entry is None or work.facts.get("by_others"):
        return None
    table = _find_planned_table(work)
    if table is None:
        raise InvalidTableStateError(
            f"'{entry.name}' is not the table that migration {work.plan.id} converted"
        )
    back = _OPPOSITE[work.options.to]
    if _managed_by(table) == back:
        return None
    others = work.target_tables.find_sharing([table]).get(table.path, ())
    for problem in _problems(table, back, others):
        raise InvalidTableStateError(f"'{table.name}': {problem.text}")
    return table


def _convert_back(work: StepContext) -> None:
    table = _check_convert_back(work)
    if table is not None:
        _change_management(work, table, _OPPOSITE[work.options.to])
