"""Every operation of the namespace while the wire to a real metastore breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from lance_namespace.errors import (
    ServiceUnavailableError,
)
from servers.proxy import Fault, ThriftProxy

from lance_bridge.testing.calls import Calls

from .conftest import open_calls

pytestmark = pytest.mark.server


@pytest.fixture
def broken(proxy: ThriftProxy) -> Iterator[Calls]:
    """A namespace behind the proxy, with short limits."""
    properties = {"client.timeout": "3", "client.retry-timeout": "3"}
    with open_calls(uri=proxy.uri, **properties) as connected:
        connected.all_namespaces([])
        yield connected


READS: dict[str, Callable[[Calls, str], object]] = {
    "get_all_databases": lambda ns, _: ns.all_namespaces([]),
    "get_database": lambda ns, db: ns.describe_namespace([db]),
    "get_table_names_by_filter": lambda ns, db: ns.list_tables([db]),
    "get_table_req": lambda ns, db: ns.describe_table([db, "t"]),
}


@pytest.mark.parametrize("call", READS)
def test_a_read_that_is_never_answered_ends_in_service_unavailable(
    proxy: ThriftProxy, calls: Calls, database: str, call: str
) -> None:
    calls.declare_table([database, "t"])
    impatient = {"client.timeout": "0.5", "client.retry-timeout": "1"}
    with open_calls(uri=proxy.uri, **impatient) as connected:
        proxy.fail_next(call, Fault.STALL, times=100)
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError, match=call):
            READS[call](connected, database)
        assert time.monotonic() - started < 10


def test_a_stalled_reply_is_never_given_to_another_question(
    broken: Calls, proxy: ThriftProxy, database: str
) -> None:
    names = [f"t{number}" for number in range(8)]
    places = {name: broken.declare_table([database, name]).location for name in names}
    proxy.fail_next("get_table_req", Fault.DELAY_REPLY, times=5, seconds=4)
    wrong: list[str] = []

    def ask(name: str) -> None:
        for _ in range(20):
            try:
                found = broken.describe_table([database, name]).location
            except ServiceUnavailableError:
                continue
            if found != places[name]:
                wrong.append(f"{name}: {found}")

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert proxy.fired


def test_listing_makes_one_call_and_describing_one(
    broken: Calls, proxy: ThriftProxy, database: str
) -> None:
    for number in range(3):
        broken.declare_table([database, f"t{number}"])
    proxy.reset()
    assert broken.all_tables([database]) == ["t0", "t1", "t2"]
    broken.describe_table([database, "t1"])
    assert dict(proxy.calls) == {"get_table_names_by_filter": 1, "get_table_req": 1}
    assert proxy.connections == 0
