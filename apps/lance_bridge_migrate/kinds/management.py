"""``management``: who holds the versions of tables, their storage or their catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

from lance_namespace.errors import InvalidTableStateError

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import LanceNamespaceError, concurrent_modification, display
from lance_bridge.managed import conversion, foreign
from lance_bridge.managed.state import require_own, state_of
from lance_bridge.table import Table

from ..ends import bridge_of
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Facts, Item, Problem, blocker
from ..selection import Selection, entries_of
from ..targets import found, identity_of
from .catalogs import BetweenCatalogs, Namespace, target_bridge

_NOTES = {
    "catalog": "Stop all writers first: those that opened a table before go on writing to its "
    "storage, and what they write is not shown",
    "storage": "Writers go on: they commit to the storage once they open a table anew",
}


class ManagementOptions(Selection):
    """Which tables, and who is to hold their versions.

    Attributes:
        to: ``catalog`` makes tables implementation-managed, ``storage`` storage-managed.
    """

    to: Literal["catalog", "storage"]


ManagementEnds = Ends[Namespace, Namespace]
ManagementWork = Work[Namespace, Namespace, ManagementOptions]


class Management(BetweenCatalogs[ManagementOptions]):
    """See the module."""

    name = "management"
    summary = "Have the catalog hold the versions of tables, or their storage"
    options_type = ManagementOptions

    def survey(self, ends: ManagementEnds, options: ManagementOptions) -> Survey:
        bridge = bridge_of(ends.target)
        records = [each for each in entries_of(bridge, options) if each.is_lance]
        return Survey([_item(bridge, record, options) for record in records], [_NOTES[options.to]])

    def fingerprint(self, ends: ManagementEnds, options: ManagementOptions, item: Item) -> str:  # noqa: ARG002
        return _fingerprint(bridge_of(ends.target).catalog.load_table(item.source))

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:  # noqa: ARG002
        return [Step("convert", _convert, _convert_back, _check_back)]

    def verify(self, work: ManagementWork, level: Level) -> Sequence[Check]:
        bridge = target_bridge(work)
        record = load_lance(bridge, work.item.target)
        now = _holder(record)
        checks = [
            Check(name="versions", ok=now == work.options.to, expected=work.options.to, found=now)
        ]
        before = work.facts.get("version", 0)
        if not level.includes(Level.COUNTS) or before == 0:
            return checks
        version = int(Table(bridge, record).open().version)
        return [
            *checks,
            Check(name="version", ok=version >= before, expected=before, found=version),
        ]


def _holder(record: TableRecord) -> str:
    return "storage" if state_of(record) is None else "catalog"


def _fingerprint(record: TableRecord) -> str:
    text = json.dumps([identity_of(record), record.location, _holder(record)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _item(bridge: Bridge, record: TableRecord, options: ManagementOptions) -> Item:
    item = Item(
        source=record.path,
        target=record.path,
        fingerprint=_fingerprint(record),
        facts={"identity": identity_of(record)},
    )
    try:
        require_own(record)
        if _holder(record) == options.to:
            return item.model_copy(update={"nothing_to_do": f"Its {options.to} holds its versions"})
        return item.with_problems(*_problems(bridge, record, options))
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _problems(bridge: Bridge, record: TableRecord, options: ManagementOptions) -> list[Problem]:
    """Return what keeps a table from being converted. Raises what the conversion would raise."""
    if options.to == "catalog":
        conversion.require_possible(bridge, f"Table '{display(record.path)}'")
        conversion.latest_in_storage(bridge, record)
        return []
    outside = foreign.look(bridge, record).versions
    if not outside:
        return []
    return [
        blocker(
            f"Version {outside[0].version} was not committed through the catalog, and would show "
            "up: adopt or discard it first (lance-bridge managed)"
        )
    ]


def _convert(work: ManagementWork) -> Facts:
    bridge = target_bridge(work)
    record = _same_table(work)
    if record is None:
        raise concurrent_modification(work.item.target)
    wanted = work.options.to
    if _holder(record) == wanted:
        # An earlier run did it, or else somebody else: then there is nothing to take back.
        return {} if work.is_repeated else {"by_others": True}
    if "version" not in work.facts:
        work.note(version=_version_of(bridge, record))
    _turn(work, record, wanted)
    return {}


def _version_of(bridge: Bridge, record: TableRecord) -> int:
    """Return the latest version; 0 for a table without data."""
    state = state_of(record)
    return conversion.latest_in_storage(bridge, record) if state is None else state.version


def _turn(work: ManagementWork, record: TableRecord, to: str) -> None:
    """Convert a table; one that an earlier run held when it died is held by this one now."""
    bridge = target_bridge(work)
    if to == "catalog":
        conversion.begin(bridge, record)
    else:
        conversion.end(bridge, record, holder=work.mark.rpartition("/")[2])


def _same_table(work: ManagementWork) -> TableRecord | None:
    """Return the entry of the plan; None where it is gone or another has its name."""
    record = found(target_bridge(work), work.item.target)
    is_same = record is not None and identity_of(record) == work.item.facts["identity"]
    return record if is_same else None


def _opposite(work: ManagementWork) -> str:
    return "storage" if work.options.to == "catalog" else "catalog"


def _check_back(work: ManagementWork) -> None:
    """Raise InvalidTableState (19) where going back would show or hide what others wrote."""
    bridge = target_bridge(work)
    record = found(bridge, work.item.target)
    if record is None or work.facts.get("by_others"):
        return
    if _same_table(work) is None:
        raise InvalidTableStateError(
            f"'{display(record.path)}' is not the table that migration {work.plan.id} converted"
        )
    to = ManagementOptions(to="catalog" if work.options.to == "storage" else "storage")
    problems = _problems(bridge, record, to) if _holder(record) != to.to else []
    if problems:
        raise InvalidTableStateError(f"'{display(record.path)}': {problems[0].text}")


def _convert_back(work: ManagementWork) -> None:
    _check_back(work)
    record = _same_table(work)
    if record is None or work.facts.get("by_others") or _holder(record) != work.options.to:
        return
    _turn(work, record, _opposite(work))
