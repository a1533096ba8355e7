"""What the bridge costs on a Hive Metastore, against a raw client doing the least: `make bench`.

Starts a metastore with 1,000 tables (500 of them Lance's) and 300 databases, and measures every
operation beside the raw calls that come closest to it, in turns within one run; the calls on the
wire, counted by a proxy; and 8 threads on one namespace object. Times are of this machine: compare
ratios. Misses of a bar are reported and do no more; a wrong answer makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from lance_namespace import (
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    LanceNamespace,
    ListNamespacesRequest,
    ListTablesRequest,
)
from servers.proxy import ThriftProxy

import lance_bridge
from bench import report
from bench.fixture import DATABASE, Fixture, RawConnection, build, lance_entry
from bench.measure import Burst, Figures, Operation, burst, count_calls, take_turns
from lance_bridge.location import for_lance
from lance_bridge_hive.embedded import RELEASES, Metastore

LIST_BAR = 2.0
LIST_CALLS_BAR = 2
DESCRIBE_BAR = 1.5
DESCRIBE_CALLS_BAR = 1
THREADS_BAR = 0.7
_FILTER = 'hive_filter_field_params__table_type like "(?i)lance"'
_UNUSED = 1_000_000
_WARM_UP = 5
_COUNTED = 5
_BURSTS = 5


def operations(fixture: Fixture, raw: RawConnection) -> list[Operation]:
    """Return what is measured, in an order in which each round can be done."""
    names = fixture.names
    client = raw.client

    def name_of(number: int) -> str:
        return names[number * 37 % len(names)]

    def raw_filter(_: int) -> Any:
        return client.get_table_names_by_filter(DATABASE, _FILTER, -1)

    def new_entry(number: int) -> Any:
        name = f"raw_{number}"
        return lance_entry(name, f"{fixture.root}/{name}.lance")

    return [
        Operation(
            "list_tables",
            lambda ns, _: ns.list_tables(ListTablesRequest(id=[DATABASE])).tables,
            raw_filter,
            "get_table_names_by_filter",
            lambda answer, _: bool(answer == names),
            LIST_BAR,
            LIST_CALLS_BAR,
        ),
        Operation(
            "list_tables limit 10",
            lambda ns, _: ns.list_tables(ListTablesRequest(id=[DATABASE], limit=10)).tables,
            # The metastore's own limit returns any ten: the first ten need all names.
            raw_filter,
            "get_table_names_by_filter",
            lambda answer, _: bool(answer == names[:10]),
            LIST_BAR,
            LIST_CALLS_BAR,
        ),
        Operation(
            "list_namespaces",
            lambda ns, _: ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces,
            lambda _: client.get_all_databases(),
            "get_all_databases",
            lambda answer, _: len(answer) == fixture.databases and DATABASE in answer,
        ),
        Operation(
            "describe_table",
            lambda ns, n: ns.describe_table(DescribeTableRequest(id=[DATABASE, name_of(n)])),
            lambda n: raw.get_table(name_of(n)),
            "get_table_req",
            lambda answer, n: _is_at(answer, fixture.locations[name_of(n)]),
            DESCRIBE_BAR,
            DESCRIBE_CALLS_BAR,
        ),
        Operation(
            "declare_table",
            lambda ns, n: ns.declare_table(DeclareTableRequest(id=[DATABASE, f"ours_{n}"])),
            lambda n: client.create_table(new_entry(n)),
            "create_table",
            lambda answer, n: _is_at(answer, f"{fixture.root}/ours_{n}.lance"),
        ),
        Operation(
            "deregister_table",
            lambda ns, n: ns.deregister_table(DeregisterTableRequest(id=[DATABASE, f"ours_{n}"])),
            lambda n: client.drop_table(DATABASE, f"raw_{n}", False),
            "drop_table",
            lambda answer, n: _is_at(answer, f"{fixture.root}/ours_{n}.lance"),
        ),
    ]


def _is_at(answer: Any, location: str) -> bool:
    return bool(answer.location == for_lance(location))


def measure_operations(
    port: int, fixture: Fixture, rounds: int, fast: bool
) -> tuple[list[Operation], dict[str, Figures]]:
    """Time all operations on direct connections, then count their calls through the proxy."""
    raw = RawConnection(port, accelerated=fast)
    todo = operations(fixture, raw)
    namespace = _connect(f"thrift://127.0.0.1:{port}")
    _warm_up(namespace, todo)
    figures = take_turns(todo, namespace, rounds)
    with ThriftProxy("127.0.0.1", port) as proxy:
        counted = _connect(proxy.uri)
        _warm_up(counted, todo[:1])
        for operation in todo:
            numbers = range(rounds, rounds + _COUNTED)
            calls, connections = count_calls(operation, counted, proxy, numbers)
            figures[operation.name].calls = calls
            figures[operation.name].connections = connections
        counted.close()
    raw.close()
    namespace.close()
    return todo, figures


def _connect(uri: str, pool_size: int = 8) -> Any:
    return lance_bridge.connect("hive", {"uri": uri, "client.pool-size": pool_size})


def _warm_up(namespace: LanceNamespace, todo: Sequence[Operation]) -> None:
    for number in range(_UNUSED, _UNUSED + _WARM_UP):
        for operation in todo:
            operation.ours(namespace, number)
            operation.raw(number)


def measure_threads(
    port: int, fixture: Fixture, threads: int, each: int, fast: bool
) -> report.Threads:
    """Let threads describe tables, on one namespace object and on a raw connection for each."""
    names = fixture.names
    namespace = _connect(f"thrift://127.0.0.1:{port}", threads)
    connections = [RawConnection(port, accelerated=fast) for _ in range(threads)]

    def name_of(thread: int, question: int) -> str:
        return names[(thread * 7919 + question * 31) % len(names)]

    def ask_ours(thread: int, question: int) -> bool:
        name = name_of(thread, question)
        answer = namespace.describe_table(DescribeTableRequest(id=[DATABASE, name]))
        return _is_at(answer, fixture.locations[name])

    def ask_raw(thread: int, question: int) -> bool:
        name = name_of(thread, question)
        location = connections[thread].get_table(name).sd.location
        return bool(for_lance(location) == fixture.locations[name])

    burst(threads, _WARM_UP, ask_ours)
    burst(threads, _WARM_UP, ask_raw)
    ours: list[Burst] = []
    raw: list[Burst] = []
    for _ in range(_BURSTS):
        ours.append(burst(threads, each, ask_ours))
        raw.append(burst(threads, each, ask_raw))
    for connection in connections:
        connection.close()
    namespace.close()
    return report.Threads(
        threads=threads,
        operations=threads * each * _BURSTS,
        ours_per_second=statistics.median(b.per_second for b in ours),
        raw_per_second=statistics.median(b.per_second for b in raw),
        wrong=sum(b.wrong for b in ours),
        bar=THREADS_BAR,
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of the metastore")
    parser.add_argument("--tables", type=int, default=1000, help="half of them are Lance's")
    parser.add_argument("--databases", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=60, help="of all operations")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--each", type=int, default=200, help="operations of a thread in a burst")
    parser.add_argument(
        "--raw",
        choices=["hmsclient", "accelerated"],
        default="hmsclient",
        help="the raw client as it comes, or with Thrift's protocol in C",
    )
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args(arguments)
    if options.tables < 2 or min(options.databases - 1, options.rounds, options.each) < 1:
        parser.error("at least 2 tables, 2 databases, 1 round and 1 operation are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = parse(arguments)
    fast = options.raw == "accelerated"
    with Metastore(options.version) as metastore:
        _tell(f"filling Hive Metastore {metastore.release.full_version} …")
        fixture = build(metastore.port, options.tables, options.databases)
        _tell("measuring operations …")
        todo, figures = measure_operations(metastore.port, fixture, options.rounds, fast)
        _tell("measuring threads …")
        threads = measure_threads(metastore.port, fixture, options.threads, options.each, fast)
        about = {
            "metastore": metastore.release.full_version,
            "tables": fixture.tables,
            "lance_tables": len(fixture.locations),
            "databases": fixture.databases,
            "rounds": options.rounds,
            "raw_client": options.raw,
            "load_average": round(os.getloadavg()[0], 1),
        }
    found = report.collect(about, todo, figures, threads)
    print(json.dumps(found, indent=2) if options.output == "json" else report.as_text(found))
    return 1 if found["wrong_answers"] else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
