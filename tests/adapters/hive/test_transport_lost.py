"""The pool when connections break, metastores die, and others are there."""

from __future__ import annotations

import gc
import logging
import time
import warnings
from contextlib import closing

import pytest
from lance_namespace.errors import ServiceUnavailableError
from servers.metastores import Metastores
from servers.pools import Connect, create, read
from servers.processes import free_port
from servers.proxy import Fault, ThriftProxy
from servers.scripted import ScriptedServer

from lance_bridge.config import load
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_hive.config import HiveConfig
from lance_bridge_hive.transport import ClientPool
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.servers


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


@pytest.mark.spec("common.md#errors-of-every-operation")
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
    with pytest.raises(ServiceUnavailableError, match=r"no complete reply within 2 s$"):
        read(pool)


def test_retries_end_in_time(proxy: ThriftProxy, connect: Connect) -> None:
    pool = connect(**{"client.retry-timeout": "2"})
    proxy.fail_next("get_database", Fault.LOSE_REPLY, times=1000)
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match=r"get_database failed, tried \d+ times in"):
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
def test_without_an_answer_the_error_names_every_uri_and_its_cause() -> None:
    first, second = free_port(), free_port()
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
    properties = {"uri": f"thrift://127.0.0.1:{free_port()}", "client.retry-timeout": "0.2"}
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
