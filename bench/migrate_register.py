"""What it costs to register a directory of tables in a Hive Metastore, against raw create calls.

Writes a directory of 1,000 Lance tables, starts a metastore, and in each round registers all of
them in a new database: planned, carried out, recorded on disk and verified. In turns with it, a raw
client makes as many entries in another database, one after the other on one connection, which is
the least that there is to do. Then once more through a proxy that counts the calls. Times are of
this machine: compare ratios. A wrong answer, or a ratio of 2 or more, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import hmsclient.genthrift.hive_metastore.ttypes as hms_types
import lance
import pyarrow as pa
from lance_namespace import ListTablesRequest
from servers.hive_raw import raw_client
from servers.proxy import ThriftProxy

from bench.fixture import MARKS
from lance_bridge.catalog import TableRecord
from lance_bridge.migrate import (
    Directory,
    Ends,
    Level,
    Migrations,
    RunOptions,
    State,
    address_of,
    execute,
    kind_named,
    make_plan,
)
from lance_bridge_hive import HiveNamespace, mapping
from lance_bridge_hive.embedded import RELEASES, Metastore

_BAR = 2.0
"""Our time must be less than so many times the raw client's."""


@dataclass(frozen=True)
class Registered:
    """One round of ours, in seconds; ``is_right`` where all tables are there and verified."""

    plan: float
    execute: float
    is_right: bool

    @property
    def total(self) -> float:
        return self.plan + self.execute


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong or the bar is missed, else 0."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tables", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--at-once", type=int, default=8)
    options.add_argument("--verify", choices=[each.value for each in Level], default="counts")
    options.add_argument("--version", choices=list(RELEASES), default="2.3")
    given = options.parse_args(arguments)
    chosen = RunOptions(at_once=given.at_once, verify=Level(given.verify))
    with tempfile.TemporaryDirectory() as scratch, Metastore(given.version) as metastore:
        lake = Path(scratch, "lake")
        names = write_tables(lake, given.tables)
        subject = Subject(lake, Path(scratch), names, chosen)
        ours, raw = [], []
        for number in range(given.rounds):
            if number % 2:
                raw.append(create_raw(metastore.port, f"raw_{number}", lake, names))
            ours.append(subject.register(metastore.uri, f"ours_{number}"))
            if not number % 2:
                raw.append(create_raw(metastore.port, f"raw_{number}", lake, names))
        with ThriftProxy("127.0.0.1", metastore.port) as proxy:
            ours.append(subject.register(proxy.uri, "ours_counted"))
            calls = dict(proxy.calls)
    return report(given.tables, ours[:-1], raw, calls, all(each.is_right for each in ours))


def write_tables(lake: Path, count: int) -> list[str]:
    """Write so many small tables, and return their names."""
    names = [f"table_{number:05}" for number in range(count)]
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    for name in names:
        lance.write_dataset(rows, str(lake / f"{name}.lance"))
    return names


@dataclass(frozen=True)
class Subject:
    """What is registered, and how."""

    lake: Path
    scratch: Path
    names: list[str]
    options: RunOptions

    def register(self, uri: str, database: str) -> Registered:
        """Register all tables in a new database, by the user's own path through the library."""
        source, kind = Directory.at(str(self.lake)), kind_named("register")
        properties = {"uri": uri, "client.pool-size": str(self.options.at_once)}
        with HiveNamespace(**properties) as namespace:
            namespace.list_tables(ListTablesRequest(id=["default"]))  # connects
            ends = Ends(source, namespace, source.address, address_of(namespace))
            begun = time.perf_counter()
            plan = make_plan(kind, ends, {"namespace": [database]})
            migration = Migrations(self.scratch / "state").add(plan)
            planned = time.perf_counter()
            record = execute(kind, ends, migration, self.options)
            done = time.perf_counter()
            found = namespace.list_tables(ListTablesRequest(id=[database])).tables
        is_right = found == self.names and record.state is State.DONE
        return Registered(planned - begun, done - planned, is_right)


def create_raw(port: int, database: str, lake: Path, names: Sequence[str]) -> float:
    """Make as many entries with a raw client; return the seconds that the creates took."""
    with raw_client(port) as client:
        client.create_database(hms_types.Database(name=database))
        begun = time.perf_counter()
        for name in names:
            record = TableRecord((database, name), f"file://{lake}/{name}.lance", MARKS)
            client.create_table(mapping.table_from(hms_types, record, None))
        return time.perf_counter() - begun


def report(
    tables: int,
    ours: Sequence[Registered],
    raw: Sequence[float],
    calls: dict[str, int],
    is_right: bool,
) -> int:
    """Print the figures; return the exit code."""
    best = statistics.median(each.total for each in ours)
    least = statistics.median(raw)
    ratio = best / least
    lines = [
        f"{tables} tables registered: {best:.2f} s "
        f"(plan {statistics.median(each.plan for each in ours):.2f} s, "
        f"run {statistics.median(each.execute for each in ours):.2f} s); "
        f"{tables} raw create_table calls: {least:.2f} s; ratio {ratio:.2f} (bar {_BAR})",
        f"rounds: {json.dumps([asdict(each) for each in ours])}; raw {json.dumps(list(raw))}",
        f"calls: {sum(calls.values())} {json.dumps(calls)}",
        "every answer was right" if is_right else "AN ANSWER WAS WRONG",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if is_right and ratio < _BAR else 1


if __name__ == "__main__":
    sys.exit(main())
