"""The proxy counts what goes over the wire, and breaks only what a rule names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore.ttypes import Database
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport
from thrift.transport.TTransport import TTransportException

from lance_bridge_metastore import Metastore
from servers.metastores import Metastores
from servers.processes import wait_until
from servers.proxy import Fault, ThriftProxy

BROKEN = (TTransportException, EOFError, OSError)
"""What a client sees when its connection goes; which of them depends on the moment."""

pytestmark = pytest.mark.server


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("2.3")


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[ThriftProxy]:
    with ThriftProxy("127.0.0.1", metastore.port) as running:
        yield running


def client(port: int) -> HMSClient:
    return HMSClient(host="127.0.0.1", port=port)


def test_calls_are_counted_by_name_and_connections_too(proxy: ThriftProxy) -> None:
    for _ in range(2):
        with client(proxy.port) as hive:
            hive.get_all_databases()
            hive.get_all_databases()
            hive.get_config_value("hive.metastore.uris", "")
    assert proxy.calls == {"get_all_databases": 4, "get_config_value": 2}
    assert proxy.connections == 2
    wait_until(lambda: proxy.open_connections == 0)
    proxy.reset()
    assert proxy.calls == {}
    assert proxy.connections == 0


def test_framed_messages_are_understood() -> None:
    settings = {"hive.metastore.thrift.framed.transport.enabled": "true"}
    with (
        Metastore("2.3", settings=settings) as framed,
        ThriftProxy("127.0.0.1", framed.port) as proxy,
    ):
        with HMSClient(iprot=TBinaryProtocol(framed_transport(proxy.port))) as hive:
            assert hive.get_all_databases() == ["default"]
        assert proxy.calls == {"get_all_databases": 1}


@pytest.mark.parametrize("framed", [False, True])
def test_messages_without_a_version_are_counted_though_hive_refuses_them(
    proxy: ThriftProxy, framed: bool
) -> None:
    transport = framed_transport(proxy.port) if framed else buffered_transport(proxy.port)
    with (
        HMSClient(iprot=TBinaryProtocol(transport, strictWrite=False)) as hive,
        pytest.raises(BROKEN),
    ):
        hive.get_all_databases()
    assert proxy.calls == {"get_all_databases": 1}


def framed_transport(port: int) -> TTransport.TFramedTransport:
    return TTransport.TFramedTransport(TSocket.TSocket("127.0.0.1", port))


def buffered_transport(port: int) -> TTransport.TBufferedTransport:
    return TTransport.TBufferedTransport(TSocket.TSocket("127.0.0.1", port))


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        (Fault.LOSE_REPLY, True),
        (Fault.TRUNCATE_REPLY, True),
        (Fault.DROP_REQUEST, False),
        (Fault.RESET, False),
    ],
)
def test_a_broken_call_has_or_has_not_happened_as_the_fault_says(
    metastore: Metastore, proxy: ThriftProxy, fault: Fault, happened: bool
) -> None:
    name = f"fault_{fault.name.lower()}"
    proxy.fail_next("create_data*", fault)
    with client(proxy.port) as hive:
        hive.get_all_databases()
        with pytest.raises(BROKEN):
            hive.create_database(Database(name=name, description="", parameters={}))
    assert proxy.fired == [("create_database", fault)]
    with client(metastore.port) as direct:
        assert (name in direct.get_all_databases()) is happened
    with client(proxy.port) as hive:
        assert (name in hive.get_all_databases()) is happened


def test_a_delayed_reply_comes_late_and_whole(proxy: ThriftProxy) -> None:
    proxy.fail_next("get_all_databases", Fault.DELAY_REPLY, seconds=0.5)
    with client(proxy.port) as hive:
        began = time.monotonic()
        assert "default" in hive.get_all_databases()
        assert time.monotonic() - began >= 0.5
        assert "default" in hive.get_all_databases()


def test_a_stalled_call_times_out_at_the_client(proxy: ThriftProxy) -> None:
    proxy.fail_next("*", Fault.STALL)
    connection = TSocket.TSocket("127.0.0.1", proxy.port)
    connection.setTimeout(500)
    transport = TTransport.TBufferedTransport(connection)
    with (
        HMSClient(iprot=TBinaryProtocol(transport)) as hive,
        pytest.raises(TTransportException) as timeout,
    ):
        hive.get_all_databases()
    assert timeout.value.type == TTransportException.TIMED_OUT
    wait_until(lambda: proxy.open_connections == 0)


def test_disconnect_cuts_idle_connections(proxy: ThriftProxy) -> None:
    with client(proxy.port) as hive:
        hive.get_all_databases()
        proxy.disconnect()
        assert proxy.open_connections == 0
        with pytest.raises(BROKEN):
            hive.get_all_databases()
