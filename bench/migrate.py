"""Migrations, compared with the least work that has the same result. A missed limit exits with 1.

Registers a directory of Lance tables in a Hive Metastore, planned, done, recorded and verified,
beside as many raw calls that create entries. Converts Parquet and CSV into a Lance table, beside
Spark's own copy of the files as Parquet; the second reader's share of plan and run, verification
and the memory of processes are reported too.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hmsclient.genthrift.hive_metastore.ttypes as hms
import lance
import pyarrow as pa
from servers.hive_entries import raw_client, raw_table

from bench.catalogs import thrift_proxy
from bench.processes import memory_mb, name_of, tree
from bench.runner import (
    Operation,
    Row,
    Timed,
    Way,
    at_least,
    count_calls,
    measure_in_turns,
    operation_rows,
    request,
    show_progress,
    take_turns,
)
from bench.spark import DIMENSIONS, Setup, write_source
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore
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
from lance_bridge_migrate.second_reader import check
from lance_bridge_migrate.spark.session import address_of_session
from lance_bridge_spark import register

_REGISTER_BARS = {"ratio": "< 2"}
_CONVERT_BARS = {"ratio": "<= 1.25", "second_reader_share": "<= 0.15"}
_DATABASE, _TABLE = "converted", "t"


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--part", choices=["register", "convert"], help="only this, not both")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--tables", type=at_least(1), default=1000, help="to register")
    parser.add_argument("--rows", type=at_least(1), default=10_000_000, help="to convert")
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")


def measure(options: argparse.Namespace) -> Row:
    """Measure one kind of migration or both."""
    found: Row = {}
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-migrate-", ignore_cleanup_errors=True
    ) as name:
        if options.part != "convert":
            found["register"] = measure_register(Path(name), options)
        if options.part != "register":
            found |= measure_convert(Path(name), options)
    return found


# -- register --------------------------------------------------------------------------------------


def measure_register(directory: Path, options: argparse.Namespace) -> list[Row]:
    """Time registrations in turns with raw calls, then count the calls of one more."""
    show_progress("writing tables …")
    lake = directory / "lake"
    names = [f"table_{number:05}" for number in range(options.tables)]
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    for name in names:
        lance.write_dataset(rows, str(lake / f"{name}.lance"))
    registration = Registration(lake, directory / "state", names)
    show_progress("registering …")
    with Metastore() as metastore:

        def register(uri: str, prefix: str) -> Operation:
            ways: dict[str, Way] = {
                "ours": lambda turn: registration.run(uri, f"{prefix}_{turn}"),
                "raw": lambda turn: registration.create_entries(metastore.port, f"raw_{turn}"),
            }
            return Operation(
                "register", ways, lambda a, _: bool(a["ours"]), _REGISTER_BARS, unit="s"
            )

        operation = register(metastore.uri, "ours")
        figures = take_turns([operation], options.rounds, rehearsals=0)
        with thrift_proxy(metastore.port) as wire:
            count_calls([register(wire.address, "counted")], wire, figures, 1)
    return operation_rows([operation], figures)


@dataclass(frozen=True)
class Registration:
    """What is registered."""

    lake: Path
    state: Path
    names: list[str]

    def run(self, uri: str, database: str) -> Timed:
        """Register all tables in a new database; the answer is whether all are there."""
        source, kind = Directory.at(str(self.lake)), migration_type("register")
        options = RunOptions()
        properties = {"uri": uri, "client.pool-size": str(options.parallelism)}
        with HiveNamespace(**properties) as namespace:
            request(namespace, "list_tables", id=["default"])  # connects
            endpoints = Endpoints(source, namespace, source.address, address_of(namespace))
            started = time.perf_counter()
            plan = make_plan(kind, endpoints, {"namespace": [database]})
            migration = Migrations(self.state).add(plan)
            planned = time.perf_counter()
            record = execute(kind, endpoints, migration, options)
            done = time.perf_counter()
            found = request(namespace, "list_tables", id=[database]).tables
        is_right = found == self.names and record.state is State.DONE
        return Timed(
            done - started, is_right, {"plan_s": planned - started, "run_s": done - planned}
        )

    def create_entries(self, port: int, database: str) -> Timed:
        """Create as many entries on one raw connection, sequentially."""
        with raw_client(port) as client:
            client.create_database(hms.Database(name=database))
            started = time.perf_counter()
            for name in self.names:
                client.create_table(raw_table(database, name, f"{self.lake}/{name}.lance"))
            return Timed(time.perf_counter() - started)


# -- convert ---------------------------------------------------------------------------------------


def measure_convert(directory: Path, options: argparse.Namespace) -> Row:
    """Time conversions in turns with Spark's copy; return their rows, and peaks of memory."""
    with Metastore() as metastore:
        setup = Setup(directory, metastore.uri, options.memory)
        with setup.session() as spark:
            write_source(spark, setup.source, options.rows)
            register(spark)
            write_csv(spark, setup)
            conversion = Conversion(spark, setup, options.rows)
            operations = [conversion.operation(each) for each in ("lists", "vectors", "csv")]
            show_progress("converting …")
            rows = measure_in_turns(operations, options.rounds, rehearsals=1)
            peaks: dict[str, float] = {}
            for pid in tree(os.getpid())[1:]:
                peak = round(memory_mb(pid, peak=True))
                peaks[name_of(pid)] = max(peaks.get(name_of(pid), 0), peak)
    return {"convert": rows, "peak_mb": peaks}


