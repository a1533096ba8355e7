"""The gateway, compared with pylance's RestAdapter on a directory, and with direct calls.

Starts a Hive Metastore, and a gateway and an adapter in processes of their own. Describe, insert
and query go through pylance's own client, in turns. Requests a second are asked over many plain
connections at once, of one process that does nothing else: it takes time of the same processors.
The adapter takes no body above 2 MiB, so that its rows are sent in as many requests as they need.
Missed bars are reported only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import yaml
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client.models import QueryTableRequestVector

from bench.runner import (
    Bar,
    Operation,
    at_least,
    make_report,
    make_row,
    operation_row,
    request,
    show_progress,
    take_turns,
)
from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import RELEASES, Metastore

DESCRIBE_BAR = Bar("added_ms", "<=", 1.5)
RATE_BAR = Bar("ratio", ">=", 0.33)
ROWS_BAR = Bar("to_adapter", "<", 1)
MEMORY_BAR = Bar("grown_mb", "<=", 10)
_CONNECTIONS_PER_CORE = 32
_ADAPTER_BODY = 1_900_000
_DATABASE = "bench"
_SMALL, _LARGE, _INTO = "small", "large", "into"
_DIMENSIONS = 128
_ADAPTER = """
import sys, lance.namespace as namespace
adapter = namespace.RestAdapter("dir", {"root": sys.argv[1]}, host="127.0.0.1", port=0)
adapter.start()
print(f"http://127.0.0.1:{adapter.port}", flush=True)
sys.stdin.read()
"""
"""Its address is printed; it ends with its standard input."""


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rounds", type=at_least(1), default=200, help="of describe")
    parser.add_argument("--transfers", type=at_least(1), default=5, help="of all rows")
    parser.add_argument("--megabytes", type=at_least(2), default=100, help="of rows")
    parser.add_argument("--seconds", type=at_least(1), default=5, help="of each burst of requests")
    parser.add_argument("--requests", type=at_least(100), default=100_000, help="for memory")
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure operations, requests a second and memory."""
    cores = os.cpu_count() or 1
    show_progress("starting the servers, writing the rows …")
    with servers(options.version, make_rows(options.megabytes), cores) as bench:
        show_progress("measuring operations …")
        operations = measure_operations(bench, options.rounds, options.transfers)
        show_progress("measuring requests a second …")
        rates = [measure_rate(bench, cores * _CONNECTIONS_PER_CORE, options.seconds)]
        show_progress("measuring memory …")
        memory = [measure_memory(bench, options.requests)]
    facts = {"catalog": f"Hive Metastore {options.version}", "megabytes": options.megabytes}
    tables = {"operations": operations, "rates": rates, "memory": memory}
    return make_report({**facts, "cores": cores}, tables)


@dataclass
class Bench:
    """The servers, and clients of them."""

    direct: HiveNamespace
    gateway_url: str
    gateway: subprocess.Popen[str]
    adapter_url: str
    rows: pa.Table

    def client(self, url: str) -> Any:
        return RestNamespace(uri=url)  # type: ignore[no-untyped-call]  # pylance has no types


def make_rows(megabytes: int) -> pa.Table:
    """Return rows with vectors."""
    count = megabytes * 1_000_000 // (_DIMENSIONS * 4 + 8)
    vectors = np.random.default_rng(1).random(count * _DIMENSIONS, dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors), _DIMENSIONS)
    return pa.table({"id": pa.array(range(count), pa.int64()), "vector": column})


