"""Generated locations: what is deleted with a table is its own, and all of it or named.

Each case is a directory with a table and files of others, and entries around it. Its seed is in the
test's message.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import InvalidTableStateError
from servers.objectstore import MotoServer

from lance_bridge.catalog import NamespaceRecord, TableRecord

from .building import DATASET, at
from .deletion_cases import Case, Files, make_case, rows, write_tables
from .deletion_entries import BESIDE_TABLE, MOST_ENTRIES, Entry, EntryMaker, register
from .deletion_stores import S3, LocalStore, Names, Store
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = pytest.mark.spec("common.md#files-that-are-deleted", "docs/how-to/s3.md#what-was-run")


WHOLE = pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])
"""How many cases `make test-slow` runs."""
TABLE = at("dropped")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Files]:
    """The files of one table of each kind."""
    return write_tables(tmp_path_factory.mktemp("tables"))


def fill(store: Store, case: Case, place: Names, chance: random.Random) -> list[Entry]:
    """Write the files of a case, and return the entries around it, in random order."""
    store.put(place, case.own)
    beside = store.uris((*place[:-1], BESIDE_TABLE))[0]
    lance.write_dataset(rows(1), beside, storage_options=dict(store.options))
    maker = EntryMaker(
        store,
        chance,
        place,
        TABLE,
        has_data=any(name.endswith(".manifest") for name in case.own),
        harmless=chance.random() < 0.4,
    )
    entries = [maker.make(number) for number in range(chance.randrange(MOST_ENTRIES + 1))]
    store.put(place, case.foreign)
    for name in case.links:
        store.link(place, name)
    return entries


class Drops:
    """Drops generated tables, each from a catalog that holds what is around it."""

    def __init__(
        self,
        store: Store,
        tables: list[Files],
        server: MemoryServer,
        uri: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        elsewhere = (*DATASET[:-1], "elsewhere")
        server.namespaces[elsewhere] = NamespaceRecord(elsewhere)
        options = {f"storage.{key}": value for key, value in store.options.items()}
        self._namespace = MemoryNamespace(uri=uri, **options)
        self._store = store
        self._tables = tables
        self._server = server
        self._caplog = caplog
        caplog.set_level(logging.DEBUG, logger="lance_bridge.storage.deletion")

    def check(self, seed: int) -> bool:
        """Check one case, and return whether the drop was refused, as it must be."""
        chance = random.Random(seed)
        case = make_case(seed, self._tables, with_links=self._store.with_links)
        place = (str(seed), chance.choice(self._store.names))
        entries = fill(self._store, case, place, chance)
        location = chance.choice(self._store.locations(place))
        register(self._server, entries)
        self._server.tables[TABLE] = TableRecord(TABLE, location, {"table_type": "lance"})
        self._server.effects.clear()
        catalog, files = dict(self._server.tables), self._store.read(place[:1])
        others = {**case.foreign, **dict.fromkeys(case.links, b"")}
        refused = any(each.shares or (others and each.partitions_share) for each in entries)
        message = f"seed {seed}, {location}: {entries}"
        self._caplog.clear()
        assert self._is_refused() == refused, message
        if not refused:
            del catalog[TABLE]
            files = {path: data for path, data in files.items() if not is_own(path, place, case)}
            named = [each.getMessage() for each in self._caplog.records]
            assert all(any(ascii(name) in line for line in named) for name in others), message
        found = self._store.read(place[:1])
        assert found == files, f"{message}: {sorted(set(found) ^ set(files))}"
        assert self._server.tables == catalog, message
        assert self._server.effects == ([] if refused else ["drop_table"]), message
        self._store.remove(place[:1])
        return refused

    def _is_refused(self) -> bool:
        try:
            self._namespace.drop_table(api.DropTableRequest(id=list(TABLE)))
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