def write_csv(spark: Any, setup: Setup) -> None:
    """Write the rows without vectors, and with a text that has quotes, as CSV."""
    rows = spark.read.parquet(setup.source)
    text = "concat('the ', word, ', \"', CAST(id AS STRING), '\"') AS text"
    rows = rows.selectExpr("CAST(id AS STRING) AS id", "CAST(score AS STRING) AS score", text)
    rows.write.csv(_csv(setup), header=True, escape='"')


def _csv(setup: Setup) -> str:
    return str(setup.directory / "csv")


@dataclass(frozen=True)
class Conversion:
    """What is converted, and where."""

    spark: Any
    setup: Setup
    rows: int

    def operation(self, kind: str) -> Operation:
        """Return a conversion to lists, to vectors or of CSV, and the copy to compare it with."""
        ways: dict[str, Way] = {
            "ours": lambda _: self._convert(kind),
            "copy": lambda _: self._copy(kind),
        }
        name = f"convert, {kind}"
        return Operation(name, ways, lambda a, _: bool(a["ours"]), _CONVERT_BARS, unit="s")

    def _copy(self, kind: str) -> Timed:
        source, target = self._source(kind), self.setup.directory / "copied"
        reader = self.spark.read.options(**source.get("read_options", {}))
        started = time.perf_counter()
        reader.load(source["path"], source["format"]).write.parquet(str(target))
        seconds = time.perf_counter() - started
        shutil.rmtree(target)
        return Timed(seconds)

    def _source(self, kind: str) -> dict[str, Any]:
        if kind == "csv":
            read_options = {"header": "true", "escape": '"'}
            path = _csv(self.setup)
            return {"path": path, "format": "csv", "table": _TABLE, "read_options": read_options}
        return {"path": self.setup.source, "format": "parquet", "table": _TABLE}

    def _convert(self, kind: str) -> Timed:
        """Plan, run and verify a conversion; its time is that of the run."""
        find_vectors = kind == "vectors"
        options = {
            "paths": [self._source(kind)],
            "namespace": [_DATABASE],
            "find_vectors": find_vectors,
        }
        convert = migration_type("convert")
        with self._target() as namespace, seconds_of_second_reader() as second_reader:
            spark_address = address_of_session(self.spark)
            endpoints = Endpoints(self.spark, namespace, spark_address, address_of(namespace))
            at = [time.perf_counter()]
            plan = make_plan(convert, endpoints, options)
            migration = Migrations(self.setup.directory / "state").add(plan)
            at.append(time.perf_counter())
            records = [execute(convert, endpoints, migration, RunOptions(verify=Level.NONE))]
            at.append(time.perf_counter())
            share = sum(second_reader) / (at[-1] - at[0])
            for level in (Level.COUNTS, Level.CHECKSUMS):
                records.append(verify(convert, endpoints, migration, level))
                at.append(time.perf_counter())
            is_done = all(record.state is State.DONE for record in records)
            is_right = is_done and self._is_whole(namespace, kind)
        plan_s, run_s, counts_s, checksums_s = (b - a for a, b in itertools.pairwise(at))
        parts = {"plan_s": plan_s, "counts_s": counts_s, "checksums_s": checksums_s}
        return Timed(run_s, is_right, {**parts, "second_reader_share": share})

    @contextmanager
    def _target(self) -> Iterator[HiveNamespace]:
        """Yield the namespace that gets the table, which is dropped at the end."""
        root = str(self.setup.directory / "lance")
        with HiveNamespace(uri=self.setup.metastore, root=root) as namespace:
            yield namespace
            request(namespace, "drop_table", id=[_DATABASE, _TABLE])
            request(namespace, "drop_namespace", id=[_DATABASE])

    def _is_whole(self, namespace: HiveNamespace, kind: str) -> bool:
        """Return whether all rows exist, with the requested type of vectors."""
        dataset = lance.dataset(namespace_client=namespace, table_id=[_DATABASE, _TABLE])
        if dataset.count_rows() != self.rows:
            return False
        if kind == "csv":
            return bool(dataset.schema.names == ["id", "score", "text"])
        length = getattr(dataset.schema.field("vector").type, "list_size", None)
        return bool(length == (DIMENSIONS if kind == "vectors" else None))


@contextmanager
def seconds_of_second_reader() -> Iterator[list[float]]:
    """Yield the seconds of each call of the second reader from here on."""
    seconds: list[float] = []
    names = ("read_footers", "compare", "conflicts_at", "count_problems", "verify")
    with ExitStack() as patches:
        for name in names:
            timed = _timed(getattr(check, name), seconds)
            patches.enter_context(patch.object(check, name, timed))
        yield seconds


def _timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - started)

    return call
