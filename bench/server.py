"""The gateway, compared with pylance's RestAdapter and with direct calls, and its catalog page.

Starts a Hive Metastore, a gateway to it and to a directory, and an adapter of a directory, each in
a process of its own. Describe, insert and query go through pylance's own client, in turns. The
adapter takes no body above 2 MiB and has no option for that: a copy of pylance with another limit
in its code runs it, or else its rows are sent in as many requests as they need. Then 32 connections
describe tables, through another gateway and by a raw client of the metastore. Then pages of a
database of many Lance tables are shown, whose entries are made by raw calls, which takes minutes;
CPU is that of the metastore, the gateway and the client. Missed bars are reported only.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import yaml
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from server.gateways import serve_app

from bench import catalogs
from bench.memory import ROW_BYTES, count_batches, make_batches
from bench.processes import cpu_seconds
from bench.runner import (
    Bars,
    Figures,
    Operation,
    Row,
    at_least,
    make_row,
    measure_in_turns,
    request,
    show_progress,
    time_cpu,
)
from lance_bridge.testing.calls import ipc
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

_ADAPTER_BODY = 1_900_000
_DATABASE = catalogs.NAMESPACE
_SMALL, _LARGE, _INTO = "small", "large", "into"
_BODY_LIMIT = b"\x48\xc7\x44\x24\x10"
"""The instruction of pylance (x86-64) whose operand is the largest body of an adapter."""
_PAGE_TIMES = 10
_PAGE_BARS = {"page_ms": "<= 500"}


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rounds", type=at_least(1), default=200, help="of describe")
    parser.add_argument("--transfers", type=at_least(1), default=5, help="of all rows")
    parser.add_argument("--megabytes", type=at_least(1), default=100, help="of rows")
    parser.add_argument("--seconds", type=at_least(1), default=10, help="of many connections")
    parser.add_argument("--tables", type=at_least(1000), default=100_000, help="of the pages")


def measure(options: argparse.Namespace) -> Row:
    """Measure operations and pages."""
    show_progress("starting the servers, writing the rows …")
    rows = pa.Table.from_batches(make_batches(range(count_batches(options.megabytes))))
    with servers(rows) as (clients, is_limited):
        show_progress("measuring operations …")
        describe, *transfers = server_operations(clients, rows, is_limited)
        operations = measure_in_turns([describe], options.rounds, rehearsals=3)
        operations += measure_in_turns(transfers, options.transfers, rehearsals=1)
    rates = measure_load(options.seconds)
    return {
        "body of the adapter": "2 MiB at most" if is_limited else "1 GiB at most",
        "operations": operations,
        "descriptions": rates,
        "pages": measure_pages(options.tables),
    }


# -- operations ------------------------------------------------------------------------------------

Client = tuple[Any, list[str]]
"""A namespace, and the identifier of the namespace in it that has the tables."""


@contextmanager
def servers(rows: pa.Table) -> Iterator[tuple[dict[str, Client], bool]]:
    """Start everything, with a small and a large table and an empty one in each catalog.

    Yields:
        The clients, and whether the adapter has its own limit.
    """
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="lance-bridge-server-"))
        directory = Path(name)
        metastore = stack.enter_context(Metastore("2.3", directory / "hms"))
        catalog = {"uri": metastore.uri, "root": f"{directory}/root"}
        hive = stack.enter_context(HiveNamespace(**catalog))
        request(hive, "create_namespace", id=[_DATABASE])
        contents = {_SMALL: rows.slice(0, 10), _LARGE: rows, _INTO: rows.slice(0, 0)}
        for table, content in contents.items():
            request(hive, "create_table", ipc(content), id=[_DATABASE, table])
            for place in ("adapter", "dir"):
                lance.write_dataset(content, f"{directory}/{place}/{table}.lance")
        entries = {"hive": {"impl": "hive", **catalog}}
        entries["dir"] = {"impl": "dir", "root": f"{directory}/dir"}
        config: Row = {"catalogs": entries, "listeners": [{"port": 0}]}
        config["workers"] = os.cpu_count() or 1
        file = directory / "server.yaml"
        file.write_text(yaml.safe_dump(config))
        program = str(Path(sys.executable).with_name("lance-bridge"))
        url, _ = stack.enter_context(served([program, "serve", "--config", str(file)]))
        packages = directory / "packages"
        is_limited = not copy_without_limit(packages)
        other, _ = stack.enter_context(adapter_of(directory / "adapter", packages))
        gateway, adapter = RestNamespace(uri=url), RestNamespace(uri=other)  # type: ignore[no-untyped-call]  # pylance has no types
        clients: dict[str, Client] = {
            "gateway": (gateway, ["hive", _DATABASE]),
            "direct": (hive, [_DATABASE]),
            "adapter": (adapter, []),
            "directory": (gateway, ["dir"]),
        }
        yield clients, is_limited


def copy_without_limit(packages: Path) -> bool:
    """Copy pylance into a directory, with a limit of 1 GiB for the body of an adapter.

    Returns:
        Whether that is possible: the instruction that sets the limit is there, once.
    """
    package = Path(lance.__file__).parent
    (library,) = package.glob("lance*.so")
    content = library.read_bytes()
    old, new = (_BODY_LIMIT + size.to_bytes(4, "little") for size in (2 << 20, 1 << 30))
    if content.count(old) != 1:
        return False
    copy = packages / package.name
    copy.mkdir(parents=True)
    for each in package.iterdir():
        if each != library:
            (copy / each.name).symlink_to(each)
    (copy / library.name).write_bytes(content.replace(old, new))
    return True


def server_operations(
    clients: dict[str, Client], rows: pa.Table, is_limited: bool
) -> list[Operation]:
    """Describe, insert and query, through the gateway, directly, and through the adapter.

    A directory behind the gateway is compared with Hive behind it.
    """
    step = _ADAPTER_BODY // ROW_BYTES
    pieces = [ipc(rows.slice(at, step)) for at in range(0, rows.num_rows, step)]
    whole = [ipc(rows)]

    def describe(way: str, _turn: int) -> Any:
        client, path = clients[way]
        return request(client, "describe_table", id=[*path, _SMALL]).location

    def insert(way: str, _: int) -> None:
        client, path = clients[way]
        for body in pieces if way == "adapter" and is_limited else whole:
            request(client, "insert_into_table", body, id=[*path, _INTO])

    def query(way: str, _turn: int) -> int:
        client, path = clients[way]
        vector = QueryTableRequestVector()
        found = client.query_table(api.QueryTableRequest(id=[*path, _LARGE], k=0, vector=vector))
        content = found if isinstance(found, bytes) else found.data
        return int(pa.ipc.open_file(content).read_all().num_rows)

    def same_location(found: Any, _: Any) -> bool:
        return bool(found["gateway"] == found["direct"] and found["adapter"])

    def all_rows(found: Any, _: Any) -> bool:
        return set(found.values()) == {rows.num_rows}

    def any_answer(_: Any, _turn: Any) -> bool:
        return True

    def operation(name: str, do: Callable[..., Any], is_right: Any, bars: Bars) -> Operation:
        ways = {way: partial(do, way) for way in ("gateway", "direct", "adapter")}
        return Operation(name, ways, is_right, bars, more=_added)

    def of_directory(name: str, do: Callable[..., Any], is_right: Any, bars: Bars) -> Operation:
        ways = {"directory": partial(do, "directory"), "hive": partial(do, "gateway")}
        return Operation(f"{name}, directory", ways, is_right, bars)

    return [
        operation("describe", describe, same_location, {"added_ms": "<= 1.5"}),
        operation("insert", insert, any_answer, {"to_adapter": "<= 1.1"}),
        operation("query", query, all_rows, {"to_adapter": "< 1"}),
        of_directory("insert", insert, any_answer, {}),
        of_directory("query", query, all_rows, {"ratio": "<= 1.1"}),
    ]


def _added(found: Figures) -> Row:
    gateway, direct, adapter = map(statistics.median, found.seconds.values())
    added = round((gateway - direct) * 1000, 3)
    return {"added_ms": added, "to_adapter": round(gateway / adapter, 3)}


# -- pages -----------------------------------------------------------------------------------------


def measure_pages(tables: int) -> list[Row]:
    """Measure pages, of which the first one is also shown before its tables were ever listed."""
    show_progress(f"making {tables} tables …")
    with catalogs.hive("2.3", tables, 2, lance_share=1) as catalog:
        catalog.fill()
        show_progress("measuring pages …")
        with closing(catalog.connect()) as hive:
            gateway = Gateway(FederatedNamespace({"prod": hive}), catalogs={"prod": hive})
            with (
                serve_app(create_app(gateway)) as url,
                httpx.Client(base_url=url, timeout=120) as client,
            ):
                return _measure_pages(client, catalog.lance_names[tables // 2])


def _measure_pages(client: httpx.Client, table: str) -> list[Row]:
    first = f"/ui/namespace/prod/{_DATABASE}"
    new = measure_in_turns([_page(client, "first page, not listed before", first, times=1)], 1, 0)
    following = re.search(r'href="([^"]+)" rel="next"', client.get(first).text)
    assert following, "the first page has all tables"
    operations = [
        _page(client, "first page", first),
        _page(client, "second page", html.unescape(following[1]), "Previous page"),
        _page(client, "search by name", f"/ui/search?q={table}", table),
    ]
    return new + measure_in_turns(operations, 1, 0)


def _page(
    client: httpx.Client, name: str, path: str, text: str = "Next page", times: int = _PAGE_TIMES
) -> Operation:
    """Return what gets a page so many times in a row, which must have a text."""

    def get(_: int) -> bool:
        answer = client.get(path)
        return answer.status_code == 200 and text in answer.text

    cpu = partial(cpu_seconds, os.getpid())
    ways = {"page": lambda turn: time_cpu(get, cpu, turn, times)}
    return Operation(name, ways, lambda found, _: bool(found["page"]), _PAGE_BARS)


# -- many connections ------------------------------------------------------------------------------
# The metastore, the server and the clients, which are threads of this process, share the machine: a
# share of the raw client's rate is one of all their CPU time.


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
        config = {"catalogs": entries, "listeners": [{"port": 0}], "workers": os.cpu_count() or 1}
        file.write_text(yaml.safe_dump(config))
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
