"""Operations on a catalog (Hive Metastore, Glue or Unity), compared with calls of the raw client.

Starts the catalog with many tables, half of them Lance tables, and many namespaces. Measures each
operation in turns with the raw client, then its calls on the wire, then threads that share one
namespace object beside a raw client for each. On Glue, tables are also described with credentials
that are in the cache, beside without any, and threads go on while the credentials of a role expire,
which must be renewed once. moto stands in for AWS, and the project's own double for
Unity's server: both do less than a server with a database. Missed bars are reported only.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from servers.glue_server import ROLE

from bench import catalogs
from bench.cached_credentials import measure_credentials
from bench.catalogs import Catalog
from bench.operations import catalog_operations
from bench.raw_clients import NAMESPACE
from bench.runner import (
    Bar,
    at_least,
    count_calls,
    make_report,
    make_row,
    operation_row,
    request,
    show_progress,
    take_turns,
)
from lance_bridge_metastore import RELEASES

_DEFAULTS = {"hive": (1000, 60, 200), "glue": (300, 30, 25), "unity": (300, 40, 100)}
"""For each catalog: tables, rounds, and calls of a thread."""
_REHEARSALS = 5
_COUNTED_ROUNDS = 5
_BURSTS = 5
_ROLE_SECONDS = 900
"""The shortest session of a role in AWS; it is renewed in its last quarter."""
_SECONDS_TO_REFRESH = 1.0
_ASKED_WHILE_EXPIRING = 10


def add_options(parser: argparse.ArgumentParser, suite: str) -> None:
    """Add the options of a catalog's suite."""
    tables, rounds, each = _DEFAULTS[suite]
    parser.add_argument("--tables", type=at_least(2), default=tables, help="half are Lance tables")
    parser.add_argument("--databases", type=at_least(2), default=300, help="or schemas")
    parser.add_argument("--rounds", type=at_least(1), default=rounds, help="of all operations")
    parser.add_argument("--threads", type=at_least(1), default=8)
    parser.add_argument("--each", type=at_least(1), default=each, help="questions of a thread")
    if suite == "hive":
        parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")
        parser.add_argument("--accelerated", action="store_true", help="hmsclient's Thrift in C")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start the catalog, and measure operations, threads and expiring credentials on it."""
    show_progress("starting and filling the catalog …")
    with _start(options) as catalog:
        show_progress(f"measuring operations on {catalog.title} …")
        tables = {"operations": measure_operations(catalog, options.rounds)}
        show_progress("measuring threads …")
        tables["threads"] = [measure_threads(catalog, options.threads, options.each)]
        if catalog.aws is not None:
            show_progress("measuring cached credentials …")
            tables["credentials"] = measure_credentials(catalog, options.rounds)
            show_progress("letting credentials expire …")
            tables["refresh"] = [measure_refresh(catalog, options.threads)]
    facts = {
        "catalog": catalog.title,
        "tables": catalog.contents.tables,
        "lance_tables": len(catalog.contents.lance_names),
        "databases": catalog.contents.namespaces,
        "rounds": options.rounds,
        "raw_client": catalog.client_name,
    }
    return make_report(facts, tables)


def _start(options: argparse.Namespace) -> AbstractContextManager[Catalog]:
    size = (options.tables, options.databases)
    if options.suite == "hive":
        version, fast = options.version, options.accelerated
        return catalogs.hive(version, *size, options.threads, accelerated=fast)
    if options.suite == "glue":
        return catalogs.glue(*size, options.threads)
    return catalogs.unity(*size)


def measure_operations(catalog: Catalog, rounds: int) -> list[dict[str, Any]]:
    """Time all operations on direct connections, then count their calls through the proxy."""
    raw, namespace = catalog.open_client(), catalog.connect()
    operations = catalog_operations(catalog, namespace, raw)
    figures = take_turns(operations, rounds, _REHEARSALS)
    with catalog.proxy() as wire:
        counted = catalog.connect(wire.address)
        # The first call on a connection asks the server more.
        request(counted, "list_tables", id=[NAMESPACE])
        proxied = catalog_operations(catalog, counted, raw)
        count_calls(proxied, wire, figures, range(_COUNTED_ROUNDS))
        counted.close()
    raw.close()
    namespace.close()
    rows = []
    for operation in operations:
        found = figures[operation.name]
        raw_call = catalog.raw_calls[operation.name.removesuffix(" limit 10")].name
        rows.append(operation_row(operation, found, raw_call=raw_call))
    return rows


@dataclass(frozen=True)
class _Burst:
    """The result of several threads together."""

    per_second: float
    wrong: int


def _burst(threads: int, each: int, ask: Callable[[int, int], bool]) -> _Burst:
    """Make ``each`` calls in each of ``threads`` threads at the same time.

    ``ask`` gets the numbers of the thread and of the question, and returns whether the answer was
    right. Its exceptions are raised here.
    """
    start = threading.Barrier(threads + 1)

    def work(thread: int) -> int:
        start.wait()
        return sum(not ask(thread, question) for question in range(each))

    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work, thread) for thread in range(threads)]
        start.wait()
        started = time.perf_counter()
        wrong = sum(worker.result() for worker in workers)
        seconds = time.perf_counter() - started
    return _Burst(threads * each / seconds, wrong)


def measure_threads(catalog: Catalog, threads: int, each: int) -> dict[str, Any]:
    """Describe tables in threads, on one namespace object and on a raw client for each."""
    namespace = catalog.connect()
    clients = [catalog.open_client() for _ in range(threads)]
    ask_ours = _describer(catalog, lambda _, name: _location(namespace, name))
    ask_raw = _describer(catalog, lambda thread, name: clients[thread].location_of(name))
    ours, raw = [], []
    for number in range(1 + _BURSTS):
        asked = each if number else _REHEARSALS
        ours.append(_burst(threads, asked, ask_ours))
        raw.append(_burst(threads, asked, ask_raw))
    for client in clients:
        client.close()
    namespace.close()
    ours_per_second, raw_per_second = (
        statistics.median(burst.per_second for burst in bursts[1:]) for bursts in (ours, raw)
    )
    values = {
        "threads": threads,
        "operations": threads * each * _BURSTS,
        "ours_per_second": round(ours_per_second, 1),
        "raw_per_second": round(raw_per_second, 1),
        "ratio": round(ours_per_second / raw_per_second, 2),
    }
    least = catalog.threads_ratio
    bars = [] if least is None else [Bar("ratio", ">=", least)]
    return make_row(values, bars, sum(burst.wrong for burst in ours))


def measure_refresh(catalog: Catalog, threads: int) -> dict[str, Any]:
    """Describe tables in threads while the credentials of their namespace expire.

    The first session is so short that it has to be renewed a second later; all after it are of the
    usual length. Requests with unknown or expired credentials are refused.
    """
    assert catalog.aws is not None
    with catalog.aws.known_keys_only(), catalog.proxy() as wire:
        namespace = catalog.connect(
            wire.address,
            assume_role_arn=ROLE,
            assume_role_endpoint=wire.address,
            assume_role_timeout_sec=str(_ROLE_SECONDS),
        )
        ask = _describer(catalog, lambda _, name: _location(namespace, name))
        with catalog.aws.short_sessions(_ROLE_SECONDS / 4 + _SECONDS_TO_REFRESH):
            wrong = int(not ask(0, 0))
        asked_before = wire.calls()["AssumeRole"]
        started = time.perf_counter()
        bursts = []
        while time.perf_counter() < started + 2 * _SECONDS_TO_REFRESH:
            bursts.append(_burst(threads, _ASKED_WHILE_EXPIRING, ask))
        seconds = time.perf_counter() - started
        namespace.close()
        refreshes = wire.calls()["AssumeRole"] - asked_before
    operations = len(bursts) * threads * _ASKED_WHILE_EXPIRING
    values = {
        "threads": threads,
        "operations": operations,
        "per_second": round(operations / seconds, 1),
        "refreshes": refreshes,
    }
    return make_row(values, [Bar("refreshes", "=", 1)], wrong + sum(b.wrong for b in bursts))


def _location(namespace: Any, name: str) -> Any:
    return request(namespace, "describe_table", id=[NAMESPACE, name]).location


def _describer(
    catalog: Catalog, location_of: Callable[[int, str], Any]
) -> Callable[[int, int], bool]:
    """Return a function that describes some table and returns whether the answer was right."""
    names = catalog.contents.lance_names

    def ask(thread: int, question: int) -> bool:
        name = names[(thread * 7919 + question * 31) % len(names)]
        return catalog.is_at(name, location_of(thread, name))

    return ask
