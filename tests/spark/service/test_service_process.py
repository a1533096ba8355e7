"""The service as the Java part talks to it: messages in, messages out, and the driver's end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lance_bridge_spark.channel import Channel
from lance_bridge_spark.sql import driver_service

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#the-python-process-of-the-driver")]

SECONDS = 60


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, Future[int]]]:
    """The driver's end of a connection to the service, and the exit code that it will have."""
    ours, theirs = socket.socketpair()
    channel = Channel(theirs.makefile("rb"), theirs.makefile("wb"))
    codes: list[int] = []
    monkeypatch.setattr(driver_service, "open_standard_channel", lambda: channel)
    # What it does to its whole process would be done to that of the tests.
    monkeypatch.setattr(driver_service, "freeze_imports", lambda: None)
    monkeypatch.setattr("os._exit", codes.append)

    def main() -> int:
        driver_service.main()
        return codes.pop()

    with theirs, ThreadPoolExecutor(1) as thread, ours:
        yield ours, thread.submit(main)


def test_calls_are_announced_and_answered_until_the_driver_ends(
    service: tuple[socket.socket, Future[int]],
) -> None:
    driver, code = service
    channel = Channel(driver.makefile("rb"), driver.makefile("wb"))
    assert channel.read() == ({"ready": True}, [])
    catalog = {"name": "c", "properties": {"impl": "no.such.Catalog"}}
    for number in (1, 2):
        channel.write({"id": number, "op": "list_tables", "args": {}, "catalog": catalog})
        assert channel.read() == ({"id": number, "begun": True}, [])
        answer, parts = channel.read()
        assert answer["id"] == number
        assert answer["error"]["code"] in (0, 13)
        assert parts == []
    driver.shutdown(socket.SHUT_WR)
    assert code.result(SECONDS) == 0
