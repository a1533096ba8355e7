"""The pool of connections, against a real metastore behind a proxy that counts and breaks.

Also how many calls an operation needs, and what each of them is for.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import NoSuchObjectException
from lance_namespace.errors import (
    NamespaceNotFoundError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from servers.hive_entries import open_catalog, raw_client, raw_table
from servers.metastores import Connect, Metastores, create, read
from servers.processes import free_port, returns_in_child
from servers.proxy import Fault, Refusal, ThriftProxy
from servers.replies import ScriptedServer

import lance_bridge_hive.catalog as adapter
from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.client import ClientPool
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.connection import Connection
from lance_bridge_hive.errors import translate_errors
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#connections", "hive.md#declaretable")]

_DEADLINE = 60.0


# -- one connection, many calls ------------------------------------------------------------------


def test_calls_share_one_connection_also_those_that_the_metastore_answers_with_an_error(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    for _ in range(10):
        assert read(pool) == "default"
        with pytest.raises(NoSuchObjectException):
            read(pool, "missing")
    assert (proxy.connections, proxy.calls["get_database"]) == (1, 20)


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_an_unknown_method_is_unsupported_and_its_connection_is_not_used_again(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    with (
        pytest.raises(UnsupportedOperationError, match="lacks a call that is required to list"),
        translate_errors("list catalogs"),
    ):
        pool.call(lambda c: c.catalogs.get_catalogs(), name="get_catalogs", repeatable=True)
    assert read(pool) == "default"
    assert (proxy.connections, proxy.calls["get_catalogs"]) == (2, 1)


def test_both_sets_of_bindings_speak_over_one_connection(
    proxy: ThriftProxy, connect: Connect
) -> None:
    def both(connection: Connection) -> list[str]:
        clients = (connection.hms, connection.catalogs, connection.hms)
        return [client.get_database("default").name for client in clients]

    assert connect().call(both, name="get_database", repeatable=True) == ["default"] * 3
    assert proxy.connections == 1


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, LookupError])
def test_a_call_interrupted_in_the_middle_leaves_no_answer_for_the_next(
    proxy: ThriftProxy, connect: Connect, interruption: type[BaseException]
) -> None:
    def interrupted(connection: Connection) -> None:
        connection.hms.send_get_all_databases()
        raise interruption

    pool = connect(**{"client.retry-timeout": "0"})
    expected: Any = KeyboardInterrupt if interruption is KeyboardInterrupt else OutcomeUnknownError
    with pytest.raises(expected):
        pool.call(interrupted, name="get_all_databases", repeatable=False)
    assert read(pool) == "default"
    assert proxy.connections == 2


def test_an_error_between_calls_keeps_the_connection(proxy: ThriftProxy, connect: Connect) -> None:
    def failing(connection: Connection) -> None:
        connection.hms.get_database("default")
        raise LookupError("the caller's own")

    pool = connect()
    with pytest.raises(LookupError, match="the caller's own"):
        pool.call(failing, name="get_database", repeatable=True)
    assert read(pool) == "default"
    assert proxy.connections == 1


def test_a_request_that_cannot_be_written_is_the_callers_error(connect: Connect) -> None:
    pool = connect()
    with pytest.raises(UnicodeEncodeError):
        read(pool, "\ud800")
    assert read(pool) == "default"


def test_the_user_is_named_once_per_connection(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect(ugi="alice:a,b")
    assert proxy.connections == 0
    for _ in range(3):
        read(pool)
    assert (proxy.connections, proxy.calls["set_ugi"]) == (1, 1)


def test_a_connection_in_use_while_the_pool_is_closed_is_closed_when_it_returns(
    proxy: ThriftProxy, connect: Connect
) -> None:
    def closing(connection: Connection) -> str:
        pool.close()
        return str(connection.hms.get_database("default").name)

    pool = connect()
    assert pool.call(closing, name="get_database", repeatable=True) == "default"
    read(pool)
    assert proxy.connections == 2


def test_a_connection_that_was_idle_for_too_long_is_replaced(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(**{"client.idle-timeout": "0.000001"})
    read(pool)
    read(pool)
    assert proxy.connections == 2


# -- many threads, other processes ---------------------------------------------------------------


def test_every_thread_gets_the_answer_to_its_own_question(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(**{"client.pool-size": "4"})
    names = [create(pool, metastore) for _ in range(16)]

    def ask(name: str) -> set[str]:
        return {read(pool, name) for _ in range(50)}

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, names))
    assert answers == [{name} for name in names]
    assert proxy.connections <= 4


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_a_thread_waits_for_a_free_connection_only_so_long(connect: Connect) -> None:
    pool = connect(**{"client.pool-size": "1", "client.timeout": "2"})
    held, release = threading.Event(), threading.Event()

    def hold(_: Connection) -> bool:
        held.set()
        return release.wait(_DEADLINE)

    with ThreadPoolExecutor(1) as thread:
        holder = thread.submit(pool.call, hold, name="hold", repeatable=True)
        assert held.wait(_DEADLINE)
        with pytest.raises(ServiceUnavailableError, match=r"raise client\.pool-size"):
            read(pool)
        release.set()
        assert holder.result(_DEADLINE) is True
    assert read(pool) == "default"


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_forked_child_uses_no_connection_of_its_parent(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    read(pool)
    assert returns_in_child(lambda: [read(pool) for _ in range(20)])
    read(pool)
    assert proxy.connections == 2


# -- lost connections ----------------------------------------------------------------------------


def databases(metastore: Metastore) -> set[str]:
    """Return the databases that there are, past the proxy."""
    with raw_client(metastore.port) as client:
        return {*client.get_all_databases()}


@pytest.mark.parametrize(
    "how", [Fault.DROP_REQUEST, Fault.RESET, Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY]
)
def test_a_read_whose_connection_breaks_is_tried_again(
    proxy: ThriftProxy, connect: Connect, how: Fault
) -> None:
    pool = connect()
    proxy.fail_next("get_database", how, times=2)
    assert read(pool) == "default"
    assert proxy.fired == [("get_database", how)] * 2
    assert proxy.calls["get_database"] == 3


@pytest.mark.spec("common.md#errors-of-every-operation")
@pytest.mark.parametrize(
    "how", [Fault.DROP_REQUEST, Fault.RESET, Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY, Fault.STALL]
)
def test_a_change_whose_reply_is_lost_is_not_repeated_and_says_so(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect, how: Fault
) -> None:
    pool = connect(**{"client.timeout": "1"})
    before = databases(metastore)
    proxy.fail_next("create_database", how)
    with pytest.raises(OutcomeUnknownError, match=r"\(create_database\) was sent") as caught:
        create(pool, metastore)
    assert proxy.uri in str(caught.value)
    assert caught.value.__cause__ is not None
    assert proxy.calls["create_database"] == 1
    assert read(pool) == "default"
    assert len(databases(metastore) - before) == (how not in (Fault.DROP_REQUEST, Fault.RESET))


@pytest.mark.spec("common.md#lost-replies", "hive.md#connections")
def test_a_connection_that_was_lost_is_replaced_silently(
    proxy: ThriftProxy, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    pool = connect()
    read(pool)
    proxy.fail_next("get_database", Fault.RESET)
    with caplog.at_level(logging.WARNING):
        read(pool)
    assert caplog.messages == []


def test_a_change_on_an_idle_connection_that_was_closed_succeeds(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    read(pool)
    proxy.disconnect()
    name = create(pool, metastore)
    assert read(pool, name) == name
    assert proxy.calls["create_database"] == 1


def test_a_stalled_call_ends_in_time_and_its_late_reply_is_discarded(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(**{"client.timeout": "1.5", "client.retry-timeout": "0"})
    name = create(pool, metastore)
    proxy.fail_next("get_database", Fault.DELAY_REPLY, seconds=4.0)
    with pytest.raises(ServiceUnavailableError, match=r"no complete reply within 1\.5 s"):
        read(pool, name)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert read(pool) == "default"


def test_settings_are_not_suspected_if_a_metastore_stops_answering(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(**{"client.timeout": "2", "client.retry-timeout": "0"})
    assert read(pool) == "default"
    proxy.disconnect()
    proxy.fail_next("get_database", Fault.STALL)
    with pytest.raises(ServiceUnavailableError, match=r"no complete reply within 2 s\. Try again"):
        read(pool)


def test_retries_end_in_time(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect(**{"client.retry-timeout": "2"})
    proxy.fail_next("get_database", Fault.LOSE_REPLY, times=1000)
    started = time.monotonic()
    with pytest.raises(
        ServiceUnavailableError,
        match=r"did not respond within \d\.\d s: thrift:",
    ):
        read(pool)
    assert time.monotonic() - started < 15  # on a busy machine too; by default it is 20
    assert 1 < proxy.calls["get_database"] < 20


def test_retries_leave_no_socket_open(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect()
    proxy.fail_next("get_database", Fault.TRUNCATE_REPLY, times=2)
    gc.collect()  # what earlier tests left is not counted
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        read(pool)
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_a_pool_that_is_dropped_after_a_retry_closes_its_connection(proxy: ThriftProxy) -> None:
    """At once: no cycle of references keeps it until garbage is collected."""
    pool = ClientPool(load(HiveConfig, "hive", {"uri": proxy.uri}))
    proxy.fail_next("get_database", Fault.LOSE_REPLY)
    gc.disable()
    try:
        read(pool)
        with pytest.warns(ResourceWarning, match="unclosed"):
            del pool
    finally:
        gc.enable()


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_without_an_answer_the_error_names_every_uri_and_a_change_has_not_happened(
    metastore: Metastore,
) -> None:
    first, second = free_port(), free_port()
    uris = f"thrift://127.0.0.1:{first},thrift://[::1]:{second}"
    properties = {"uri": uris, "client.retry-timeout": "0.2"}
    pool = ClientPool(load(HiveConfig, "hive", properties))
    calls: list[Callable[[], object]] = [lambda: read(pool), lambda: create(pool, metastore)]
    for call in calls:
        with pytest.raises(ServiceUnavailableError) as caught:
            call()
        assert not isinstance(caught.value, OutcomeUnknownError)
        for uri in uris.split(","):
            assert f"{uri}: connection refused" in str(caught.value) or "[::1]" in uri
            assert uri in str(caught.value)


def test_a_host_that_does_not_exist_is_named() -> None:
    properties = {"uri": "thrift://metastore.invalid", "client.retry-timeout": "0"}
    pool = ClientPool(load(HiveConfig, "hive", properties))
    with pytest.raises(ServiceUnavailableError, match=r"thrift://metastore\.invalid:9083: "):
        read(pool)


# -- several metastores --------------------------------------------------------------------------


def test_a_dead_first_uri_is_skipped_and_remembered(proxy: ThriftProxy, connect: Connect) -> None:
    with closing(ScriptedServer(lambda _: None)) as dead:
        pool = connect(uri=f"{dead.uri},{proxy.uri}")
        for _ in range(2):
            assert read(pool) == "default"
            pool.close()
        assert (dead.connections, proxy.connections) == (1, 2)


def test_calls_move_to_another_metastore_and_stay_there(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    with ThriftProxy("127.0.0.1", metastore.port) as first:
        other = proxy
        pool = connect(uri=f"{first.uri},{other.uri}")
        read(pool)
        assert (first.connections, other.connections) == (1, 0)
    name = create(pool, metastore)
    assert read(pool, name) == name
    assert other.calls["create_database"] == 1


def test_a_stalled_metastore_is_left_for_another(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    with ThriftProxy("127.0.0.1", metastore.port) as other:
        pool = connect(uri=f"{proxy.uri},{other.uri}", **{"client.timeout": "2"})
        proxy.fail_next("get_database", Fault.STALL, times=100)
        assert read(pool) == "default"
        assert (proxy.calls["get_database"], other.calls["get_database"]) == (1, 1)


# -- restarts ------------------------------------------------------------------------------------


def test_the_framed_transport_works(metastores: Metastores) -> None:
    settings = {"hive.metastore.thrift.framed.transport.enabled": "true"}
    with closing(metastores.new("2.3", stub=False, settings=settings)) as metastore:
        framed = {"uri": metastore.uri, "client.framed": "true"}
        pool = ClientPool(load(HiveConfig, "hive", framed))
        assert read(pool, create(pool, metastore))
        assert read(pool) == "default"
        pool.close()
        buffered = {"uri": metastore.uri, "client.retry-timeout": "0", "client.timeout": "5"}
        with pytest.raises(ServiceUnavailableError, match=r"client\.framed"):
            read(ClientPool(load(HiveConfig, "hive", buffered)))


READ = {"get_database": 1}
ADD = {"create_table_with_environment_context": 1}
STORAGE = {"managed_by": "storage"}
READ_TABLES = "get_table_objects_by_name_req"
LANCE_TABLES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def proxied(proxy: ThriftProxy, database: str, tmp_path: Path) -> Iterator[Calls]:
    """A client behind the proxy, with a root, which has called nothing yet."""
    assert database
    with open_calls(uri=proxy.uri, root=str(tmp_path / "lake")) as calls:
        proxy.reset()
        yield calls


def test_a_new_table_needs_the_database_and_its_entry(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"])
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.register_table([database, "v"], str(tmp_path / "v"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.create_table([database, "w"], rows(range(3)))
    # The entry is read again after the commit to the storage.
    assert dict(proxy.calls) == READ | ADD | {"get_table_req": 1}


def test_a_request_that_says_who_manages_the_table_needs_no_database(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"], properties=STORAGE)
    assert dict(proxy.calls) == ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"), properties=STORAGE)
    assert dict(proxy.calls) == ADD


# -- the entries of a database: how many calls, which entries, in what order -----------------------


@pytest.fixture
def catalog(proxy: ThriftProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveCatalog]:
    """The adapter behind the proxy; it reads two entries in a call for pages, four for all."""
    monkeypatch.setattr(adapter, "_PAGE", 2)
    monkeypatch.setattr(adapter, "_BATCH", 4)
    with open_catalog(proxy.uri) as connected:
        yield connected


@pytest.fixture
def filled(metastore: Metastore, database: str, tmp_path: Path) -> str:
    """A database with Lance tables, and two entries of others between them."""
    with raw_client(metastore.port) as client:
        for name in ("e", "c", "a", "other_b", "d", "b", "another"):
            table = raw_table(database, name, str(tmp_path / name))
            if name not in LANCE_TABLES:
                table.parameters = {"EXTERNAL": "TRUE"}
            client.create_table(table)
    return database


def names(records: Iterator[TableRecord]) -> list[str]:
    return [record.path[-1] for record in records]


def test_a_scan_returns_all_entries_in_few_calls(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str
) -> None:
    found = {r.path: r.is_lance for r in catalog.scan_tables((filled,))}
    assert found == {
        **{(filled, name): True for name in LANCE_TABLES},
        (filled, "another"): False,
        (filled, "other_b"): False,
    }
    assert list(found) == sorted(found)
    assert (proxy.calls["get_all_tables"], proxy.calls[READ_TABLES]) == (1, 2)


def test_an_entry_that_a_batch_lacks_and_that_cannot_be_read_is_no_absent_one(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = catalog._entries._load_batch
    monkeypatch.setattr(
        catalog._entries,
        "_load_batch",
        lambda path, wanted: [table for table in load(path, wanted) if table.tableName != "c"],
    )
    found = {record.path[-1]: record for record in catalog.scan_tables((filled,))}
    assert found["c"].is_lance
    proxy.fail_next("get_table_req", Refusal("Permission denied: user=somebody"))
    found = {record.path[-1]: record for record in catalog.scan_tables((filled,))}
    assert found["c"] == TableRecord.unreadable((filled, "c"))
    assert list(found) == sorted(found)


def test_lance_tables_are_read_only_as_far_as_they_are_asked_for(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str
) -> None:
    page = iter(catalog.scan_tables((filled,), lance_only=True, after="a"))
    for wanted, calls in (("b", 1), ("c", 1), ("d", 2), ("e", 2)):
        assert names(islice(page, 1)) == [wanted]
        assert proxy.calls[READ_TABLES] == calls
    assert proxy.calls["get_table_names_by_filter"] == 1


def test_where_the_metastore_cannot_filter_pages_are_read_bit_by_bit_too(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No metastore at hand refuses our filter. This one is refused for real, and in the same way.
    monkeypatch.setattr(adapter, "_LANCE_FILTER", "hive_filter_field_nonsense__ = 1")
    for _ in range(2):
        assert names(islice(catalog.scan_tables((filled,), lance_only=True, after="c"), 1)) == ["d"]
    assert proxy.calls["get_table_names_by_filter"] == 1
    assert (proxy.calls["get_all_tables"], proxy.calls[READ_TABLES]) == (2, 2)
    assert names(iter(catalog.scan_tables((filled,), lance_only=True))) == LANCE_TABLES
    assert catalog.list_tables((filled,), lance_only=True) == LANCE_TABLES
    with pytest.raises(NamespaceNotFoundError):
        catalog.list_tables(("missing",), lance_only=True)
    assert (proxy.calls["get_table_names_by_filter"], proxy.calls["get_table_req"]) == (1, 0)


def test_listing_makes_one_call_and_describing_one(
    calls: Calls, proxy: ThriftProxy, database: str
) -> None:
    for number in range(3):
        calls.declare_table([database, f"t{number}"])
    with open_calls(uri=proxy.uri) as behind:
        behind.all_namespaces([])
        proxy.reset()
        assert behind.all_tables([database]) == ["t0", "t1", "t2"]
        behind.describe_table([database, "t1"])
    assert dict(proxy.calls) == {"get_table_names_by_filter": 1, "get_table_req": 1}
    assert proxy.connections == 0
