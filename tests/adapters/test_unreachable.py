"""A catalog whose port is closed: what is logged at once, for the three adapters alike."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping

import pytest
from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import LanceNamespaceError
from servers.metastores import read
from servers.processes import free_port

import lance_bridge
from lance_bridge.config import load
from lance_bridge_hive import HiveConfig
from lance_bridge_hive.transport import ClientPool

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#lost-replies", "hive.md#connections")]

CLOSED = free_port()
PROPERTIES: dict[str, dict[str, str]] = {
    "hive": {"uri": f"thrift://127.0.0.1:{CLOSED}", "client.retry-timeout": "0.5"},
    "glue": {
        "endpoint": f"http://127.0.0.1:{CLOSED}",
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
        "max_retries": "1",
    },
    "unity": {"host": f"http://127.0.0.1:{CLOSED}", "max_retries": "2"},
}
LOGGED = {
    "hive": "trying again for up to 0.5 s (client.retry-timeout)",
    "glue": "trying again up to 1 times, for up to 6 s (max_retries, client.connect-timeout)",
    "unity": "trying again up to 2 times, for up to 20 s (max_retries, retry_timeout)",
}
TURNED_OFF = {"hive": {"client.retry-timeout": "0"}, "glue": {"max_retries": "0"}}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("DATABRICKS_HOST", raising=False)


def warnings_of(
    impl: str, properties: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> tuple[list[logging.LogRecord], float]:
    """Ask a catalog that cannot be reached; return what was logged, and when it was asked."""
    namespace = lance_bridge.connect(impl, dict(properties))
    started = time.time()
    with caplog.at_level(logging.WARNING), pytest.raises(LanceNamespaceError):
        namespace.list_namespaces(ListNamespacesRequest())
    return [each for each in caplog.records if each.name.startswith("lance_bridge")], started


@pytest.mark.parametrize("impl", PROPERTIES)
def test_a_closed_port_is_logged_at_once_and_once_with_the_property_that_limits_the_wait(
    impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    [record], started = warnings_of(impl, PROPERTIES[impl], caplog)
    assert record.created - started < 2
    assert LOGGED[impl] in record.getMessage()
    assert str(CLOSED) in record.getMessage()


@pytest.mark.parametrize("impl", TURNED_OFF)
def test_nothing_is_logged_where_nothing_is_tried_again(
    impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(impl, {**PROPERTIES[impl], **TURNED_OFF[impl]}, caplog)[0] == []


def test_a_host_that_drops_what_is_sent_is_logged_before_the_connection_times_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        # Linux answers no further connection where the queue of those to accept is full.
        first = socket.create_connection(server.getsockname())
        port = server.getsockname()[1]
        properties = {"client.connect-timeout": "2", "client.retry-timeout": "0"}
        uri = f"thrift://127.0.0.1:{port}"
        pool = ClientPool(load(HiveConfig, "hive", {"uri": uri, **properties}))
        started = time.time()
        with (
            first,
            caplog.at_level(logging.WARNING),
            pytest.raises(LanceNamespaceError, match=r"in 2\.\d s: .*timed out"),
        ):
            read(pool)
    [record] = [each for each in caplog.records if each.name.startswith("lance_bridge_hive")]
    assert record.created - started < 1.9
    assert f"127.0.0.1:{port} has not answered for 1.5 s" in record.getMessage()
    assert "up to 2 s for a connection (client.connect-timeout)" in record.getMessage()
