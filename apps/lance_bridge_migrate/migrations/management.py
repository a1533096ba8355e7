"""``management``: the versions of tables are held by their storage, or by their catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from lance_namespace.errors import InvalidTableStateError

from lance_bridge.catalog import TableRecord
from lance_bridge.connection import Connection
from lance_bridge.entry import TableEntry
from lance_bridge.errors import LanceNamespaceError, concurrent_modification, display
from lance_bridge.managed import conversion, out_of_band
from lance_bridge.managed_state import parse_state
from lance_bridge.table import Table
from lance_bridge.tables.collection import Tables

from ..endpoints import Endpoints, connection_of
from ..journal import Check
from ..levels import Level
from ..migration import ItemFacts, MigrationType, Step, Survey, Work
from ..plan import Facts, Item, Problem, blocker
from ..selection import Selection, entries_of
from ..targets import entry_identity, find_entry

_NOTES = {
    "catalog": "Stop all writers first: those that opened a table before continue to write to its "
    "storage, and what they write is not shown",
    "storage": "Writers may continue: they commit to the storage once they open a table again",
}


class ManagementOptions(Selection):
    """Which tables, and what is to hold their versions.

    Attributes:
        to: ``catalog`` makes tables implementation-managed, ``storage`` storage-managed.
    """

    to: Literal["catalog", "storage"]

    @property
    def opposite(self) -> ManagementOptions:
        """The options of the way back."""
        return ManagementOptions(to="storage" if self.to == "catalog" else "catalog")


class ManagementFacts(ItemFacts):
    """What is noted about a table: `entry_identity` of its entry."""

    identity: str


class Management(MigrationType):
    """See the module."""

    name = "management"
    options_type = ManagementOptions

    def survey(self, endpoints: Endpoints, options: ManagementOptions) -> Survey:
        connection = connection_of(endpoints.target)
        records = [each for each in entries_of(connection, options) if each.is_lance]
        return Survey(
            [_item(connection, record, options) for record in records], [_NOTES[options.to]]
        )

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return _fingerprint(connection_of(endpoints.target).catalog.load_table(item.source))

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - the same for all items
        return [Step("convert", _convert, _convert_back, _check_undo)]

    def verify(self, work: Work, level: Level) -> Sequence[Check]:
        to, before = work.options.to, work.facts.get("version", 0)
        record = Tables(work.target_connection).load(work.item.target).record
        now = _holder(record)
        checks = [Check(name="versions", ok=now == to, expected=to, found=now)]
        if level.includes(Level.COUNTS) and before:
            version = int(Table(work.target_connection, record).open().version)
            is_kept = version >= before
            checks.append(Check(name="version", ok=is_kept, expected=before, found=version))
        return checks


def _holder(record: TableRecord) -> str:
    return "storage" if parse_state(record) is None else "catalog"


def _fingerprint(record: TableRecord) -> str:
    text = json.dumps([entry_identity(record), record.location, _holder(record)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _item(connection: Connection, record: TableRecord, options: ManagementOptions) -> Item:
    item = Item(
        source=record.path,
        target=record.path,
        fingerprint=_fingerprint(record),
        facts=ManagementFacts(identity=entry_identity(record)).to_json(),
    )
    try:
        TableEntry(connection, record).require_own_versions()
        if _holder(record) == options.to:
            return item.model_copy(update={"nothing_to_do": f"Its {options.to} holds its versions"})
        return item.with_problems(*_problems(connection, record, options))
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))


def _problems(
    connection: Connection, record: TableRecord, options: ManagementOptions
) -> list[Problem]:
    """Return what keeps a table from being converted. Raises what the conversion would raise."""
    if options.to == "catalog":
        conversion.require_possible(connection.capabilities, f"Table '{display(record.path)}'")
        conversion.latest_in_storage(TableEntry(connection, record))
        return []
    outside = out_of_band.inspect(TableEntry(connection, record)).versions
    if not outside:
        return []
    return [
        blocker(
            f"Version {outside[0].version} was not committed through the catalog, and would become "
            "visible: adopt or discard it first (lance-bridge managed)"
        )
    ]


def _convert(work: Work) -> Facts:
    record = _same_table(work)
    if record is None:
        raise concurrent_modification(work.item.target)
    if _holder(record) == work.options.to:
        # An earlier run did it, or else another user: then there is nothing to undo.
        return {} if work.is_repeated else {"by_others": True}
    if "version" not in work.facts:
        state = parse_state(record)  # a table without data has version 0
        latest = conversion.latest_in_storage
        version = (
            latest(TableEntry(work.target_connection, record)) if state is None else state.version
        )
        work.note(version=version)
    _change_holder(work, record, work.options.to)
    return {}


def _change_holder(work: Work, record: TableRecord, to: str) -> None:
    """Convert a table; the lock of an earlier run that died is taken over."""
    if to == "catalog":
        conversion.begin(TableEntry(work.target_connection, record))
    else:
        conversion.end(
            TableEntry(work.target_connection, record), holder=work.mark.rpartition("/")[2]
        )


def _same_table(work: Work) -> TableRecord | None:
    """Return the entry of the plan; None where it is gone or another has its name."""
    record = find_entry(work.target_connection, work.item.target)
    expected = ManagementFacts.of(work.item).identity
    return record if record is not None and entry_identity(record) == expected else None


def _check_undo(work: Work) -> None:
    """Raise InvalidTableState (19) where going back would show or hide what others wrote."""
    record = find_entry(work.target_connection, work.item.target)
    if record is None or work.facts.get("by_others"):
        return
    if _same_table(work) is None:
        raise InvalidTableStateError(
            f"'{display(record.path)}' is not the table that migration {work.plan.id} converted"
        )
    back = work.options.opposite
    if _holder(record) == back.to:
        return
    problems = _problems(work.target_connection, record, back)
    if problems:
        raise InvalidTableStateError(f"'{display(record.path)}': {problems[0].text}")


def _convert_back(work: Work) -> None:
    _check_undo(work)
    record = _same_table(work)
    if record is None or work.facts.get("by_others") or _holder(record) != work.options.to:
        return
    _change_holder(work, record, work.options.opposite.to)
