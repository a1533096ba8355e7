"""Migrations, compared with the least work that has the same result. A missed limit exits with 1.

Registers a directory of Lance tables in a Hive Metastore, planned, done, recorded and verified,
beside as many raw calls that create entries. Converts Parquet into a Lance table, beside Spark's
own copy of the files as Parquet; verification and the memory of processes are reported too.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hms
import lance
import pyarrow as pa
from servers.hive_raw import raw_client, raw_table
from servers.proxy import ThriftProxy

from bench.runner import (
    Bar,
    Operation,
    Timed,
    Wire,
    at_least,
    count_calls,
    make_report,
    operation_row,
    request,
    show_progress,
    take_turns,
)
from bench.spark import DIMENSIONS, write_source
from bench.spark_session import Setup
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import RELEASES, Metastore
from lance_bridge_migrate import (
    Directory,
    Endpoints,
    Level,
    Migrations,
    RunOptions,
    State,
    address_of,
    execute,
    make_plan,
    migration_type,
    verify,
)
from lance_bridge_migrate.spark.session import address_of_session
from lance_bridge_spark import register

REGISTER_BAR = Bar("ratio", "<", 2.0)
CONVERT_BAR = Bar("ratio", "<=", 1.25)
_DATABASE, _TABLE = "converted", "t"
_PARTS = ("register", "convert")


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--part", action="append", choices=_PARTS, help="only this, not both")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--tables", type=at_least(1), default=1000, help="to register")
    parser.add_argument("--at-once", type=at_least(1), default=8, help="tables to register")
    parser.add_argument("--verify", choices=[each.value for each in Level], default="counts")
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")
    parser.add_argument("--rows", type=at_least(1), default=10_000_000, help="to convert")
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one kind of migration or both."""
    parts = options.part or _PARTS
    tables: dict[str, list[dict[str, Any]]] = {}
    facts: dict[str, Any] = {"rounds": options.rounds}
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-migrate-", ignore_cleanup_errors=True
    ) as name:
        if "register" in parts:
            facts["tables"] = options.tables
            tables["register"] = [measure_register(Path(name), options)]
        if "convert" in parts:
            facts["rows"] = options.rows
            tables["convert"], facts["peak_mb"] = measure_convert(Path(name), options)
    return make_report(facts, tables)


# -- register --------------------------------------------------------------------------------------