@contextmanager
def servers(version: str, rows: pa.Table, workers: int) -> Iterator[Bench]:
    """Start everything, with a small and a large table and an empty one in each catalog."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="lance-bridge-server-"))
        directory = Path(name)
        metastore = stack.enter_context(Metastore(version, directory / "hms"))
        root = f"{directory}/root"
        hive = stack.enter_context(HiveNamespace(uri=metastore.uri, root=root))
        request(hive, "create_namespace", id=[_DATABASE])
        for table, content in _contents(rows).items():
            request(hive, "create_table", ipc(content), id=[_DATABASE, table])
            lance.write_dataset(content, f"{directory}/adapter/{table}.lance")
        config = directory / "server.yaml"
        catalog = {"impl": "hive", "uri": metastore.uri, "root": root}
        listeners = [{"port": 0}]
        content = {"catalogs": {"hive": catalog}, "root": "hive", "listeners": listeners}
        config.write_text(yaml.safe_dump({**content, "workers": workers}))
        command = [str(Path(sys.executable).with_name("lance-bridge")), "serve"]
        gateway, gateway_url = stack.enter_context(_process([*command, "--config", str(config)]))
        adapter = [sys.executable, "-c", _ADAPTER, f"{directory}/adapter"]
        _, adapter_url = stack.enter_context(_process(adapter))
        yield Bench(hive, gateway_url, gateway, adapter_url, rows)


def _contents(rows: pa.Table) -> dict[str, pa.Table]:
    return {_SMALL: rows.slice(0, 10), _LARGE: rows, _INTO: rows.slice(0, 0)}


@contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a server; yield it with its address, which it prints first."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


# -- operations ------------------------------------------------------------------------------------


def measure_operations(bench: Bench, rounds: int, transfers: int) -> list[dict[str, Any]]:
    """Describe, insert and query, through the gateway, directly, and through the adapter."""
    gateway, adapter = bench.client(bench.gateway_url), bench.client(bench.adapter_url)
    data, pieces = ipc(bench.rows), _pieces(bench.rows)

    def describe(client: Any, table_id: list[str]) -> Any:
        return request(client, "describe_table", id=table_id).location

    def insert(client: Any, table_id: list[str], bodies: Sequence[bytes]) -> bool:
        for body in bodies:
            request(client, "insert_into_table", body, id=table_id)
        return True

    def query(client: Any, table_id: list[str]) -> int:
        vector = QueryTableRequestVector()
        found = client.query_table(api.QueryTableRequest(id=table_id, k=0, vector=vector))
        content = found if isinstance(found, bytes) else found.data
        return int(pa.ipc.open_file(content).read_all().num_rows)

    def ways(call: Any, table: str, more: dict[str, Any]) -> dict[str, Any]:
        here, there = [_DATABASE, table], [table]
        chosen = {"gateway": (gateway, here), "direct": (bench.direct, here)}
        chosen["adapter"] = (adapter, there)
        return {
            name: lambda _, client=client, table_id=table_id, name=name: call(
                client, table_id, *((more[name],) if more else ())
            )
            for name, (client, table_id) in chosen.items()
        }

    bodies = {"gateway": [data], "direct": [data], "adapter": pieces}
    count = bench.rows.num_rows
    operations = [
        Operation("describe", ways(describe, _SMALL, {}), _same_location, [DESCRIBE_BAR]),
        Operation(
            "insert",
            ways(insert, _INTO, bodies),
            lambda answers, _: all(answers.values()),
            [ROWS_BAR],
            rounds=transfers,
        ),
        Operation(
            "query",
            ways(query, _LARGE, {}),
            lambda answers, _: set(answers.values()) == {count},
            [ROWS_BAR],
            rounds=transfers,
        ),
    ]
    figures = take_turns(operations, rounds, 3)
    return [_row(each, figures[each.name]) for each in operations]


def _pieces(rows: pa.Table) -> list[bytes]:
    step = _ADAPTER_BODY // (_DIMENSIONS * 4 + 8)
    return [ipc(rows.slice(start, step)) for start in range(0, rows.num_rows, step)]


def _same_location(answers: Any, _: Any) -> bool:
    return bool(answers["gateway"] == answers["direct"] and answers["adapter"])


def _row(operation: Operation, found: Any) -> dict[str, Any]:
    gateway, direct, adapter = (found.median(way) for way in ("gateway", "direct", "adapter"))
    added = round((gateway - direct) * 1000, 3)
    return operation_row(operation, found, added_ms=added, to_adapter=round(gateway / adapter, 3))


# -- many requests ---------------------------------------------------------------------------------


def measure_rate(bench: Bench, connections: int, seconds: float) -> dict[str, Any]:
    """Ask for descriptions over many connections at once, of each server in turn."""
    found: dict[str, list[float]] = {"gateway": [], "adapter": []}
    wrong = 0
    for _ in range(3):
        for name, url, table in _described(bench):
            done, failed, took = asyncio.run(_burst(url, table, connections, seconds=seconds))
            found[name].append(done / took)
            wrong += failed
    gateway, adapter = (statistics.median(found[name]) for name in ("gateway", "adapter"))
    values = {
        "connections": connections,
        "gateway_per_second": round(gateway, 1),
        "adapter_per_second": round(adapter, 1),
        "ratio": round(gateway / adapter, 3),
    }
    return make_row(values, [RATE_BAR], wrong)


def _described(bench: Bench) -> list[tuple[str, str, str]]:
    return [
        ("gateway", bench.gateway_url, f"{_DATABASE}$%s" % _SMALL),
        ("adapter", bench.adapter_url, _SMALL),
    ]


def measure_memory(bench: Bench, requests: int) -> dict[str, Any]:
    """Ask for so many descriptions, and compare the memory after a tenth of them with the end."""
    (_, url, table), _ = _described(bench)
    wrong = 0
    resident = []
    for count in (requests // 10, requests - requests // 10):
        _, failed, _ = asyncio.run(_burst(url, table, _CONNECTIONS_PER_CORE, requests=count))
        wrong += failed
        resident.append(_resident_mb(bench.gateway.pid))
    values = {
        "requests": requests,
        "first_mb": round(resident[0], 1),
        "last_mb": round(resident[1], 1),
        "grown_mb": round(resident[1] - resident[0], 1),
    }
    return make_row(values, [MEMORY_BAR], wrong)


def _resident_mb(pid: int) -> float:
    """Return the resident memory of a process and its children."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(_resident_mb(int(each)) for each in children)


async def _burst(
    url: str,
    table: str,
    connections: int,
    *,
    seconds: float = float("inf"),
    requests: float = float("inf"),
) -> tuple[int, int, float]:
    """Ask over so many connections; return how many answers came, how many were wrong, seconds."""
    parts = urlsplit(url)
    asked = (
        f"POST /v1/table/{table}/describe HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        "Content-Type: application/json\r\n\r\n{}"
    ).encode()
    done = wrong = 0
    started = time.perf_counter()

    async def ask() -> None:
        nonlocal done, wrong
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while done < requests and time.perf_counter() < started + seconds:
            done += 1
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[15:])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            wrong += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    return done, wrong, time.perf_counter() - started
