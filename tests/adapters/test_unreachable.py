"""A catalog whose port is closed: what is logged at once, for the three adapters alike."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Mapping

import pytest
from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from servers.metastores import read
from servers.processes import free_port

import lance_bridge
from lance_bridge.attempts import one_attempt
from lance_bridge.config import load
from lance_bridge_hive import HiveConfig
from lance_bridge_hive.client import ClientPool

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


MESSAGES = {
    "hive": r"The metastore did not respond within \d\.\d s: thrift://127.0.0.1:{port}: connection "
    "refused. Try again, or check that it runs and that uri has its address",
    "glue": r"Glue could not be reached to list .*/127.0.0.1:{port}/\". Try again, or check region "
    "and endpoint",
    "unity": "Unity Catalog could not be reached to list .*: http://127.0.0.1:{port}: Connection "
    "refused. Try again, or check that it runs and that host has its address",
}


@pytest.mark.parametrize("impl", PROPERTIES)
def test_the_message_is_a_sentence_with_the_address_and_what_to_do(impl: str) -> None:
    namespace = lance_bridge.connect(impl, dict(PROPERTIES[impl]))
    with pytest.raises(ServiceUnavailableError) as caught:
        namespace.list_namespaces(ListNamespacesRequest())
    assert re.fullmatch(MESSAGES[impl].format(port=CLOSED), str(caught.value))


@pytest.mark.parametrize("impl", PROPERTIES)
def test_a_caller_that_tries_again_itself_has_its_error_at_once(
    impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {**PROPERTIES[impl], "max_retries": "9"}
    if impl == "hive":
        properties = {**PROPERTIES[impl], "client.retry-timeout": "60"}
    namespace = lance_bridge.connect(impl, properties)
    started = time.monotonic()
    with (
        caplog.at_level(logging.WARNING),
        one_attempt(30),
        pytest.raises(ServiceUnavailableError),
    ):
        namespace.list_namespaces(ListNamespacesRequest())
    assert time.monotonic() - started < 5
    assert [each for each in caplog.records if each.name.startswith("lance_bridge")] == []


@pytest.mark.parametrize("impl", PROPERTIES)
def test_its_attempt_ends_in_time_also_if_the_server_hangs(impl: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = str(server.getsockname()[1])
        properties = {k: v.replace(str(CLOSED), port) for k, v in PROPERTIES[impl].items()}
        namespace = lance_bridge.connect(impl, properties)
        started = time.monotonic()
        with one_attempt(0.5), pytest.raises(ServiceUnavailableError):
            namespace.list_namespaces(ListNamespacesRequest())
        assert time.monotonic() - started < 5


def test_its_attempt_needs_no_free_connection_of_the_pool() -> None:
    """All of them may be waiting for replies that never come."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        properties = {"client.pool-size": "1", "client.timeout": "8", "client.retry-timeout": "0"}
        pool = ClientPool(load(HiveConfig, "hive", {"uri": uri, **properties}))
        hanging = threading.Thread(target=_read_in_vain, args=(pool,))
        hanging.start()
        first, _ = server.accept()
        with one_attempt(0.5), pytest.raises(ServiceUnavailableError, match=r"within 0\.\d+ s"):
            read(pool)
        first.close()
        hanging.join()


def _read_in_vain(pool: ClientPool) -> None:
    with pytest.raises(ServiceUnavailableError):
        read(pool)


@pytest.mark.parametrize("impl", TURNED_OFF)
def test_nothing_is_logged_where_nothing_is_tried_again(
    impl: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(impl, {**PROPERTIES[impl], **TURNED_OFF[impl]}, caplog)[0] == []


def test_its_attempt_waits_for_a_connection_for_half_of_its_time() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)  # as below
        first = socket.create_connection(server.getsockname())
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        pool = ClientPool(load(HiveConfig, "hive", {"uri": uri}))
        started = time.monotonic()
        with first, one_attempt(4), pytest.raises(ServiceUnavailableError, match="timed out"):
            read(pool)
        assert 1.9 < time.monotonic() - started < 3.5


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
            pytest.raises(LanceNamespaceError, match=r"within 2\.\d s: .*timed out"),
        ):
            read(pool)
    [record] = [each for each in caplog.records if each.name.startswith("lance_bridge_hive")]
    assert record.created - started < 1.9
    assert f"127.0.0.1:{port} has not answered for 1.5 s" in record.getMessage()
    assert "up to 2 s for a connection (client.connect-timeout)" in record.getMessage()
