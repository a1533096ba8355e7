"""Generated entries around a table: others' tables, partitions, clones, of hidden catalogs, too.

Whether an entry needs files at the table's location is known by how it was made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import lance

from lance_bridge.catalog import Path, TableRecord

from .building import DATASET
from .deletion_cases import rows
from .deletion_stores import Names, Store, is_readable
from .memory_catalog import MemoryServer

MOST_ENTRIES = 10
BESIDE_TABLE = "beside.lance"
"""The name of a Lance table that lies beside the generated one."""


@dataclass
class Entry:
    """An entry of another table, and whether it keeps the table's files."""

    record: TableRecord
    shares: bool
    """Whether its location is, contains or is inside the table's, or its files are there."""
    partitions: list[str] = field(default_factory=list)
    partitions_share: bool = False
    """Likewise one of its partitions: that matters where others' files are inside."""
    hidden: bool = False


class EntryMaker:
    """Makes entries around one table.

    Args:
        place: The table's.
        path: Of its entry.
        has_data: Whether Lance can open it.
        harmless: Whether no entry may share the location.
    """

    def __init__(
        self,
        store: Store,
        chance: random.Random,
        place: Names,
        path: Path,
        *,
        has_data: bool,
        harmless: bool,
    ) -> None:
        self._store = store
        self._chance = chance
        self._place = place
        self._path = path
        self._has_data = has_data
        self._harmless = harmless
        self._clones = 0

    def make(self, number: int) -> Entry:
        makers: tuple[Callable[[], Entry], ...] = (
            self._table,
            self._table,
            self._partitioned,
            self._partitioned,
            self._clone,
            self._clone,
            self._link,
        )
        entry = self._chance.choice(makers)()
        if not self._harmless and self._chance.random() < 0.02:
            entry = Entry(TableRecord.unreadable(()), shares=True)
        entry.hidden = self._chance.random() < 0.3
        path = ("other", "catalog", f"t{number}") if entry.hidden else (*DATASET, f"t{number}")
        if not entry.hidden and self._chance.random() < 0.5:
            path = (*DATASET[:-1], "elsewhere", f"t{number}")
        entry.record = replace(entry.record, path=path)
        return entry

    # -- places ----------------------------------------------------------------------------------

    def _other_place(self) -> tuple[Names, bool]:
        """Return a place, and whether it is, contains or is inside the table's."""
        if self._harmless or self._chance.random() < 0.7:
            return self._chance.choice(self._beside()), False
        inside = [("data",), ("data", "x"), ("day=1",), ("tree", "x"), ("_versions",)]
        around = [self._place, self._place[:-1], (), *((*self._place, *each) for each in inside)]
        return self._chance.choice(around), True

    def _beside(self) -> list[Names]:
        *parents, name = self._place
        names = (f"{name}2", name[:-1] or "u", f"x{name}", f"{name}.lance", name.swapcase())
        return [
            *((*parents, each) for each in names if each != name),
            (*parents, "days", "day=1"),
            (*parents, "x", name),
            ("elsewhere", *self._place),
        ]

    def _spelled(self, place: Names, *, readable: bool = False) -> str:
        spellings = self._store.odd_locations(place)
        return self._chance.choice(
            [each for each in spellings if not readable or is_readable(each)]
        )

    # -- entries ---------------------------------------------------------------------------------

    def _table(self) -> Entry:
        place, shares = self._other_place()
        lance_too = self._chance.random() < 0.4
        record = TableRecord(
            (),
            self._spelled(place, readable=lance_too),
            {"table_type": self._chance.choice(["lance", "LANCE"]) if lance_too else "ICEBERG"},
        )
        return Entry(record, shares)

    def _partitioned(self) -> Entry:
        away = (*self._place[:-1], "days")
        found = [self._other_place() for _ in range(self._chance.randrange(4))]
        return Entry(
            TableRecord((), self._spelled(away), is_partitioned=True),
            shares=False,
            partitions=[self._spelled(place) for place, _ in found],
            partitions_share=any(shares for _, shares in found),
        )

    def _link(self) -> Entry:
        """An entry that leads to the table's own, or to another one for the same location."""
        is_own = self._harmless or self._chance.random() < 0.7
        target = self._path if is_own else (*DATASET, "another")
        record = TableRecord(
            (), self._spelled(self._place), link_to=".".join(target), link_path=target
        )
        return Entry(record, shares=not is_own)

    def _clone(self) -> Entry:
        of_table = self._has_data and not self._harmless and self._chance.random() < 0.5
        source = self._place if of_table else (*self._place[:-1], BESIDE_TABLE)
        location = self._make_clone(source)
        if self._chance.random() < 0.15:
            location = self._make_clone(location)
        spelled = self._spelled(location, readable=True)
        return Entry(TableRecord((), spelled, {"table_type": "LANCE"}), shares=of_table)

    def _make_clone(self, source: Names) -> Names:
        self._clones += 1
        place = (*self._place[:-1], f"clone{self._clones}.lance")
        uri, options = self._store.uris(place)[0], dict(self._store.options)
        dataset = lance.dataset(
            self._chance.choice(self._store.uris(source)), storage_options=options
        )
        versions: list[int | tuple[str, None]] = [each["version"] for each in dataset.versions()]
        versions += [(name, None) for name in dataset.branches.list()]
        clone = dataset.shallow_clone(uri, self._chance.choice(versions), storage_options=options)
        if self._chance.random() < 0.3:
            first = clone.version
            lance.write_dataset(rows(2), uri, mode="overwrite", storage_options=options)
            if self._chance.random() < 0.3:
                earlier = lance.dataset(uri, version=first, storage_options=options)
                earlier.restore()  # type: ignore[no-untyped-call]  # pylance's
        return place


def register(server: MemoryServer, entries: list[Entry]) -> None:
    """Put entries into a catalog, in place of all that it had."""
    server.tables.clear()
    server.partitions.clear()
    server.hidden = [each.record for each in entries if each.hidden]
    for each in entries:
        if not each.hidden:
            server.tables[each.record.path] = each.record
        if each.record.is_partitioned:
            server.partitions[each.record.path] = each.partitions