def measure_register(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time registrations in turns with raw calls, then count the calls of one more."""
    show_progress("writing tables …")
    lake = directory / "lake"
    names = [f"table_{number:05}" for number in range(options.tables)]
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    for name in names:
        lance.write_dataset(rows, str(lake / f"{name}.lance"))
    run = RunOptions(at_once=options.at_once, verify=Level(options.verify))
    show_progress("registering …")
    with Metastore(options.version) as metastore:

        def register(uri: str, prefix: str) -> Operation:
            registration = Registration(lake, directory / "state", names, run)
            ways = {
                "ours": lambda turn: registration.run(uri, f"{prefix}_{turn}"),
                "raw": lambda turn: _create_entries(metastore.port, f"raw_{turn}", lake, names),
            }
            bars = [REGISTER_BAR]
            return Operation("register", ways, lambda a, _: bool(a["ours"]), bars, unit="s")

        operation = register(metastore.uri, "ours")
        figures = take_turns([operation], options.rounds, rehearsals=0)
        with ThriftProxy("127.0.0.1", metastore.port) as proxy:
            wire = Wire(proxy.uri, proxy.reset, lambda: proxy.calls, lambda: proxy.connections)
            count_calls([register(proxy.uri, "counted")], wire, figures, range(1))
    return operation_row(operation, figures[operation.name])


@dataclass(frozen=True)
class Registration:
    """What is registered, and how."""

    lake: Path
    state: Path
    names: list[str]
    options: RunOptions

    def run(self, uri: str, database: str) -> Timed:
        """Register all tables in a new database; the answer is whether all are there."""
        source, kind = Directory.at(str(self.lake)), migration_type("register")
        properties = {"uri": uri, "client.pool-size": str(self.options.at_once)}
        with HiveNamespace(**properties) as namespace:
            request(namespace, "list_tables", id=["default"])  # connects
            endpoints = Endpoints(source, namespace, source.address, address_of(namespace))
            started = time.perf_counter()
            plan = make_plan(kind, endpoints, {"namespace": [database]})
            migration = Migrations(self.state).add(plan)
            planned = time.perf_counter()
            record = execute(kind, endpoints, migration, self.options)
            done = time.perf_counter()
            found = request(namespace, "list_tables", id=[database]).tables
        is_right = found == self.names and record.state is State.DONE
        return Timed(
            done - started, is_right, {"plan_s": planned - started, "run_s": done - planned}
        )


def _create_entries(port: int, database: str, lake: Path, names: list[str]) -> Timed:
    """Create as many entries on one raw connection, sequentially."""
    with raw_client(port) as client:
        client.create_database(hms.Database(name=database))
        started = time.perf_counter()
        for name in names:
            client.create_table(raw_table(database, name, f"{lake}/{name}.lance"))
        return Timed(time.perf_counter() - started)


# -- convert ---------------------------------------------------------------------------------------


def measure_convert(
    directory: Path, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Time conversions in turns with Spark's copy; return their rows, and peaks of memory."""
    show_progress("writing rows …")
    write_source(directory / "source", options.rows)
    with Metastore() as metastore:
        setup = Setup(directory, metastore.uri, options.memory)
        with setup.session() as spark:
            register(spark)
            conversion = Conversion(spark, setup, options.rows)
            operations = [conversion.operation("lists"), conversion.operation("vectors")]
            show_progress("converting …")
            figures = take_turns(operations, options.rounds, rehearsals=1)
            peaks = _memory_peaks()
    return [operation_row(each, figures[each.name]) for each in operations], peaks


@dataclass(frozen=True)
class Conversion:
    """What is converted, and where."""

    spark: Any
    setup: Setup
    rows: int

    def operation(self, column_type: str) -> Operation:
        """Return a conversion to lists or to vectors, and the copy to compare it with."""
        return Operation(
            f"convert, {column_type}",
            {
                "ours": lambda _: self._convert(find_vectors=column_type == "vectors"),
                "copy": lambda _: self._copy(),
            },
            lambda answers, _: bool(answers["ours"]),
            [CONVERT_BAR],
            unit="s",
        )

    def _copy(self) -> Timed:
        target = self.setup.directory / "copied"
        started = time.perf_counter()
        self.spark.read.parquet(self.setup.source).write.parquet(str(target))
        seconds = time.perf_counter() - started
        shutil.rmtree(target)
        return Timed(seconds)

    def _convert(self, *, find_vectors: bool) -> Timed:
        """Plan, run and verify a conversion; its time is that of the run."""
        source = {"path": self.setup.source, "format": "parquet", "table": _TABLE}
        options = {"paths": [source], "namespace": [_DATABASE], "find_vectors": find_vectors}
        kind = migration_type("convert")
        with self._target() as namespace:
            spark_address = address_of_session(self.spark)
            endpoints = Endpoints(self.spark, namespace, spark_address, address_of(namespace))
            at = [time.perf_counter()]
            plan = make_plan(kind, endpoints, options)
            migration = Migrations(self.setup.directory / "state").add(plan)
            at.append(time.perf_counter())
            records = [execute(kind, endpoints, migration, RunOptions(verify=Level.NONE))]
            at.append(time.perf_counter())
            for level in (Level.COUNTS, Level.CHECKSUMS):
                records.append(verify(kind, endpoints, migration, level))
                at.append(time.perf_counter())
            is_done = all(record.state is State.DONE for record in records)
            is_right = is_done and self._is_whole(namespace, find_vectors=find_vectors)
        plan_s, run_s, counts_s, checksums_s = (b - a for a, b in itertools.pairwise(at))
        parts = {"plan_s": plan_s, "counts_s": counts_s, "checksums_s": checksums_s}
        return Timed(run_s, is_right, parts)

    @contextmanager
    def _target(self) -> Iterator[HiveNamespace]:
        """Yield the namespace that gets the table, which is dropped at the end."""
        root = str(self.setup.directory / "lance")
        with HiveNamespace(uri=self.setup.metastore, root=root) as namespace:
            yield namespace
            request(namespace, "drop_table", id=[_DATABASE, _TABLE])
            request(namespace, "drop_namespace", id=[_DATABASE])

    def _is_whole(self, namespace: HiveNamespace, *, find_vectors: bool) -> bool:
        """Return whether all rows exist, with the requested type of vectors."""
        dataset = lance.dataset(namespace_client=namespace, table_id=[_DATABASE, _TABLE])
        length = getattr(dataset.schema.field("vector").type, "list_size", None)
        wanted = DIMENSIONS if find_vectors else None
        return bool(dataset.count_rows() == self.rows and length == wanted)


def _memory_peaks() -> dict[str, float]:
    """Return the largest peak of resident memory (MB) of processes started here, by program."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                lines = (entry / "status").read_text(encoding="ascii").splitlines()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            processes[int(entry.name)] = dict(line.split(":", 1) for line in lines)
    ours, size = {os.getpid()}, 0
    while len(ours) > size:
        size = len(ours)
        ours |= {pid for pid, status in processes.items() if int(status["PPid"]) in ours}
    peaks: dict[str, float] = {}
    for pid in ours - {os.getpid()}:
        if pid in processes and "VmHWM" in processes[pid]:
            name = processes[pid]["Name"].strip()
            peak = int(processes[pid]["VmHWM"].split()[0]) * 1024 / 1e6
            peaks[name] = max(peaks.get(name, 0.0), round(peak))
    return peaks
