"""The metastore's locks as a guard: lost replies, dead clients, and holders that take too long."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import (
    LockComponent,
    LockRequest,
    ShowLocksRequest,
    UnlockRequest,
)
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from servers.hive_entries import (
    COUNT,
    add_one,
    count_of,
    guarded,
    make_entry,
    open_catalog,
    race,
    raw_entry,
    with_property,
)
from servers.hive_raw import raw_client
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy

from lance_bridge.catalog import GUARD, NamespaceRecord, TableRecord
from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive.calls import Calls
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.embedded import Metastore
from lance_bridge_hive.locks import Hold, TableLocks

pytestmark = pytest.mark.server

EXPIRY = 5.0
LIMITS = {"client.timeout": "2", "client.retry-timeout": "10", "client.lock-timeout": "30"}
WITH_LOCKS = {"hive.in.test": "true", "hive.txn.timeout": f"{EXPIRY:g}s"}
OURS = "lance-bridge of a client that died"
TOO_LONG = 25.0
"""Seconds that nothing here may take, on a busy machine."""


@pytest.fixture(scope="module")
def metastore(metastores: Metastores) -> Iterator[Metastore]:
    """A metastore of release 2.3 whose locks expire soon; nothing in it removes those."""
    running = metastores.new("2.3", stub=False, settings=WITH_LOCKS)
    yield running
    running.close()


@pytest.fixture
def catalog(proxy: ThriftProxy) -> Iterator[HiveCatalog]:
    """A catalog behind the proxy."""
    with open_catalog(proxy.uri, **LIMITS) as opened:
        yield opened


@pytest.fixture
def entry(metastore: Metastore, tmp_path: Path) -> Iterator[TableRecord]:
    """An entry that is guarded by locks."""
    name = f"locks_{uuid.uuid4().hex[:12]}"
    with open_catalog(metastore.uri, **LIMITS) as straight:
        location = {"database.location-uri": f"file:{tmp_path}/{name}"}
        straight.create_namespace(NamespaceRecord((name,), location))
        made = make_entry(straight, (name, "t"), str(tmp_path / "t.lance"))
        yield guarded(straight, made.path, "lock")


def locks_on(metastore: Metastore, record: TableRecord) -> list[Any]:
    with raw_client(metastore.port) as client:
        database, table = record.path
        request = ShowLocksRequest(dbname=database, tablename=table)
        return list(client.show_locks(request).locks or [])


def lock_away(metastore: Metastore, record: TableRecord, agent: str) -> int:
    """Lock the table as somebody who never comes back."""
    database, table = record.path
    part = LockComponent(type=3, level=2, dbname=database, tablename=table, operationType=6)
    request = LockRequest(component=[part], user="eve", hostname="afar", agentInfo=agent)
    with raw_client(metastore.port) as client:
        return int(client.lock(request).lockid)


def unlock(metastore: Metastore, lock_id: int) -> None:
    with raw_client(metastore.port) as client:
        client.unlock(UnlockRequest(lockid=lock_id))


# -- without faults ------------------------------------------------------------------------------


def test_locks_keep_increments_where_the_condition_would_have(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    def add(_: int) -> None:
        for _ in range(5):
            add_one(catalog, lambda: catalog.load_table(entry.path))

    assert race(4, add) == [None] * 4
    assert count_of(catalog, entry.path) == 20
    assert locks_on(metastore, entry) == []


def test_a_beaten_change_asks_for_no_lock(
    catalog: HiveCatalog, proxy: ThriftProxy, entry: TableRecord
) -> None:
    add_one(catalog, lambda: entry)
    proxy.reset()
    with pytest.raises(LanceNamespaceError, match="modified concurrently"):
        catalog.alter_table(with_property(entry, COUNT, "7"))
    assert dict(proxy.calls) == {"get_table_req": 1}


def test_proving_locks_leaves_none_even_if_somebody_holds_one(
    metastore: Metastore, entry: TableRecord
) -> None:
    config = load(HiveConfig, "hive", {"uri": metastore.uri, **LIMITS})
    calls = Calls(config)
    TableLocks(calls, config).prove(entry.path)
    assert locks_on(metastore, entry) == []
    theirs = lock_away(metastore, entry, "Hive")
    TableLocks(calls, config).prove(entry.path)
    assert [lock.lockid for lock in locks_on(metastore, entry)] == [theirs]
    unlock(metastore, theirs)
    calls.close()


def test_names_that_are_too_long_for_locks_are_locked_all_the_same(
    catalog: HiveCatalog, entry: TableRecord, tmp_path: Path
) -> None:
    path = (entry.path[0], "t" * 200)
    make_entry(catalog, path, str(tmp_path / "long.lance"))
    guarded(catalog, path, "lock")
    add_one(catalog, lambda: catalog.load_table(path))
    assert count_of(catalog, path) == 1


def test_calls_that_outlast_a_lock_are_refused_before_it_is_taken(
    metastore: Metastore, entry: TableRecord
) -> None:
    slow = {**LIMITS, "client.timeout": "3"}
    with open_catalog(metastore.uri, **slow) as catalog:
        with pytest.raises(UnsupportedOperationError, match=r"client\.timeout to 2\.5 or less"):
            catalog.alter_table(with_property(entry, COUNT, "1"))
        assert catalog.load_table(entry.path) == entry
    assert locks_on(metastore, entry) == []


def test_a_holder_that_took_too_long_changes_nothing_any_more() -> None:
    late = Hold(1, sure_until=time.monotonic() + 1.9, longest_call=2.0)
    with pytest.raises(ServiceUnavailableError, match="nothing was changed"):
        late.begin_change()
    assert not late.is_change_under_way
    in_time = Hold(1, sure_until=time.monotonic() + 60, longest_call=2.0)
    in_time.begin_change()
    assert in_time.is_change_under_way


# -- locks of others -----------------------------------------------------------------------------


def test_the_lock_of_a_client_that_died_is_waited_for_and_then_removed(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    lock_away(metastore, entry, OURS)
    started = time.monotonic()
    catalog.alter_table(with_property(entry, COUNT, "1"))
    assert EXPIRY - 1 < time.monotonic() - started < TOO_LONG
    assert count_of(catalog, entry.path) == 1
    assert locks_on(metastore, entry) == []


def test_a_lock_of_others_is_reported_in_time_and_never_removed(
    metastore: Metastore, entry: TableRecord
) -> None:
    theirs = lock_away(metastore, entry, "Hive")
    started = time.monotonic()
    patient = {**LIMITS, "client.lock-timeout": f"{EXPIRY * 1.5:g}"}
    with (
        open_catalog(metastore.uri, **patient) as catalog,
        pytest.raises(ServiceUnavailableError, match=rf"lock {theirs} of eve on afar \(Hive\)"),
    ):
        catalog.alter_table(with_property(entry, COUNT, "1"))
    assert time.monotonic() - started < TOO_LONG
    assert [lock.lockid for lock in locks_on(metastore, entry)] == [theirs]
    unlock(metastore, theirs)


def test_a_wait_ends_as_soon_as_somebody_else_has_changed_the_entry(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    theirs = lock_away(metastore, entry, "Hive")
    table = raw_entry(metastore.port, *entry.path)
    table.parameters["lance_bridge.revision"] = "another"

    def change() -> None:
        deadline = time.monotonic() + TOO_LONG
        while len(locks_on(metastore, entry)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        with raw_client(metastore.port) as client:
            client.alter_table(*entry.path, table)

    other = threading.Thread(target=change)
    other.start()
    with pytest.raises(LanceNamespaceError, match="modified concurrently"):
        catalog.alter_table(with_property(entry, COUNT, "1"))
    other.join()
    assert [lock.lockid for lock in locks_on(metastore, entry)] == [theirs]
    unlock(metastore, theirs)


# -- faults on the wire --------------------------------------------------------------------------


LOST = [Fault.DROP_REQUEST, Fault.LOSE_REPLY, Fault.STALL]
OF_LOCKS = [("lock", fault) for fault in LOST[1:]] + [("unlock", fault) for fault in LOST]


@pytest.mark.parametrize("broken", OF_LOCKS, ids=lambda broken: f"{broken[0]}-{broken[1].name}")
def test_a_lost_reply_to_lock_or_unlock_is_made_up_for(
    catalog: HiveCatalog,
    proxy: ThriftProxy,
    metastore: Metastore,
    entry: TableRecord,
    broken: tuple[str, Fault],
) -> None:
    proxy.fail_next(*broken)
    started = time.monotonic()
    catalog.alter_table(with_property(entry, COUNT, "1"))
    assert time.monotonic() - started < TOO_LONG
    assert proxy.fired == [broken]
    assert count_of(catalog, entry.path) == 1
    assert locks_on(metastore, entry) == []


def test_a_lock_that_was_never_asked_for_is_not_a_change_in_doubt(
    catalog: HiveCatalog, proxy: ThriftProxy, metastore: Metastore, entry: TableRecord
) -> None:
    proxy.fail_next("lock", Fault.DROP_REQUEST)
    with pytest.raises(ServiceUnavailableError, match="Nothing was changed") as caught:
        catalog.alter_table(with_property(entry, COUNT, "1"))
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert catalog.load_table(entry.path) == entry
    assert locks_on(metastore, entry) == []


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("method", ["check_lock", "show_locks", "get_config_value"])
def test_a_lost_reply_to_what_is_asked_meanwhile_is_asked_for_again(
    proxy: ThriftProxy, metastore: Metastore, entry: TableRecord, method: str, fault: Fault
) -> None:
    dead = lock_away(metastore, entry, OURS)
    with open_catalog(proxy.uri, **LIMITS) as fresh:
        proxy.fail_next(method, fault)
        changing = threading.Thread(
            target=lambda: fresh.alter_table(with_property(entry, COUNT, "1"))
        )
        changing.start()
        deadline = time.monotonic() + TOO_LONG
        while not proxy.fired and time.monotonic() < deadline:
            time.sleep(0.01)
        unlock(metastore, dead)
        changing.join(TOO_LONG)
        assert not changing.is_alive()
        assert count_of(fresh, entry.path) == 1
    assert proxy.fired == [(method, fault)]
    assert locks_on(metastore, entry) == []


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.STALL, Fault.TRUNCATE_REPLY])
def test_a_change_that_was_made_though_its_reply_was_lost_gives_its_lock_back(
    catalog: HiveCatalog,
    proxy: ThriftProxy,
    metastore: Metastore,
    entry: TableRecord,
    fault: Fault,
) -> None:
    proxy.fail_next("alter_table*", fault)
    with pytest.raises(OutcomeUnknownError):
        catalog.alter_table(with_property(entry, COUNT, "1"))
    assert count_of(catalog, entry.path) == 1
    assert locks_on(metastore, entry) == []


def test_a_change_that_may_still_be_under_way_keeps_its_lock_until_it_expires(
    catalog: HiveCatalog, proxy: ThriftProxy, metastore: Metastore, entry: TableRecord
) -> None:
    proxy.fail_next("alter_table*", Fault.DROP_REQUEST)
    with pytest.raises(OutcomeUnknownError):
        catalog.alter_table(with_property(entry, COUNT, "1"))
    assert len(locks_on(metastore, entry)) == 1
    catalog.alter_table(with_property(entry, COUNT, "2"))
    assert count_of(catalog, entry.path) == 2
    assert locks_on(metastore, entry) == []


def test_an_alter_that_the_metastore_refuses_gives_its_lock_back(
    catalog: HiveCatalog, metastore: Metastore, entry: TableRecord
) -> None:
    with pytest.raises(NamespaceNotFoundError):
        catalog.rename_table(entry, (entry.path[0] + "_nowhere", "t"))
    assert catalog.load_table(entry.path) == entry
    assert locks_on(metastore, entry) == []


# -- lost replies where the metastore compares by itself -----------------------------------------


def test_a_conditional_alter_whose_reply_was_lost_is_unknown_and_its_trial_is_not(
    proxy: ThriftProxy, tmp_path: Path
) -> None:
    with open_catalog(proxy.uri, **LIMITS) as catalog:
        name = (f"locks_{uuid.uuid4().hex[:12]}",)
        catalog.create_namespace(
            NamespaceRecord(name, {"database.location-uri": f"file:{tmp_path}/db"})
        )
        made = make_entry(catalog, (*name, "p"), str(tmp_path / "p.lance"))
        unproven = with_property(with_property(made, GUARD, "parameter"), COUNT, "0")
        proxy.fail_next("alter_table*", Fault.LOSE_REPLY)
        with pytest.raises(ServiceUnavailableError, match="all is as it was") as caught:
            catalog.alter_table(unproven)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert catalog.load_table(made.path) == made
        catalog.alter_table(unproven)
        latest = catalog.load_table(made.path)
        proxy.fail_next("alter_table*", Fault.LOSE_REPLY)
        with pytest.raises(OutcomeUnknownError):
            catalog.alter_table(with_property(latest, COUNT, "1"))
        assert count_of(catalog, made.path) == 1
