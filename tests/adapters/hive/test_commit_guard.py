"""How entries are compared and set, on a real metastore of each release."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from servers.hive_entries import (
    COUNT,
    add_one,
    count_of,
    guarded,
    make_entry,
    only_winner,
    open_catalog,
    race,
    raw_client,
    raw_entry,
    raw_table,
    set_by_others,
    with_property,
)
from servers.metastores import VERSIONS, Metastores
from servers.proxy import Fault, Refusal, ThriftProxy

from lance_bridge.catalog import GUARD, NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.mapping import REVISION, is_whole
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.servers

GUARDS = {version: "partition" if version == "3.1" else "parameter" for version in VERSIONS}
OF_EACH_KIND = ["2.3", "3.1", "4.2"]
THREADS = 4
ROUNDS = 5
LIMITS = {"client.timeout": "2", "client.retry-timeout": "10"}


@pytest.fixture(params=OF_EACH_KIND)
def version(request: pytest.FixtureRequest) -> str:
    """A release; tests may ask for others."""
    return str(request.param)


@pytest.fixture
def metastore(metastores: Metastores, version: str) -> Metastore:
    return metastores.get(version)


@pytest.fixture
def catalog(metastore: Metastore) -> Iterator[HiveCatalog]:
    with open_catalog(metastore.uri) as opened:
        yield opened


@pytest.fixture
def entry(catalog: HiveCatalog, database: str, tmp_path: Path) -> TableRecord:
    """An entry of this library, not guarded."""
    return make_entry(catalog, (database, "t"), str(tmp_path / "t.lance"))


@pytest.fixture
def others_entry(
    catalog: HiveCatalog, metastore: Metastore, database: str, tmp_path: Path
) -> TableRecord:
    """An entry that another implementation made: it has no revision."""
    with raw_client(metastore.port) as client:
        client.create_table(raw_table(database, "o", str(tmp_path / "o.lance")))
    return catalog.load_table((database, "o"))


# -- finding out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_guard_is_found_by_trying_and_nothing_is_changed(
    catalog: HiveCatalog,
    metastore: Metastore,
    version: str,
    entry: TableRecord,
    others_entry: TableRecord,
) -> None:
    for record in (entry, others_entry):
        before = raw_entry(metastore.port, *record.path)
        assert catalog.commit_guard(record) == GUARDS[version]
        assert raw_entry(metastore.port, *record.path) == before


@pytest.mark.parametrize("version", ["2.3", "3.1"])
def test_a_probe_does_not_disturb_concurrent_changes(
    catalog: HiveCatalog, metastore: Metastore, version: str, entry: TableRecord
) -> None:
    catalog.alter_table(with_property(entry, COUNT, "0"))
    done = threading.Event()
    errors: list[LanceNamespaceError] = []

    def change() -> None:
        try:
            for _ in range(20):
                add_one(catalog, lambda: catalog.load_table(entry.path))
        except LanceNamespaceError as error:
            errors.append(error)
        finally:
            done.set()

    changing = threading.Thread(target=change)
    changing.start()
    answers = set()
    while not done.is_set():
        answers.add(catalog.commit_guard(entry))
    changing.join()
    assert errors == []
    assert answers == {GUARDS[version]}
    assert count_of(catalog, entry.path) == 20
    assert raw_entry(metastore.port, *entry.path).partitionKeys == []


@pytest.mark.parametrize("version", ["3.1"])
def test_a_metastore_that_neither_compares_nor_keeps_records_is_said_to_be_unsupported(
    proxy: ThriftProxy, entry: TableRecord
) -> None:
    proxy.fail_next("add_partition", Refusal("no partitions"), times=float("inf"))
    with (
        open_catalog(proxy.uri) as catalog,
        pytest.raises(UnsupportedOperationError, match=r"ignores.*cannot hold commit records"),
    ):
        catalog.commit_guard(entry)


# -- comparing and setting -----------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.1"])
def test_no_increment_of_many_threads_is_lost(
    catalog: HiveCatalog, version: str, entry: TableRecord
) -> None:
    guarded(catalog, entry.path, GUARDS[version])

    def add(_: int) -> None:
        for _ in range(ROUNDS):
            add_one(catalog, lambda: catalog.load_table(entry.path))

    assert race(THREADS, add) == [None] * THREADS
    assert count_of(catalog, entry.path) == THREADS * ROUNDS


@pytest.mark.parametrize("version", ["3.1"])
def test_one_of_many_that_convert_the_entry_of_others_succeeds(
    catalog: HiveCatalog, metastore: Metastore, version: str, others_entry: TableRecord
) -> None:
    def convert(number: int) -> int:
        wanted = with_property(others_entry, GUARD, GUARDS[version])
        catalog.alter_table(with_property(wanted, "by", str(number)))
        return number

    winner = only_winner(race(THREADS, convert), ConcurrentModificationError)
    found = catalog.load_table(others_entry.path).properties
    assert (found["by"], found[GUARD]) == (str(winner), GUARDS[version])
    assert raw_entry(metastore.port, *others_entry.path).parameters[REVISION]


@pytest.mark.parametrize("version", ["3.1"])
def test_a_client_with_an_earlier_state_neither_alters_nor_renames(
    catalog: HiveCatalog, metastore: Metastore, version: str, entry: TableRecord
) -> None:
    stale = guarded(catalog, entry.path, GUARDS[version])
    catalog.alter_table(with_property(stale, COUNT, "1"))
    before = raw_entry(metastore.port, *entry.path)
    for record in (stale, entry):
        with pytest.raises(ConcurrentModificationError):
            catalog.alter_table(with_property(record, COUNT, "2"))
        with pytest.raises(ConcurrentModificationError):
            catalog.rename_table(record, (entry.path[0], "new"))
    assert raw_entry(metastore.port, *entry.path) == before


def test_a_guard_can_be_removed_with_the_latest_state(
    catalog: HiveCatalog, version: str, entry: TableRecord
) -> None:
    record = guarded(catalog, entry.path, GUARDS[version])
    without = {key: value for key, value in record.properties.items() if key != GUARD}
    catalog.alter_table(record.with_properties(without))
    assert GUARD not in catalog.load_table(entry.path).properties
    with pytest.raises(ConcurrentModificationError):
        catalog.alter_table(with_property(record, COUNT, "1"))


def test_a_rename_that_races_with_increments_loses_none(
    catalog: HiveCatalog, version: str, entry: TableRecord
) -> None:
    names = (entry.path, (entry.path[0], "u"))
    guarded(catalog, entry.path, GUARDS[version])
    made = [0] * 3

    def find() -> TableRecord:
        for _ in range(1000):
            for path in names:
                try:
                    return catalog.load_table(path)
                except TableNotFoundError:
                    continue
        raise AssertionError("the table is under neither of its names")

    def work(number: int) -> None:
        while made[number] < 5:
            record = find()
            try:
                if number == 0:
                    catalog.rename_table(record, names[record.path == names[0]])
                else:
                    more = str(int(record.properties[COUNT]) + 1)
                    catalog.alter_table(with_property(record, COUNT, more))
            except (ConcurrentModificationError, TableNotFoundError):
                time.sleep(random.uniform(0, 0.2))
                continue
            made[number] += 1

    assert race(3, work) == [None] * 3
    assert int(find().properties[COUNT]) == 10
    assert list(catalog.list_tables((entry.path[0],))) == [find().path[1]]


@pytest.mark.parametrize("version", ["3.1", "4.2"])
def test_entries_in_a_catalog_are_compared_and_set(
    metastore: Metastore, catalog: HiveCatalog, version: str, entry: TableRecord
) -> None:
    with open_catalog(metastore.uri, catalog_levels="true") as with_levels:
        path = ("hive", *entry.path)
        assert with_levels.commit_guard(with_levels.load_table(path)) == GUARDS[version]
        record = guarded(with_levels, path, GUARDS[version])
        with pytest.raises(ConcurrentModificationError):
            catalog.alter_table(with_property(entry, COUNT, "9"))

        def add(number: int) -> None:
            one, its_path = ((with_levels, path), (catalog, entry.path))[number % 2]
            for _ in range(4):
                add_one(one, lambda: one.load_table(its_path))

        assert race(4, add) == [None] * 4
        assert count_of(catalog, entry.path) == 16
        with pytest.raises(ConcurrentModificationError):
            with_levels.rename_table(record, (*path[:2], "new"))


# -- reads while others change the entry ---------------------------------------------------------


def test_an_entry_is_read_with_one_call_after_any_change_by_this_library(
    proxy: ThriftProxy, metastore: Metastore, entry: TableRecord
) -> None:
    with open_catalog(proxy.uri) as catalog:
        for location in ("/tmp/x.lance", "file:///tmp/y.lance/", "file:/tmp/z.lance"):
            loaded = catalog.load_table(entry.path)
            catalog.alter_table(replace(with_property(loaded, COUNT, location), location=location))
            proxy.reset()
            catalog.load_table(entry.path)
            assert dict(proxy.calls) == {"get_table_req": 1}
    table = raw_entry(metastore.port, *entry.path)
    assert is_whole(table)
    table.parameters[COUNT] = "changed by others"
    assert not is_whole(table)


@pytest.mark.parametrize("version", ["2.3"])
def test_a_read_of_two_states_at_once_is_made_again(
    catalog: HiveCatalog, proxy: ThriftProxy, metastore: Metastore, entry: TableRecord
) -> None:
    catalog.alter_table(with_property(entry, COUNT, "1"))
    whole = raw_entry(metastore.port, *entry.path)
    half = raw_entry(metastore.port, *entry.path)
    half.parameters[COUNT] = "0"
    with raw_client(metastore.port) as client, open_catalog(proxy.uri) as slow:
        client.alter_table(*entry.path, half)
        # The first read is answered; the second does not get there before the entry is whole.
        proxy.fail_next("get_table_req", Fault.DELAY_REPLY)
        proxy.fail_next("get_table_req", Fault.DROP_REQUEST, times=10_000)
        answers: list[TableRecord] = []
        reading = threading.Thread(target=lambda: answers.append(slow.load_table(entry.path)))
        reading.start()
        deadline = time.monotonic() + 20
        while len(proxy.fired) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        client.alter_table(*entry.path, whole)
        proxy.reset()
        reading.join()
    assert [record.properties[COUNT] for record in answers] == ["1"]


@pytest.mark.parametrize("version", ["2.3"])
def test_what_others_changed_under_our_revision_is_read_all_the_same(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    set_by_others(metastore.port, entry.path, "team", "other")
    assert catalog.load_table(entry.path).properties["team"] == "other"


# -- guards that do not hold ---------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.1"])
def test_a_metastore_that_ignores_the_guard_of_an_entry_is_not_asked_to_alter_it(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    with raw_client(metastore.port) as client:
        table = raw_entry(metastore.port, *entry.path)
        table.parameters[GUARD] = "parameter"
        client.alter_table(*entry.path, table)
    before = raw_entry(metastore.port, *entry.path)
    record = catalog.load_table(entry.path)
    with pytest.raises(InvalidTableStateError, match="ignores the condition"):
        catalog.alter_table(with_property(record, COUNT, "1"))
    with pytest.raises(InvalidTableStateError, match="ignores the condition"):
        catalog.rename_table(record, (entry.path[0], "new"))
    assert raw_entry(metastore.port, *entry.path) == before


# -- lost replies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.3"])
def test_a_conditional_alter_whose_reply_was_lost_is_unknown_and_its_trial_is_not(
    proxy: ThriftProxy, tmp_path: Path
) -> None:
    with open_catalog(proxy.uri, **LIMITS) as catalog:
        name = (f"guard_{uuid.uuid4().hex[:12]}",)
        catalog.create_namespace(
            NamespaceRecord(name, {"database.location-uri": f"file:{tmp_path}/db"})
        )
        made = make_entry(catalog, (*name, "p"), str(tmp_path / "p.lance"))
        unproven = with_property(with_property(made, GUARD, "parameter"), COUNT, "0")
        proxy.fail_next("alter_table*", Fault.LOSE_REPLY)
        with pytest.raises(ServiceUnavailableError, match="nothing was changed") as caught:
            catalog.alter_table(unproven)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert catalog.load_table(made.path) == made
        catalog.alter_table(unproven)
        latest = catalog.load_table(made.path)
        proxy.fail_next("alter_table*", Fault.LOSE_REPLY)
        with pytest.raises(OutcomeUnknownError):
            catalog.alter_table(with_property(latest, COUNT, "1"))
        assert count_of(catalog, made.path) == 1
