"""The proxy counts what goes over the wire, and breaks only what a rule names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore.ttypes import Database
from thrift.transport.TTransport import TTransportException

from lance_bridge_metastore import Metastore
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy

BROKEN = (TTransportException, EOFError, OSError)
"""What a client sees when its connection goes; which of them depends on the moment."""

pytestmark = pytest.mark.servers


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("2.3")


@pytest.fixture
def proxy(metastore: Metastore) -> Iterator[ThriftProxy]:
    with ThriftProxy("127.0.0.1", metastore.port) as running:
        yield running


def client(port: int) -> HMSClient:
    return HMSClient(host="127.0.0.1", port=port)


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
