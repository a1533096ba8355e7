"""The pool of connections, against a real metastore behind a proxy that counts and breaks."""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import Database, NoSuchObjectException
from lance_namespace.errors import ServiceUnavailableError
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy
from thrift.Thrift import TApplicationException

from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.embedded import Metastore
from lance_bridge_hive.transport import ClientPool, Connection

pytestmark = pytest.mark.server

Connect = Callable[..., ClientPool]
_DEADLINE = 60.0


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("2.3")


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[ThriftProxy]:
    with ThriftProxy("127.0.0.1", metastore.port) as running:
        yield running


@pytest.fixture
def connect(proxy: ThriftProxy) -> Iterator[Connect]:
    pools: list[ClientPool] = []

    def make(**properties: str) -> ClientPool:
        pools.append(ClientPool(load(HiveConfig, "hive", {"uri": proxy.uri, **properties})))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def read(pool: ClientPool, name: str = "default") -> str:
    """Ask for a database; return the name in the answer."""
    database = pool.call(lambda c: c.hms.get_database(name), name="get_database", repeatable=True)
    return str(database.name)


def create(pool: ClientPool, metastore: Metastore) -> str:
    """Make a database, which must not be tried twice; return its name."""
    name = f"d{uuid.uuid4().hex}"
    record = Database(name=name, locationUri=f"{metastore.warehouse}/{name}", parameters={})
    pool.call(lambda c: c.hms.create_database(record), name="create_database", repeatable=False)
    return name


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- one connection, many calls ------------------------------------------------------------------


