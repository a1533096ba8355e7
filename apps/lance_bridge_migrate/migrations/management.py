"""``management``: moves the versions of tables into their catalog, or back to storage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from lance_namespace.errors import InvalidTableStateError

from lance_bridge.entry import TableEntry
from lance_bridge.errors import LanceNamespaceError, concurrent_modification
from lance_bridge.table import Table

from ..endpoints import Endpoints
from ..levels import Level
from ..migration import ItemFacts, MigrationType, Step, StepContext, Survey
from ..plan import Facts, Item, Problem, blocker
from ..record import Check
from ..selection import Selection, entries_of
from ..targets import entry_identity

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

    @property
    def opposite(self) -> ManagementOptions:
        """The options of the reverse conversion."""
        return ManagementOptions(to="storage" if self.to == "catalog" else "catalog")


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
        items = [_item(entry, options, sharing.get(entry.path, [])) for entry in entries]
        return Survey(items, [_NOTES[options.to]])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return _fingerprint(endpoints.target_tables.load_entry(item.source))

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - the same for all items
        return [Step("convert", _convert, _convert_back, _check_undo)]

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
    text = json.dumps([entry_identity(entry), entry.record.location, _managed_by(entry)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _item(entry: TableEntry, options: ManagementOptions, others: Sequence[TableEntry]) -> Item:
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
        return item.with_problems(*_problems(table, options, others))
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _problems(
    table: Table, options: ManagementOptions, others: Sequence[TableEntry]
) -> list[Problem]:
    """Return problems that prevent the conversion. Raises what the conversion would raise.

    Args:
        others: Other entries for the location of the table.
    """
    if options.to == "catalog":
        table.connection.require_manageable(f"Table '{table.name}'")
        table.latest_in_storage()
        manager = str(table.other_manager() or "") or (f"'{others[0].name}'" if others else "")
        text = f"{manager} has the same location: deregister one of the two first"
        return [blocker(text)] if manager else []
    outside = table.out_of_band_versions().versions
    if not outside:
        return []
    return [
        blocker(
            f"Version {outside[0].version} was not committed through the catalog, and would become "
            "visible: adopt or discard it first (lance-bridge managed)"
        )
    ]


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


def _check_undo(work: StepContext) -> None:
    """Raise InvalidTableState (19) if undo would show or hide versions of other writers."""
    entry = work.target_tables.find(work.item.target)
    if entry is None or work.facts.get("by_others"):
        return
    table = _find_planned_table(work)
    if table is None:
        raise InvalidTableStateError(
            f"'{entry.name}' is not the table that migration {work.plan.id} converted"
        )
    back = work.options.opposite
    if _managed_by(table) == back.to:
        return
    problems = _problems(table, back, work.target_tables.find_sharing([table]).get(table.path, ()))
    if problems:
        raise InvalidTableStateError(f"'{table.name}': {problems[0].text}")


def _convert_back(work: StepContext) -> None:
    _check_undo(work)
    table = _find_planned_table(work)
    if table is None or work.facts.get("by_others") or _managed_by(table) != work.options.to:
        return
    _change_management(work, table, work.options.opposite.to)
