"""The Python processes of the driver and of executors: what goes over their connections."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lance_bridge_spark.channel import Channel
from lance_bridge_spark.source import scan_service
from lance_bridge_spark.source.worker_calls import spark_call
from lance_bridge_spark.sql import driver_service

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "spark.md#the-python-process-of-an-executor", "spark.md#the-python-process-of-the-driver"
    ),
]

# -- the driver's ----------------------------------------------------------------------------------

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


# -- an executor's ---------------------------------------------------------------------------------

SCHEMA = StructType([StructField("id", LongType()), StructField("s", StringType())])
ROWS = 3000
ended = threading.Event()


def _batch(number: int) -> pa.RecordBatch:
    texts = [None if at % 7 == 0 else "x" * (at % 50) for at in range(ROWS)]
    return pa.record_batch([pa.array([number] * ROWS), pa.array(texts)], names=["id", "s"])


def read_some(partitions: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read what the partition says: so many batches, or an error after two."""
    [partition] = partitions
    wanted = partition.column(0)[0].as_py()
    try:
        with spark_call():
            for number in range(2 if wanted == b"error" else int(wanted)):
                yield _batch(number)
            if wanted == b"error":
                raise InvalidInputError("a value that cannot be")
    finally:
        ended.set()


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    ended.clear()
    thread = threading.Thread(target=scan_service.answer, args=(theirs,))
    thread.start()
    with ours:
        yield ours
    thread.join(SECONDS)
    assert not thread.is_alive()


def _call(connection: socket.socket, partition: bytes) -> tuple[Channel, Any]:
    source = connection.makefile("rb")
    channel = Channel(source, connection.makefile("wb"))
    channel.write({}, [pickle.dumps((read_some, SCHEMA)), partition])
    return channel, source


def test_all_batches_come_and_a_message_ends_them(connection: socket.socket) -> None:
    channel, source = _call(connection, b"40")
    assert channel.read() == ({}, [])
    found = pa.ipc.open_stream(source).read_all()
    assert found.equals(pa.Table.from_batches([_batch(number) for number in range(40)]))
    assert channel.read() == ({}, [])


def test_an_error_follows_the_batches_before_it(connection: socket.socket) -> None:
    channel, source = _call(connection, b"error")
    assert channel.read() == ({}, [])
    assert pa.ipc.open_stream(source).read_all().num_rows == 2 * ROWS
    fields, _ = channel.read()
    assert fields == {"error": {"code": 13, "message": "a value that cannot be"}}


def test_a_call_that_cannot_be_read_is_an_error(connection: socket.socket) -> None:
    channel = Channel(connection.makefile("rb"), connection.makefile("wb"))
    channel.write({}, [b"no pickle", b"1"])
    fields, _ = channel.read()
    assert fields["error"]["code"] == 18


def test_a_task_that_has_read_enough_ends_the_scan(connection: socket.socket) -> None:
    channel, source = _call(connection, b"1000000")
    assert channel.read() == ({}, [])
    assert pa.ipc.open_stream(source).read_next_batch().num_rows == ROWS
    connection.shutdown(socket.SHUT_RDWR)
    assert ended.wait(SECONDS)


@pytest.mark.servers
def test_only_the_owner_may_connect_and_the_socket_goes_with_the_process() -> None:
    command = [sys.executable, "-m", "lance_bridge_spark.source.scan_service"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        streams = cast("BinaryIO", process.stdout), cast("BinaryIO", process.stdin)
        fields, _ = Channel(*streams).read()
        path = Path(fields["socket"])
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    assert not path.parent.exists()
