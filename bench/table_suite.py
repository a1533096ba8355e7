"""Operations inside a table, compared with pylance on a table opened by its path.

Starts a Hive Metastore. Each round makes two tables of the same rows and does every operation on
both. What is left of our time after pylance's and that of one raw call to the catalog is our own.
The calls on the wire are counted by a proxy. Tables that differ at the end of a round are a wrong
answer. Missed bars are reported only.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from bench import catalogs
from bench.catalogs import Contents
from bench.operations import TABLE_ROWS, table_operations
from bench.raw_clients import NAMESPACE, RawClient
from bench.runner import (
    Figures,
    Timed,
    at_least,
    count_calls,
    make_report,
    operation_row,
    request,
    show_progress,
    take_turns,
)
from lance_bridge.locations import for_lance
from lance_bridge_metastore import RELEASES

_REHEARSALS = 2


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rounds", type=at_least(1), default=40, help="of all operations")
    parser.add_argument("--only", default="", help="report operations whose name contains this")
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time all operations on a direct connection, then count their calls through a proxy."""
    show_progress("starting the catalog …")
    # The raw client at its fastest, because its time is subtracted from ours.
    with catalogs.hive(options.version, 2, 2, 1, accelerated=True) as catalog:
        show_progress(f"measuring on {catalog.title} …")
        operations = table_operations()
        client, namespace = catalog.open_client(), catalog.connect()
        pairs = TablePairs(namespace, client, catalog.contents)
        figures = take_turns(operations, options.rounds, _REHEARSALS, pairs.make)
        with catalog.proxy() as wire:
            counted = catalog.connect(wire.address)
            # The first call on a connection asks the server more.
            request(counted, "list_tables", id=[NAMESPACE])
            proxied = TablePairs(counted, client, catalog.contents)
            count_calls(operations, wire, figures, range(1), proxied.make)
            counted.close()
        client.close()
        namespace.close()
    rows = []
    other_wrong = pairs.unlike
    for operation in operations:
        found = figures[operation.name]
        if options.only in operation.name:
            rows.append(operation_row(operation, found, **_own_time(found)))
        else:
            other_wrong += found.wrong
    facts = {
        "catalog": catalog.title,
        "rows": TABLE_ROWS,
        "rounds": options.rounds,
        "raw_client": catalog.client_name,
        "unlike_tables": pairs.unlike,
    }
    return make_report(facts, {"operations": rows}, other_wrong)


def _own_time(found: Figures) -> dict[str, Any]:
    """Return our overhead: its median, that of the fastest turns, and its quartiles."""
    ways = list(found.seconds.values())
    own = [(ours - raw - call) * 1000 for ours, raw, call in zip(*ways, strict=True)]
    at_best = (min(ways[0]) - min(ways[1]) - min(ways[2])) * 1000
    quartiles = statistics.quantiles(own, n=4, method="inclusive") if len(own) > 1 else own * 3
    low, middle, high = (round(each, 3) for each in quartiles)
    return {"own_ms": middle, "own_ms_at_best": round(at_best, 3), "own_ms_quartiles": [low, high]}


@dataclass
class TablePair:
    """The two tables of a round: one of a namespace, and one at a path, which pylance opens."""

    namespace: Any
    client: RawClient
    name: str
    path: str
    restored_by: str | None = None
    """The id of the transaction that restored a version, once there is one."""

    def request(self, method: str, data: bytes | None = None, **fields: Any) -> Any:
        """Do an operation of the namespace on its table."""
        return request(self.namespace, method, data, id=[NAMESPACE, self.name], **fields)

    def create_entry(self) -> Timed:
        """Create the entry of a table with one raw call, timed, and remove it again."""
        started = time.perf_counter()
        self.client.create_table(f"raw_{self.name}", self.path)
        seconds = time.perf_counter() - started
        self.client.drop_table(f"raw_{self.name}")
        return Timed(seconds)


class TablePairs:
    """Creates the pairs of tables, compares them at the end, and removes them."""

    def __init__(self, namespace: Any, client: RawClient, contents: Contents) -> None:
        self._namespace, self._client = namespace, client
        self._contents = contents
        self.unlike = 0
        """Rounds after which the two tables differed."""

    def _path(self, name: str) -> str:
        return for_lance(self._contents.location(name))

    @contextmanager
    def make(self, number: int) -> Iterator[TablePair]:
        """Yield the pair of a round, which the first operation creates."""
        name = f"inside_{number}"
        pair = TablePair(self._namespace, self._client, name, self._path(f"raw_{name}"))
        yield pair
        if Path(pair.path).exists():
            self.unlike += _history(self._path(name)) != _history(pair.path)
            shutil.rmtree(pair.path)
        pair.request("deregister_table")
        shutil.rmtree(self._path(name))


def _history(path: str) -> tuple[object, ...]:
    """Return the state of a table after all operations."""
    dataset = lance.dataset(path)
    versions = [dataset.checkout_version(each["version"]) for each in dataset.versions()]
    indices = [sorted(index.name for index in each.describe_indices()) for each in versions]
    references = sorted(dataset.tags.list()), sorted(dataset.branches.list())
    return [each.count_rows() for each in versions], indices, references
