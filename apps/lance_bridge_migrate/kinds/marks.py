"""``marks``: tables that other implementations made get our marks, or ours get theirs.

The marks are `table_type` in its letter case, `managed_by`, and what keeps the catalog from taking
a table's files for its own. Going back, tables stay external: only undoing makes an entry again
what it was, managed by its catalog or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import IMPLEMENTATION, LANCE, MANAGED_BY, STORAGE, TABLE_TYPE, TableRecord
from lance_bridge.errors import concurrent_modification, display
from lance_bridge.managed.state import LATEST

from ..ends import bridge_of
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Facts, Item, blocker
from ..selection import Selection, entries_of
from ..targets import (
    MARK,
    fingerprint_of,
    found,
    identity_of,
    is_own,
    replace_properties,
    state_of,
)
from .catalogs import BetweenCatalogs, Namespace, target_bridge

_ABSENT = ""


class MarksOptions(Selection):
    """Which tables, and what their marks are to be.

    Attributes:
        to: ``ours`` for what this implementation writes: ``table_type=lance``,
            ``managed_by=storage``, external. ``others`` for `table_type` and `managed_by`.
        table_type: With ``others``: the letter case.
        managed_by: With ``others``: the value, or "" for none.
    """

    to: Literal["ours", "others"] = "ours"
    table_type: Literal["lance", "LANCE"] = "LANCE"
    managed_by: Literal["storage", "catalog", ""] = "storage"

    def wanted(self) -> dict[str, str]:
        """Return the marks that tables are to have; "" for one that they are not to have."""
        if self.to == "ours":
            return {TABLE_TYPE: LANCE, MANAGED_BY: STORAGE}
        return {TABLE_TYPE: self.table_type, MANAGED_BY: self.managed_by}


MarksEnds = Ends[Namespace, Namespace]
MarksWork = Work[Namespace, Namespace, MarksOptions]


class Marks(BetweenCatalogs[MarksOptions]):
    """See the module."""

    name = "marks"
    summary = "Give tables of other implementations our marks, or ours theirs"
    options_type = MarksOptions

    def survey(self, ends: MarksEnds, options: MarksOptions) -> Survey:
        bridge = bridge_of(ends.target)
        records = [each for each in entries_of(bridge, options) if each.is_lance]
        return Survey([_item(bridge, record, options) for record in records])

    def fingerprint(self, ends: MarksEnds, options: MarksOptions, item: Item) -> str:  # noqa: ARG002
        return fingerprint_of(bridge_of(ends.target).catalog.load_table(item.source))

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:  # noqa: ARG002
        return [Step("marks", _change, _change_back, _require_unchanged)]

    def verify(self, work: MarksWork, level: Level) -> Sequence[Check]:  # noqa: ARG002
        record = found(target_bridge(work), work.item.target)
        shown = _marks(record) if record is not None else None
        wanted = work.item.facts["wanted"]
        checks = [Check(name="marks", ok=shown == wanted, expected=wanted, found=shown)]
        place = work.item.facts["before"]["location"]
        now = state_of(record)["location"] if record is not None else None
        return [*checks, Check(name="location", ok=now == place, expected=place, found=now)]


def _marks(record: TableRecord) -> dict[str, str]:
    return {key: record.properties.get(key, _ABSENT) for key in (TABLE_TYPE, MANAGED_BY)}


def _item(bridge: Bridge, record: TableRecord, options: MarksOptions) -> Item:
    wanted = options.wanted()
    item = Item(
        source=record.path,
        target=record.path,
        facts={"wanted": wanted, "before": state_of(record)},
        fingerprint=fingerprint_of(record),
    )
    is_right = _marks(record) == wanted and (record.is_external or options.to == "others")
    if record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
        who = "its catalog" if LATEST in record.properties else "another implementation"
        why = f"Its versions are managed by {who}: that is no matter of marks"
        return item.model_copy(update={"nothing_to_do": why})
    if is_right:
        return item.model_copy(update={"nothing_to_do": "It has these marks"})
    if bridge.capabilities.no_alter:
        return item.with_problems(blocker(f"Entries cannot change: {bridge.capabilities.no_alter}"))
    if record.link_to:
        return item.with_problems(blocker(f"It is a link to {record.link_to}: change that table"))
    marks = dict(bridge.catalog.load_marks(record.path))
    return item.model_copy(update={"facts": {**item.facts, "catalog_marks": marks}})


def _change(work: MarksWork) -> Facts:
    bridge = target_bridge(work)
    record = bridge.catalog.load_table(work.item.target)
    if is_own(work, record):
        return {"after": state_of(record)}
    if state_of(record) != work.item.facts["before"]:
        raise concurrent_modification(record.path)
    # On disk before the change: what the entry was, whatever other migration had marked it.
    work.note(identity=identity_of(record))
    marks = work.item.facts["wanted"]
    kept = {k: v for k, v in record.properties.items() if k not in marks}
    wanted = {**kept, **{k: v for k, v in marks.items() if v}, MARK: work.mark}
    return {"after": state_of(replace_properties(bridge, record, wanted))}


def _require_unchanged(work: MarksWork) -> None:
    _to_change_back(work)


def _to_change_back(work: MarksWork) -> TableRecord | None:
    """Return the entry where it is as this migration left it; None where nothing is left to do.

    Raises:
        InvalidTableStateError: (19) somebody else changed it, or made another of its name.
    """
    record = found(target_bridge(work), work.item.target)
    if record is None:
        return None
    now, after = state_of(record), work.facts.get("after")
    if now == work.item.facts["before"]:
        return None
    if is_own(work, record) and after in (None, now):
        return record
    raise InvalidTableStateError(
        f"'{display(record.path)}' was changed since migration {work.plan.id} changed its marks: "
        "undo that first, or leave it alone"
    )


def _change_back(work: MarksWork) -> None:
    record = _to_change_back(work)
    if record is None:
        return
    before = work.item.facts["before"]["properties"]
    hidden = {k: v for k, v in record.properties.items() if k not in state_of(record)["properties"]}
    replace_properties(
        target_bridge(work), record, {**hidden, **before}, work.item.facts["catalog_marks"]
    )
