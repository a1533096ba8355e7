"""Generated locations: what is deleted with a table is its own, and all of it or named.

Each case is a directory with a table and files of others, and entries around it: others' tables,
partitions, clones, of hidden catalogs, too. Whether an entry needs files at the table's location is
known by how it was made. The seed of a case is in the test's message.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import InvalidTableStateError
from servers.objectstore import MotoServer

from lance_bridge.catalog import NamespaceRecord, TableRecord

from .building import DATASET, at
from .deletion_cases import Case, Files, make_case, rows, write_tables
from .deletion_stores import S3, LocalStore, Names, Store, is_readable
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = pytest.mark.spec("common.md#files-that-are-deleted", "docs/how-to/s3.md#what-was-run")


WHOLE = pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])
"""How many cases `make test-slow` runs."""
TABLE = at("dropped")
MOST_ENTRIES = 10
BESIDE_TABLE = "beside.lance"
"""The name of a Lance table that lies beside the generated one."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    """The files of one table of each kind."""
    return write_tables(tmp_path_factory.mktemp("tables"))


# -- entries around a table ----------------------------------------------------------------------


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


@dataclass
class EntryMaker:
    """Makes entries around one table."""

    store: Store
    chance: random.Random
    place: Names
    """The table's."""
    has_data: bool
    """Whether Lance can open it."""
    harmless: bool
    """Whether no entry may share the location."""
    clones: int = 0

    def make(self, number: int) -> Entry:
        makers = (self._table, self._partitioned, self._clone)
        entry = self.chance.choice((*makers, *makers, self._link))()
        if not self.harmless and self.chance.random() < 0.02:
            entry = Entry(TableRecord.unreadable(()), shares=True)
        entry.hidden = self.chance.random() < 0.3
        path = ("other", "catalog", f"t{number}") if entry.hidden else (*DATASET, f"t{number}")
        if not entry.hidden and self.chance.random() < 0.5:
            path = (*DATASET[:-1], "elsewhere", f"t{number}")
        entry.record = replace(entry.record, path=path)
        return entry

    # -- places ----------------------------------------------------------------------------------

    def _other_place(self) -> tuple[Names, bool]:
        """Return a place, and whether it is, contains or is inside the table's."""
        if self.harmless or self.chance.random() < 0.7:
            return self.chance.choice(self._beside()), False
        inside = [("data",), ("data", "x"), ("day=1",), ("tree", "x"), ("_versions",)]
        around = [self.place, self.place[:-1], (), *((*self.place, *each) for each in inside)]
        return self.chance.choice(around), True

    def _beside(self) -> list[Names]:
        *parents, name = self.place
        names = (f"{name}2", name[:-1] or "u", f"x{name}", f"{name}.lance", name.swapcase())
        return [
            *((*parents, each) for each in names if each != name),
            (*parents, "days", "day=1"),
            (*parents, "x", name),
            ("elsewhere", *self.place),
        ]

    def _spelled(self, place: Names, *, readable: bool = False) -> str:
        spellings = self.store.odd_locations(place)
        return self.chance.choice([s for s in spellings if not readable or is_readable(s)])

    # -- entries ---------------------------------------------------------------------------------

    def _table(self) -> Entry:
        place, shares = self._other_place()
        lance_too = self.chance.random() < 0.4
        record = TableRecord(
            (),
            self._spelled(place, readable=lance_too),
            {"table_type": self.chance.choice(["lance", "LANCE"]) if lance_too else "ICEBERG"},
        )
        return Entry(record, shares)

    def _partitioned(self) -> Entry:
        away = (*self.place[:-1], "days")
        found = [self._other_place() for _ in range(self.chance.randrange(4))]
        return Entry(
            TableRecord((), self._spelled(away), is_partitioned=True),
            shares=False,
            partitions=[self._spelled(place) for place, _ in found],
            partitions_share=any(shares for _, shares in found),
        )

    def _link(self) -> Entry:
        """An entry that leads to the table's own, or to another one for the same location."""
        is_own = self.harmless or self.chance.random() < 0.7
        target = TABLE if is_own else (*DATASET, "another")
        record = TableRecord(
            (), self._spelled(self.place), link_to=".".join(target), link_path=target
        )
        return Entry(record, shares=not is_own)

    def _clone(self) -> Entry:
        of_table = self.has_data and not self.harmless and self.chance.random() < 0.5
        source = self.place if of_table else (*self.place[:-1], BESIDE_TABLE)
        location = self._make_clone(source)
        if self.chance.random() < 0.15:
            location = self._make_clone(location)
        spelled = self._spelled(location, readable=True)
        return Entry(TableRecord((), spelled, {"table_type": "LANCE"}), shares=of_table)

    def _make_clone(self, source: Names) -> Names:
        self.clones += 1
        place = (*self.place[:-1], f"clone{self.clones}.lance")
        uri, options = self.store.uris(place)[0], dict(self.store.options)
        dataset = lance.dataset(
            self.chance.choice(self.store.uris(source)), storage_options=options
        )
        versions: list[int | tuple[str, None]] = [each["version"] for each in dataset.versions()]
        versions += [(name, None) for name in dataset.branches.list()]
        clone = dataset.shallow_clone(uri, self.chance.choice(versions), storage_options=options)
        if self.chance.random() < 0.3:
            first = clone.version
            lance.write_dataset(rows(2), uri, mode="overwrite", storage_options=options)
            if self.chance.random() < 0.3:
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


