"""What processes of queries run in tests: faults that a fault of native code would cause."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import lance_bridge
from lance_bridge.credentials import CALLER
from lance_bridge.table import ON_OPEN
from lance_bridge_federated import FederatedNamespace


def lake(root: str) -> FederatedNamespace:
    """Connect a federation with a directory as its catalog. A process imports only this module."""
    return FederatedNamespace({"lake": lance_bridge.connect("dir", root=root)})


def crash(_namespace: Any, _request: Any) -> None:
    """End the process as a fault of native code does."""
    ctypes.string_at(0)


def fill_memory(_namespace: Any, _request: Any) -> None:
    """Take memory until the process is ended."""
    kept = []
    while True:
        kept.append(b"x" * (16 << 20))
        time.sleep(0.01)


def use_processor(_namespace: Any, _request: Any) -> None:
    """Compute without an end."""
    while True:
        pass


def compute(_namespace: Any, _request: Any, seconds: float) -> tuple[int, set[int]]:
    """Open a table, as it seems, and compute: the process and its threads' priorities."""
    ON_OPEN.get()()
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    threads = map(int, os.listdir("/proc/self/task"))
    return os.getpid(), {os.getpriority(os.PRIO_PROCESS, each) for each in threads}


def sleep(_namespace: Any, _request: Any, mark: str = "") -> None:
    """Wait without an end. Args: mark: A file that says that it began."""
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(3600)


def process_id(_namespace: Any, _request: Any) -> int:
    """Return the number of the process."""
    return os.getpid()


def caller(_namespace: Any, _request: Any) -> tuple[str, bool, bool]:
    """Return the principal, and whether it may have credentials to read and to write."""
    found = CALLER.get()
    assert found is not None
    return found.principal, found.allows(False), found.allows(True)


def fail_after_rows(_namespace: Any, _request: Any) -> pa.RecordBatchReader:
    """Return rows, the third batch of which fails."""
    schema = pa.schema([("id", pa.int64())])

    def batches() -> Any:
        for number in range(2):
            yield pa.record_batch([[number]], schema=schema)
        raise ValueError("The third batch cannot be read")

    return pa.RecordBatchReader.from_batches(schema, batches())


def endless_rows(_namespace: Any, _request: Any) -> pa.RecordBatchReader:
    """Return rows without an end."""
    schema = pa.schema([("id", pa.dictionary(pa.int8(), pa.string()))])
    batch = pa.record_batch([pa.array(["a"] * 10_000).dictionary_encode()], names=["id"])
    batch = batch.cast(schema)

    def batches() -> Any:
        while True:
            yield batch

    return pa.RecordBatchReader.from_batches(schema, batches())


def large_values(_namespace: Any, _request: Any, dtype: pa.DataType) -> pa.RecordBatchReader:
    """Return one batch of 64 MiB of a type of texts."""
    texts = [chr(97 + number % 26) * (1 << 20) for number in range(64)]
    batch = pa.record_batch({"id": range(64), "text": pa.array(texts).cast(dtype)})
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


_KEPT: list[bytes] = []


def hold_memory(
    _namespace: Any, _request: Any, size: int, until: Path, is_kept: bool = False
) -> int:
    """Take ``size`` bytes until a file appears, and return the number of the process.

    Args:
        until: The file. One with the same name and ``.N`` says that process N has the memory.
        is_kept: Whether the process still has it after this query.
    """
    held = b"x" * size
    until.with_name(f"{until.name}.{os.getpid()}").touch()
    while not until.exists():
        time.sleep(0.02)
    if is_kept:
        _KEPT.append(held)
    return os.getpid()
