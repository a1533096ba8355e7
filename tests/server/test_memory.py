"""Memory of the server: while rows go through it, a part of them; and with idle connections."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest
from server.authenticated import LIST, children, serve
from server.gateway_process import GatewayProcess
from server.http_requests import ARROW, dial, done, head
from servers.metastores import Metastores
from servers.processes import memory

from lance_bridge_hive import HiveNamespace
from lance_bridge_server.process.listening import raise_file_limit

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#memory-and-speed")]

PEAK_BYTES = 450 << 20
"""405 MiB were measured, in a query of 20 GiB on a busy machine."""
_BATCH_ROWS = 8192
_DIMENSIONS = 128
_ROW_BYTES = 8 + 4 * _DIMENSIONS
_KEY_BYTES = 80
"""What a merge holds of each row of the table: its key and where it is, in a hash table."""
_ID = "memory$t"


@pytest.fixture
def gateway(metastores: Metastores, tmp_path: Path) -> Iterator[GatewayProcess]:
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri, root=f"{tmp_path}/root") as namespace:
        request = api.CreateNamespaceRequest(id=["memory"], mode="exist_ok")
        namespace.create_namespace(request)
        options = ["-c", f"prod=hive:uri={uri}", "-p", f"prod.root={tmp_path}/root"]
        with GatewayProcess(tmp_path / "log", *options, "--root", "prod") as process:
            yield process
        namespace.drop_table(api.DropTableRequest(id=["memory", "t"]))
    shutil.rmtree(tmp_path / "root", ignore_errors=True)


@pytest.mark.parametrize(
    ("size", "compression"),
    [
        pytest.param(200 << 20, None, id="200 MiB"),
        pytest.param(1 << 30, None, id="1 GiB", marks=pytest.mark.slow),
        pytest.param(1 << 30, "zstd", id="1 GiB, zstd", marks=pytest.mark.slow),
        pytest.param(1 << 30, "lz4", id="1 GiB, lz4", marks=pytest.mark.slow),
        pytest.param(
            10 << 30, None, id="10 GiB", marks=[pytest.mark.slow, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_rows_go_through_in_bounded_memory(
    gateway: GatewayProcess, size: int, compression: str | None
) -> None:
    batches = size // (_BATCH_ROWS * _ROW_BYTES)
    peaks = {}
    with httpx.Client(base_url=f"{gateway.url}/v1/table/{_ID}", timeout=3600) as http:

        def send(path: str, first: int) -> None:
            body = stream(batches, first, compression)
            done(http.post(path, content=body, headers={"content-type": ARROW}))

        send("/create", 0)
        peaks["create"] = peak(gateway)
        send("/insert", batches * _BATCH_ROWS)
        peaks["insert"] = peak(gateway)
        count = 2 * batches * _BATCH_ROWS
        assert done(http.post("/count_rows")) == count
        assert count_rows(http) == count
        peaks["query"] = peak(gateway)
        send("/merge_insert?on=id&when_matched_update_all=true", 0)
        peaks["merge"] = peak(gateway)
        assert done(http.post("/count_rows")) == count
    print({name: f"{value / 1e6:.0f} MB" for name, value in peaks.items()})
    assert max(peaks[name] for name in ("create", "insert", "query")) < PEAK_BYTES
    assert peaks["merge"] < PEAK_BYTES + count * _KEY_BYTES


def stream(batches: int, first: int, compression: str | None) -> Iterator[bytes]:
    """Yield rows as an Arrow IPC stream, with keys from the first on."""
    sink = Chunks()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    random = np.random.default_rng(1)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        for number in range(batches):
            start = first + number * _BATCH_ROWS
            values = random.random(_BATCH_ROWS * _DIMENSIONS, dtype=np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), _DIMENSIONS)
            ids = pa.array(range(start, start + _BATCH_ROWS), pa.int64())
            writer.write_batch(pa.record_batch([ids, vectors], schema=SCHEMA))
            yield sink.take()
    yield sink.take()


SCHEMA = pa.schema(
    [pa.field("id", pa.int64()), pa.field("vector", pa.list_(pa.float32(), _DIMENSIONS))]
)


class Chunks(io.BytesIO):
    """A file whose content is taken out as it is written."""

    def take(self) -> bytes:
        taken = self.getvalue()
        self.seek(0)
        self.truncate()
        return taken


def count_rows(http: httpx.Client) -> int:
    """Count the rows of an answer that has all of them, and hold none."""
    query = {"vector": {}, "k": 0}
    headers = {"user-agent": "LanceDB-Test"}  # which takes a stream, and no file
    with http.stream("POST", "/query", json=query, headers=headers) as answer:
        assert answer.status_code == 200
        body = io.BufferedReader(Body(answer.iter_raw(1 << 20)), 1 << 20)
        with pa.ipc.open_stream(body) as reader:
            return sum(batch.num_rows for batch in reader)


class Body(io.RawIOBase):
    """The parts of an answer as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or next(self._parts, b"")
        count = min(len(buffer), len(data))
        buffer[:count], self._rest = data[:count], data[count:]
        return count


def peak(gateway: GatewayProcess) -> int:
    """Return the largest resident memory that a server has had, in bytes, and begin again."""
    found = memory(gateway.pid, peak=True)
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")
    return found


@pytest.mark.spec("server.md#request-limits")
def test_a_thousand_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    raise_file_limit()
    with serve("-c", f"files=dir:root={tmp_path}", "--port", "0") as served, ExitStack() as stack:
        pid = served.process.pid
        assert children(served.url) == ["files"]
        before = memory(pid)
        for number in range(1000):
            connection = stack.enter_context(dial(served.url))
            connection.sendall(head(LIST)[: number % 20])
        assert children(served.url) == ["files"]
        assert memory(pid) - before < 100 << 20