def test_calls_share_one_connection(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect()
    for _ in range(20):
        assert read(pool) == "default"
    assert (proxy.connections, proxy.calls["get_database"]) == (1, 20)


def test_nothing_is_opened_before_the_first_call(proxy: ThriftProxy, connect: Connect) -> None:
    connect(ugi="me")
    assert proxy.connections == 0


def test_what_the_metastore_declares_passes_through_and_costs_no_connection(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    for _ in range(3):
        with pytest.raises(NoSuchObjectException):
            read(pool, "missing")
    assert read(pool) == "default"
    assert proxy.connections == 1


def test_an_unknown_method_passes_through_and_its_connection_is_not_used_again(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    with pytest.raises(TApplicationException) as caught:
        pool.call(lambda c: c.catalogs.get_catalogs(), name="get_catalogs", repeatable=True)
    assert caught.value.type == TApplicationException.UNKNOWN_METHOD
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
    for _ in range(3):
        read(pool)
    assert (proxy.connections, proxy.calls["set_ugi"]) == (1, 1)


def test_a_closed_pool_connects_again(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect()
    read(pool)
    pool.close()
    pool.close()
    assert read(pool) == "default"
    assert proxy.connections == 2


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


def test_a_thread_waits_for_a_free_connection_only_so_long(connect: Connect) -> None:
    pool = connect(**{"client.pool-size": "1", "client.timeout": "0.3"})
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


def _read_in_child(pool: ClientPool, answers: Any) -> None:
    answers.put([read(pool) for _ in range(20)])


def test_a_forked_child_uses_no_connection_of_its_parent(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    read(pool)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_read_in_child, args=(pool, answers))
    child.start()
    for _ in range(20):
        assert read(pool) == "default"
    child.join(_DEADLINE)
    assert answers.get() == ["default"] * 20
    assert proxy.connections == 2


# -- lost connections ----------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "how", [Fault.DROP_REQUEST, Fault.RESET, Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY, Fault.STALL]
)
def test_a_change_whose_reply_is_lost_is_not_repeated_and_says_so(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect, how: Fault
) -> None:
    pool = connect(**{"client.timeout": "1"})
    proxy.fail_next("create_database", how)
    with pytest.raises(OutcomeUnknownError, match="create_database was sent") as caught:
        create(pool, metastore)
    assert proxy.uri in str(caught.value)
    assert caught.value.__cause__ is not None
    assert proxy.calls["create_database"] == 1
    assert read(pool) == "default"


def test_a_change_on_an_idle_connection_that_was_closed_succeeds(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect()
    read(pool)
    proxy.disconnect()
    name = create(pool, metastore)
    assert read(pool, name) == name
    assert proxy.calls["create_database"] == 1


def test_a_stalled_call_ends_in_time_and_its_late_reply_is_nobodys(
    metastore: Metastore, proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(**{"client.timeout": "0.5", "client.retry-timeout": "0"})
    name = create(pool, metastore)
    proxy.fail_next("get_database", Fault.DELAY_REPLY, seconds=1.0)
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match=r"no complete reply within 0\.5 s"):
        read(pool, name)
    assert time.monotonic() - started < 0.9
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert read(pool) == "default"


def test_retries_end_in_time(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect(**{"client.retry-timeout": "0.7"})
    proxy.fail_next("get_database", Fault.LOSE_REPLY, times=1000)
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match=r"get_database failed, tried \d+ times in"):
        read(pool)
    assert time.monotonic() - started < 2
    assert 2 < proxy.calls["get_database"] < 20


def test_when_nobody_answers_the_error_names_every_uri_and_its_cause() -> None:
    first, second = unused_port(), unused_port()
    uris = f"thrift://127.0.0.1:{first},thrift://[::1]:{second}"
    properties = {"uri": uris, "client.retry-timeout": "0.2"}
    pool = ClientPool(load(HiveConfig, "hive", properties))
    with pytest.raises(ServiceUnavailableError) as caught:
        read(pool)
    for uri in uris.split(","):
        assert f"{uri}: connection refused" in str(caught.value) or "[::1]" in uri
        assert uri in str(caught.value)


def test_a_change_that_finds_no_metastore_is_known_not_to_have_happened(
    metastore: Metastore,
) -> None:
    properties = {"uri": f"thrift://127.0.0.1:{unused_port()}", "client.retry-timeout": "0.2"}
    pool = ClientPool(load(HiveConfig, "hive", properties))
    with pytest.raises(ServiceUnavailableError) as caught:
        create(pool, metastore)
    assert not isinstance(caught.value, OutcomeUnknownError)


def test_a_host_that_does_not_exist_is_named() -> None:
    properties = {"uri": "thrift://metastore.invalid", "client.retry-timeout": "0"}
    pool = ClientPool(load(HiveConfig, "hive", properties))
    with pytest.raises(ServiceUnavailableError, match=r"thrift://metastore\.invalid:9083: "):
        read(pool)


# -- several metastores --------------------------------------------------------------------------


def test_a_dead_first_uri_is_passed_over_and_remembered(
    proxy: ThriftProxy, connect: Connect
) -> None:
    pool = connect(uri=f"thrift://127.0.0.1:{unused_port()},{proxy.uri}")
    assert read(pool) == "default"
    pool.close()
    started = time.monotonic()
    assert read(pool) == "default"
    assert time.monotonic() - started < 1
    assert proxy.connections == 2


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
        pool = connect(uri=f"{proxy.uri},{other.uri}", **{"client.timeout": "0.5"})
        proxy.fail_next("get_database", Fault.STALL, times=100)
        assert read(pool) == "default"
        assert (proxy.calls["get_database"], other.calls["get_database"]) == (1, 1)


# -- restarts ------------------------------------------------------------------------------------


def test_the_first_change_after_a_crash_and_restart_succeeds(metastores: Metastores) -> None:
    with closing(metastores.new("2.3", stub=False)) as metastore:
        pool = ClientPool(load(HiveConfig, "hive", {"uri": metastore.uri}))
        read(pool)
        metastore.kill()
        metastore.start()
        name = create(pool, metastore)
        assert read(pool, name) == name
        pool.close()


def test_threads_outlive_a_crash_without_a_wrong_answer(metastores: Metastores) -> None:
    with closing(metastores.new("2.3", stub=False)) as metastore:
        properties = {"uri": metastore.uri, "client.retry-timeout": str(_DEADLINE)}
        pool = ClientPool(load(HiveConfig, "hive", properties))
        names = [create(pool, metastore) for _ in range(8)]
        stop = threading.Event()
        under_way = threading.Barrier(len(names) + 1)

        def ask(name: str) -> tuple[int, int]:
            wrong = total = 0
            under_way.wait(_DEADLINE)
            while not stop.is_set():
                wrong += read(pool, name) != name
                total += 1
            return wrong, total

        with ThreadPoolExecutor(len(names)) as threads:
            results = [threads.submit(ask, name) for name in names]
            under_way.wait(_DEADLINE)
            metastore.kill()
            metastore.start()
            stop.set()
            found = [result.result(_DEADLINE) for result in results]
        assert [wrong for wrong, _ in found] == [0] * len(names)
        assert all(total > 0 for _, total in found)
        pool.close()


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