# -- drops ---------------------------------------------------------------------------------------


def fill(store: Store, case: Case, place: Names, chance: random.Random) -> list[Entry]:
    """Write the files of a case, and return the entries around it, in random order."""
    store.put(place, case.own)
    beside = store.uris((*place[:-1], BESIDE_TABLE))[0]
    lance.write_dataset(rows(1), beside, storage_options=dict(store.options))
    has_data = any(name.endswith(".manifest") for name in case.own)
    maker = EntryMaker(store, chance, place, has_data, harmless=chance.random() < 0.4)
    entries = [maker.make(number) for number in range(chance.randrange(MOST_ENTRIES + 1))]
    store.put(place, case.foreign)
    for name in case.links:
        store.link(place, name)
    return entries


@dataclass
class Drops:
    """Drops generated tables, each from a catalog that holds what is around it."""

    store: Store
    tables: list[Files]
    server: MemoryServer
    uri: str
    caplog: pytest.LogCaptureFixture

    def __post_init__(self) -> None:
        elsewhere = (*DATASET[:-1], "elsewhere")
        self.server.namespaces[elsewhere] = NamespaceRecord(elsewhere)
        options = {f"storage.{key}": value for key, value in self.store.options.items()}
        self.namespace = MemoryNamespace(uri=self.uri, **options)
        self.caplog.set_level(logging.DEBUG, logger="lance_bridge.storage.deletion")

    def check(self, seed: int) -> bool:
        """Check one case, and return whether the drop was refused, as it must be."""
        chance = random.Random(seed)
        case = make_case(seed, self.tables, with_links=self.store.with_links)
        place = (str(seed), chance.choice(self.store.names))
        entries = fill(self.store, case, place, chance)
        location = chance.choice(self.store.locations(place))
        register(self.server, entries)
        self.server.tables[TABLE] = TableRecord(TABLE, location, {"table_type": "lance"})
        self.server.effects.clear()
        catalog, files = dict(self.server.tables), self.store.read(place[:1])
        others = {**case.foreign, **dict.fromkeys(case.links, b"")}
        refused = any(each.shares or (others and each.partitions_share) for each in entries)
        message = f"seed {seed}, {location}: {entries}"
        self.caplog.clear()
        assert self._is_refused() == refused, message
        if not refused:
            del catalog[TABLE]
            files = {path: data for path, data in files.items() if not is_own(path, place, case)}
            named = [each.getMessage() for each in self.caplog.records]
            assert all(any(ascii(name) in line for line in named) for name in others), message
        found = self.store.read(place[:1])
        assert found == files, f"{message}: {sorted(set(found) ^ set(files))}"
        assert self.server.tables == catalog, message
        assert self.server.effects == ([] if refused else ["drop_table"]), message
        self.store.remove(place[:1])
        return refused

    def _is_refused(self) -> bool:
        try:
            self.namespace.drop_table(api.DropTableRequest(id=list(TABLE)))
        except InvalidTableStateError:
            return True
        return False


def is_own(path: str, place: Names, case: Case) -> bool:
    start = f"{place[-1]}/"
    return path.startswith(start) and path.removeprefix(start) in case.own


def check_cases(drops: Drops, count: int) -> None:
    refused = sum(drops.check(seed) for seed in range(count))
    print(f"{count} cases: {count - refused} dropped, {refused} refused")
    assert count / 5 < refused < count * 4 / 5


@pytest.fixture
def drop_from(
    tables: list[Files],
    server: MemoryServer,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> Callable[[Store], Drops]:
    return lambda store: Drops(store, tables, server, request.node.nodeid, caplog)


@pytest.mark.quick
@pytest.mark.parametrize("count", [40, WHOLE])
def test_local_locations_lose_a_tables_own_files_and_no_others(
    count: int, tmp_path: Path, drop_from: Callable[[Store], Drops]
) -> None:
    check_cases(drop_from(LocalStore(tmp_path)), count)


@pytest.mark.servers
@pytest.mark.parametrize("count", [8, WHOLE])
def test_locations_on_s3_lose_a_tables_own_files_and_no_others(
    count: int, moto: MotoServer, drop_from: Callable[[Store], Drops]
) -> None:
    check_cases(drop_from(S3(moto)), count)
