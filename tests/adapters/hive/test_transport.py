"""The pool of connections, against a real metastore behind a proxy that counts and breaks."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import NoSuchObjectException
from lance_namespace.errors import ServiceUnavailableError
from servers.pools import Connect, create, read
from servers.proxy import ThriftProxy
from thrift.Thrift import TApplicationException

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive.transport import ClientPool, Connection
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.servers

_DEADLINE = 60.0


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


def _read_in_child(pool: ClientPool, answers: Any) -> None:
    answers.put([read(pool) for _ in range(20)])


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
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
