"""``properties``: sets the table-format properties of this or of other implementations.

These are `table_type` with its letter case, `managed_by`, and whether the table is external, so
that the catalog does not delete its files. With ``others``, tables stay external: only undo
restores whether the catalog owned a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError, TableNotFoundError

from lance_bridge.catalog import IMPLEMENTATION, LANCE, LATEST, MANAGED_BY, STORAGE, TABLE_TYPE
from lance_bridge.entry import TableEntry
from lance_bridge.errors import concurrent_modification

from ..endpoints import Endpoints
from ..levels import Level
from ..migration import ItemFacts, MigrationType, Step, StepContext, Survey
from ..plan import Facts, Item, blocker
from ..record import Check
from ..selection import Selection, entries_of
from ..targets import (
    AFTER,
    MARK,
    entry_facts,
    entry_fingerprint,
    is_own,
    replace_properties,
    with_properties,
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
        return Survey([_item(entry, options) for entry in entries])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.target_tables.load_entry(item.source))

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - the same for all items
        return [Step("properties", _change, _change_back, _check_undo)]

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


def _item(entry: TableEntry, options: PropertiesOptions) -> Item:
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
    if connection.capabilities.no_alter:
        return item.with_problems(
            blocker(f"Entries cannot change: {connection.capabilities.no_alter}")
        )
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
    work.note(**{AFTER: entry_facts(with_properties(entry, new))})
    replace_properties(entry, new)
    return {}


def _check_undo(work: StepContext) -> None:
    _entry_to_change_back(work)


def _entry_to_change_back(work: StepContext) -> TableEntry | None:
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
    entry = _entry_to_change_back(work)
    if entry is None:
        return
    facts, seen = PropertiesFacts.of(work.item), entry_facts(entry)["properties"]
    hidden = {k: v for k, v in entry.record.properties.items() if k not in seen}
    before = {**hidden, **facts.before["properties"]}
    replace_properties(entry, before, facts.ownership)
