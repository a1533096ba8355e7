"""The service's process, as the Java part talks to it: messages in, messages out, and its end."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

LENGTH = struct.Struct(">i")
SECONDS = 60


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "lance_bridge_spark.sql.driver_service"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as started:
        assert receive(started) == {"ready": True}
        yield started
        started.kill()


def send(process: subprocess.Popen[bytes], fields: dict[str, Any]) -> None:
    text = json.dumps(fields).encode()
    assert process.stdin is not None
    process.stdin.write(LENGTH.pack(len(text)) + text + LENGTH.pack(0))
    process.stdin.flush()


def receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    [size] = LENGTH.unpack(process.stdout.read(LENGTH.size))
    fields: dict[str, Any] = json.loads(process.stdout.read(size))
    assert process.stdout.read(LENGTH.size) == LENGTH.pack(0)
    return fields


def test_calls_are_announced_and_answered_until_the_driver_ends(
    process: subprocess.Popen[bytes],
) -> None:
    catalog = {"name": "c", "properties": {"impl": "no.such.Catalog"}}
    for number in (1, 2):
        send(process, {"id": number, "op": "list_tables", "args": {}, "catalog": catalog})
        assert receive(process) == {"id": number, "begun": True}
        answer = receive(process)
        assert answer["id"] == number
        assert answer["error"]["code"] in (0, 13)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(SECONDS) == 0
