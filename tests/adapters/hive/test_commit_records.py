"""Commit records on Hive 3.1: changes that arrive late, lost replies, and what is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    ServiceUnavailableError,
)
from servers.hive_entries import (
    COUNT,
    add_one,
    count_of,
    guarded,
    make_entry,
    open_catalog,
    raw_client,
    raw_entry,
    set_by_others,
    with_property,
)
from servers.metastores import Metastores
from servers.proxy import Fault, Hold, ThriftProxy

from lance_bridge.catalog import LATEST, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive import commit_records
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.commit_records import RECORDS
from lance_bridge_metastore import Metastore

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#implementation-managed-tables")]

LIMITS = {"client.timeout": "3", "client.retry-timeout": "3"}
LOST = [Fault.DROP_REQUEST, Fault.LOSE_REPLY, Fault.STALL]


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("3.1")


@pytest.fixture
def straight(metastore: Metastore) -> Iterator[HiveCatalog]:
    """A catalog that reaches the metastore without the proxy."""
    with open_catalog(metastore.uri) as opened:
        yield opened


@pytest.fixture
def catalog(proxy: ThriftProxy) -> Iterator[HiveCatalog]:
    """A catalog behind the proxy."""
    with open_catalog(proxy.uri, **LIMITS) as opened:
        yield opened


@pytest.fixture
def entry(straight: HiveCatalog, database: str, tmp_path: Path) -> TableRecord:
    """An entry whose changes are recorded."""
    made = make_entry(straight, (database, "t"), str(tmp_path / "t.lance"))
    return guarded(straight, made.path, "partition")


def numbers_of(metastore: Metastore, entry: TableRecord) -> list[int]:
    with raw_client(metastore.port) as client:
        found = client.get_partition_names(*entry.properties[RECORDS].split(".", 1), -1)
        return sorted(int(each.rpartition("=")[2]) for each in found)


def held_up(proxy: ThriftProxy, method: str, change: Callable[[], None]) -> Hold:
    """Make a change whose call is held up in the network; return what releases it."""
    hold = Hold()
    proxy.fail_next(method, hold)
    changing = threading.Thread(target=change)
    changing.start()
    assert hold.arrived.wait(60)
    changing.join(60)
    assert not changing.is_alive()
    return hold


def await_calls(proxy: ThriftProxy, metastore: Metastore, entry: TableRecord) -> None:
    """Wait until what was held up has been answered: no connection is open any more."""
    deadline = time.monotonic() + 60
    while proxy.open_connections and time.monotonic() < deadline:
        time.sleep(0.05)
    raw_entry(metastore.port, *entry.path)


def test_a_change_that_arrives_after_those_of_others_takes_none_of_them_back(
    proxy: ThriftProxy, metastore: Metastore, straight: HiveCatalog, entry: TableRecord
) -> None:
    raised: list[Exception] = []
    with open_catalog(proxy.uri, **LIMITS) as slow:
        loaded = slow.load_table(entry.path)

        def change() -> None:
            try:
                slow.alter_table(with_property(loaded, COUNT, "100"))
            except ServiceUnavailableError as error:
                raised.append(error)

        hold = held_up(proxy, "add_partition", change)
    for _ in range(3):
        add_one(straight, lambda: straight.load_table(entry.path))
    hold.release.set()
    await_calls(proxy, metastore, entry)
    assert count_of(straight, entry.path) == 3
    assert [type(error) for error in raised] == [ServiceUnavailableError]
    assert "Nothing was changed" in str(raised[0])


def test_an_alter_that_arrives_late_does_not_change_what_is_read(
    proxy: ThriftProxy, metastore: Metastore, straight: HiveCatalog, entry: TableRecord
) -> None:
    with open_catalog(proxy.uri, **LIMITS) as slow:
        loaded = slow.load_table(entry.path)
        hold = held_up(
            proxy, "alter_table*", lambda: slow.alter_table(with_property(loaded, COUNT, "1"))
        )
    for _ in range(3):
        add_one(straight, lambda: straight.load_table(entry.path))
    hold.release.set()
    await_calls(proxy, metastore, entry)
    deadline = time.monotonic() + 60
    while raw_entry(metastore.port, *entry.path).parameters[COUNT] != "1":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert count_of(straight, entry.path) == 4
    add_one(straight, lambda: straight.load_table(entry.path))
    assert count_of(straight, entry.path) == 5


def test_a_client_that_dies_blocks_no_other(
    proxy: ThriftProxy, straight: HiveCatalog, entry: TableRecord
) -> None:
    with open_catalog(proxy.uri, **LIMITS) as dying:
        proxy.fail_next("add_partition", Fault.DROP_REQUEST, times=float("inf"))
        with pytest.raises(OutcomeUnknownError):
            dying.alter_table(with_property(entry, LATEST, "1"))
    started = time.monotonic()
    add_one(straight, lambda: straight.load_table(entry.path))
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("fault", LOST)
def test_the_outcome_of_a_change_is_resolved_after_a_lost_reply(
    catalog: HiveCatalog, proxy: ThriftProxy, entry: TableRecord, fault: Fault
) -> None:
    proxy.fail_next("add_partition", fault)
    if fault is Fault.DROP_REQUEST:
        with pytest.raises(ServiceUnavailableError, match="Nothing was changed") as caught:
            catalog.alter_table(with_property(entry, COUNT, "1"))
        assert not isinstance(caught.value, OutcomeUnknownError)
    else:
        catalog.alter_table(with_property(entry, COUNT, "1"))
    assert proxy.fired == [("add_partition", fault)]
    assert count_of(catalog, entry.path) == (0 if fault is Fault.DROP_REQUEST else 1)
    with pytest.raises(ConcurrentModificationError):
        catalog.alter_table(with_property(entry, COUNT, "9"))


@pytest.mark.parametrize("lost", [False, True])
def test_a_recorded_change_is_unknown_if_the_records_cannot_be_read(
    catalog: HiveCatalog,
    straight: HiveCatalog,
    proxy: ThriftProxy,
    entry: TableRecord,
    lost: bool,
) -> None:
    says = "" if lost else "its commit records cannot be read"
    catalog.alter_table(with_property(entry, COUNT, "1"))
    reads = proxy.calls["get_partition_names"]  # the last comes after the record was added
    loaded = straight.load_table(entry.path)
    if lost:
        proxy.fail_next("add_partition", Fault.LOSE_REPLY)
    proxy.fail_next("get_partition_names", Fault.LOSE_REPLY, times=float("inf"), passing=reads - 1)
    with pytest.raises(OutcomeUnknownError, match=says):
        catalog.alter_table(with_property(loaded, COUNT, "2"))
    assert count_of(straight, entry.path) == 2


def test_a_commit_does_not_alter_the_entry_which_holds_no_version(
    catalog: HiveCatalog, proxy: ThriftProxy, metastore: Metastore, entry: TableRecord
) -> None:
    before = raw_entry(metastore.port, *entry.path)
    catalog.alter_table(with_property(entry, LATEST, '{"version": 2}'))
    assert proxy.calls["alter_table_with_environment_context"] == 0
    assert raw_entry(metastore.port, *entry.path) == before
    assert catalog.load_table(entry.path).properties[LATEST] == '{"version": 2}'
    [listed] = catalog.scan_tables(entry.path[:1])
    assert listed.properties[LATEST] == '{"version": 2}'


def test_old_records_are_removed_and_the_latest_stay(
    straight: HiveCatalog,
    metastore: Metastore,
    entry: TableRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_records, "_KEPT_RECORDS", 5)
    monkeypatch.setattr(commit_records, "_MAX_RECORDS", 10)
    for number in range(24):
        latest = straight.load_table(entry.path)
        straight.alter_table(with_property(latest, LATEST, str(number)))
    numbers = numbers_of(metastore, entry)
    assert numbers[-1] == 25
    assert 5 <= len(numbers) <= 10
    assert straight.load_table(entry.path).properties[LATEST] == "23"


def test_records_are_dropped_with_their_entry_and_never_listed(
    straight: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    database = entry.path[0]
    assert list(straight.list_tables((database,))) == ["t"]
    straight.drop_table(straight.load_table(entry.path))
    with raw_client(metastore.port) as client:
        assert client.get_all_tables(database) == []


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.STALL])
def test_records_are_dropped_if_the_reply_to_the_drop_of_their_entry_is_lost(
    catalog: HiveCatalog,
    proxy: ThriftProxy,
    metastore: Metastore,
    entry: TableRecord,
    fault: Fault,
) -> None:
    loaded = catalog.load_table(entry.path)
    proxy.fail_next("drop_table", fault)
    with pytest.raises(OutcomeUnknownError):
        catalog.drop_table(loaded)
    with raw_client(metastore.port) as client:
        assert client.get_all_tables(entry.path[0]) == []


def test_records_stay_if_their_entry_was_renamed_before_a_drop_was_lost(
    catalog: HiveCatalog, straight: HiveCatalog, proxy: ThriftProxy, entry: TableRecord
) -> None:
    straight.alter_table(with_property(entry, LATEST, "1"))
    loaded = straight.load_table(entry.path)
    renamed = (entry.path[0], "renamed")
    straight.rename_table(loaded, renamed)
    proxy.fail_next("drop_table", Fault.DROP_REQUEST)
    with pytest.raises(OutcomeUnknownError):
        catalog.drop_table(loaded)
    assert straight.load_table(renamed).properties[LATEST] == "1"


def test_a_table_whose_records_are_gone_can_be_read_and_dropped_and_not_changed(
    straight: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    with raw_client(metastore.port) as client:
        client.drop_table(*entry.properties[RECORDS].split(".", 1), False)
    found = straight.load_table(entry.path)
    assert LATEST not in found.properties
    with pytest.raises(InvalidTableStateError, match="are gone: deregister"):
        straight.alter_table(with_property(found, COUNT, "1"))


def test_properties_that_others_add_are_kept(
    straight: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    set_by_others(metastore.port, entry.path, "team", "other")
    found = straight.load_table(entry.path)
    assert found.properties["team"] == "other"
    straight.alter_table(with_property(found, COUNT, "1"))
    assert straight.load_table(entry.path).properties["team"] == "other"
    assert count_of(straight, entry.path) == 1
