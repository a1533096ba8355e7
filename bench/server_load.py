"""How many descriptions a second 32 connections get, and the CPU time of the server for one.

The metastore, the server and the clients, which are threads of this process, share the machine: a
share of the raw client's rate is one of all their CPU time.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow as pa
import yaml

from bench import catalogs
from bench.processes import cpu_seconds
from bench.runner import Row, make_row, show_progress

_CONNECTIONS, _TABLES = 32, 32
_ROUNDS = 3
_RATE_BARS = {"share": ">= 0.8"}
_CPU_BARS = {"gateway_cpu_ms": "<= 1.2"}
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ADAPTER = """
import sys
sys.path[:0] = sys.argv[2:]
import lance.namespace as namespace
adapter = namespace.RestAdapter("dir", {"root": sys.argv[1]}, host="127.0.0.1", port=0)
adapter.start()
print(f"http://127.0.0.1:{adapter.port}", flush=True)
sys.stdin.read()
"""
"""Its address is printed; it ends with its standard input."""

Describe = Callable[[str], None]
"""Describes a table by its name, on a connection of its own."""
Connect = Callable[[], AbstractContextManager[Describe]]


def measure_load(seconds: float) -> list[Row]:
    """Measure the gateway on a metastore and on a directory.

    Args:
        seconds: How long each way takes in each of three rounds.
    """
    with ExitStack() as stack:
        show_progress("starting a metastore and servers for many connections …")
        catalog = stack.enter_context(catalogs.hive("3.1", _TABLES, 2, lance_share=1))
        catalog.fill()
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="lance-bridge-load-")))
        lance.write_dataset(pa.table({"id": [1]}), str(directory / "lake" / "t.lance"))
        entries = {"hive": {"impl": "hive", **catalog.properties, "root": catalog.root}}
        entries["lake"] = {"impl": "dir", "root": str(directory / "lake")}
        file = directory / "server.yaml"
        file.write_text(yaml.safe_dump({"catalogs": entries, "listeners": [{"port": 0}]}))
        program = str(Path(sys.executable).with_name("lance-bridge"))
        gateway, pid = stack.enter_context(served([program, "serve", "--config", str(file)]))
        adapter, other = stack.enter_context(adapter_of(directory / "lake"))
        show_progress("measuring many connections …")
        hive = partial(_http, gateway, f"hive${catalogs.NAMESPACE}$")
        names = catalog.lance_names
        rows = [
            _rates("of 32 tables", hive, partial(_raw, catalog), names, seconds),
            _rates("of one table", hive, partial(_raw, catalog), names[:1], seconds),
        ]
        lake, plain = partial(_http, gateway, "lake$"), partial(_http, adapter, "")
        return [*rows, _cpu(partial(_cpu_of, lake, pid), partial(_cpu_of, plain, other), seconds)]


def _rates(name: str, gateway: Connect, raw: Connect, tables: list[str], seconds: float) -> Row:
    """Measure descriptions a second by both ways, in turns."""
    found = [[_rate(each, tables, seconds) for each in (gateway, raw)] for _ in range(_ROUNDS)]
    rate, raw_rate = map(statistics.median, zip(*found, strict=True))
    figures: Row = {"gateway_per_s": round(rate), "raw_per_s": round(raw_rate)}
    figures["share"] = rate / raw_rate
    return make_row({"descriptions": name, **figures}, _RATE_BARS, 0)


def _cpu(gateway: Callable[..., float], adapter: Callable[..., float], seconds: float) -> Row:
    found = [[each(seconds) for each in (gateway, adapter)] for _ in range(_ROUNDS)]
    gateway_cpu, adapter_cpu = map(statistics.median, zip(*found, strict=True))
    figures = {"gateway_cpu_ms": gateway_cpu * 1000, "adapter_cpu_ms": adapter_cpu * 1000}
    return make_row({"descriptions": "on a directory", **figures}, _CPU_BARS, 0)


def _cpu_of(connect: Connect, pid: int, seconds: float) -> float:
    """Return the CPU seconds of a server for one description, one after the other."""
    with connect() as describe:
        describe("t")
        before, end, count = cpu_seconds(pid), time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            describe("t")
            count += 1
        return (cpu_seconds(pid) - before) / count


def _rate(connect: Connect, tables: Sequence[str], seconds: float) -> float:
    """Return how many descriptions a second all connections get together."""
    counts, failures = [0] * _CONNECTIONS, list[BaseException]()
    ready = threading.Barrier(_CONNECTIONS, timeout=60)

    def run(number: int) -> None:
        try:
            with connect() as describe:
                describe(tables[0])
                ready.wait()
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    describe(tables[(number + counts[number]) % len(tables)])
                    counts[number] += 1
        except BaseException as error:
            failures.append(error)
            ready.abort()
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(_CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
    return sum(counts) / seconds


@contextmanager
def _raw(catalog: Any) -> Iterator[Describe]:
    with catalog.open_client() as client:
        yield partial(catalog.describe_table, client)


@contextmanager
def _http(url: str, path: str) -> Iterator[Describe]:
    """Describe over one HTTP connection. A client library takes more CPU than the server does."""
    host, _, port = url.removeprefix("http://").partition(":")
    with closing(socket.create_connection((host, int(port)), timeout=60)) as connection:

        def describe(table: str) -> None:
            head = f"POST /v1/table/{path}{table}/describe HTTP/1.1\r\nHost: localhost\r\n"
            body = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            connection.sendall((head + body).encode())
            _require_ok(connection)

        yield describe


def _require_ok(connection: socket.socket) -> None:
    """Read a response, which must have status 200."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length is None or b" 200 " not in head[:20]:
        raise RuntimeError(f"The server answered {head!r} {body!r}")
    missing = int(length[1]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(missing))


@contextmanager
def adapter_of(directory: Path, *packages: Path) -> Iterator[tuple[str, int]]:
    """Run pylance's RestAdapter of a directory; yield its URL and process id.

    Args:
        packages: A directory that has another copy of pylance.
    """
    with served([sys.executable, "-c", _ADAPTER, *map(str, (directory, *packages))]) as server:
        yield server


@contextmanager
def served(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run a server, which prints its address first; yield its URL and process id."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)
