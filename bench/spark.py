"""Lance tables in Spark, compared with Spark's own Parquet with the same rows.

Starts a Hive Metastore and Spark on two cores, writes the rows as a Lance table through the SQL
catalog and as Parquet files, and does the same statements on both, in turns within one session;
then 22 queries like TPC-H's, the first statements of sessions, and jobs on one core and on two.
CPU is that of the driver, its JVM, and all Python processes. Missed bars are reported only: they
are for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lance_bridge
from bench.processes import cpu_seconds, in_new_process
from bench.runner import (
    Bars,
    Operation,
    Row,
    Timed,
    at_least,
    make_row,
    measure_in_turns,
    request,
    show_progress,
    time_cpu,
)
from lance_bridge.locations import for_lance
from lance_bridge_metastore import Metastore
from lance_bridge_spark import compact, create_index, register, settings

CATALOG = "prod"
NAMESPACE = "bench"
TABLE = f"{CATALOG}.{NAMESPACE}.rows"
"""The Lance table that is read."""
PARQUET = "parquet_rows"
"""The view of Spark's own Parquet files of the same rows."""
DIMENSIONS = 16
_WORDS = 1000
_FACTOR, _MODULUS = 2_654_435_761, 2**32
"""The scores of ids are all different, and exact as floats."""
_FILES = 8
_VECTORS_FOR_AN_INDEX = 5000
_SMALL_FILES = 64
_TASKS = 8
_TIMES = 10
"""How often a turn does what takes milliseconds, since CPU time is counted in hundredths."""


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rows", type=at_least(1000), default=10_000_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the 22 queries; 0 for none")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="of all statements")
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")
    parser.add_argument("--no-jobs", action="store_true", help="only the statements")
    parser.add_argument("--fragments", type=at_least(2), default=10_000, help="of a table to plan")
    parser.add_argument("--versions", type=at_least(2), default=1000, help="of that table")


def measure(options: argparse.Namespace) -> Row:
    """Measure statements, queries, plans, starts and jobs."""
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-spark-", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            setup = Setup(directory, metastore.uri, options.memory)
            with setup.session() as spark:
                megabytes = write_source(spark, setup.source, options.rows)
                found: Row = {"megabytes": megabytes}
                found["statements"] = measure_statements(spark, setup, options)
                if options.scale:
                    found |= measure_queries(spark, setup, options.scale, options.rounds)
                found["plans"] = [measure_plan(spark, setup, options)]
            found["first_statement"] = measure_starts(setup, options.rounds)
            if not options.no_jobs:
                found["jobs"] = measure_jobs(setup, options.rows)
    return found


def write_source(spark: SparkSession, directory: str, rows: int) -> int:
    """Write rows as Parquet files; return their size in MB (10^6 bytes).

    They have an id in order, a score in no order, one of 1,000 words, and a vector.
    """
    show_progress("writing the rows …")
    values = (f"CAST(pmod(xxhash64(id, {n}), 65536) / 65536 AS FLOAT)" for n in range(DIMENSIONS))
    columns = [
        "id",
        f"CAST(id * {_FACTOR} % {_MODULUS} AS DOUBLE) + 0.5D AS score",
        f"format_string('word-%04d', pmod(xxhash64(id), {_WORDS})) AS word",
        f"array({', '.join(values)}) AS vector",
    ]
    spark.range(0, rows, 1, _FILES).selectExpr(*columns).write.parquet(directory)
    return round(sum(each.stat().st_size for each in Path(directory).iterdir()) / 1e6)


# -- sessions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """A directory, the metastore in it, and how much memory Spark may have."""

    directory: Path
    metastore: str
    memory: str

    @property
    def source(self) -> str:
        """Where the rows are that tables are written from."""
        return str(self.directory / "source")

    @property
    def parquet(self) -> str:
        """Where Spark's own Parquet is that is read."""
        return str(self.directory / "parquet")

    @contextmanager
    def session(
        self, cores: int = 2, more: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession]:
        """Yield a session on some cores that has the catalog by its settings alone.

        Args:
            more: Further settings.
        """
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        root = Path(__file__).parents[1]
        paths = [str(root / name) for name in ("core", "adapters", "apps", "tests", ".")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        given = {
            "spark.master": f"local[{cores}]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": self.memory,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.local.dir": str(self.directory),
            "spark.sql.warehouse.dir": str(self.directory / "spark-warehouse"),
        }
        prod = {"impl": "hive", "uri": self.metastore}
        conf: dict[str, Any] = {**settings({CATALOG: prod}, given), **(more or {})}
        spark = SparkSession.builder.config(map=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def cpu_seconds_of(spark: SparkSession) -> float:
    """Return the CPU seconds of this process and of all that a session's JVM has started.

    A metastore that runs beside it is no part of it.
    """
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    return cpu_seconds(java) + time.process_time()


def compare(
    spark: SparkSession,
    tables: Sequence[str],
    name: str,
    do: Callable[[str, int], Any],
    ratio: float | None = None,
    *,
    bars: Bars | None = None,
    is_same: Callable[[Any, Any], bool] | None = None,
    times: int = 1,
) -> Operation:
    """Return what a session does on a table and on Parquet.

    Args:
        tables: The names of both.
        do: Gets a table and a number that differs between turns.
        ratio: The bar for times of Parquet's, wall and CPU.
        times: How often a turn does it on ours.
    """
    same = is_same or are_equal

    def run(table: str, times: int, turn: int) -> Timed:
        timed = time_cpu(partial(do, table), partial(cpu_seconds_of, spark), turn, times)
        # Parquet's answer is that of the turn's own number.
        return replace(timed, answer=do(table, turn)) if times > 1 else timed

    ours, parquet = tables
    ways = {"ours": partial(run, ours, times), "parquet": partial(run, parquet, 1)}
    limits = dict.fromkeys(("ratio", "cpu_ratio"), f"<= {ratio}") if ratio else {}
    all_bars = {**limits, **(bars or {})}
    return Operation(name, ways, lambda a, _: same(a["ours"], a["parquet"]), all_bars, unit="s")


def are_equal(ours: Any, theirs: Any) -> bool:
    """Return whether rows are the same; sums of floats differ by the order of their terms."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * max(abs(ours), abs(theirs), 1.0)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(are_equal, ours, theirs))
    return bool(ours == theirs)


# -- statements ------------------------------------------------------------------------------------


def _as_many(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return len(ours) == len(theirs)


def _same_names(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return [row.col_name for row in ours[:4]] == [row.col_name for row in theirs[:4]]


_TOTALS, _GROUPED = "SELECT count(*), sum(score) FROM {t}", "SELECT word, count(*), sum(score)"
_SHORT: dict[str, Any] = {"bars": {"ours_cpu_s": "<= 0.04"}, "times": _TIMES}
_LOOKUP: dict[str, Any] = {"bars": {"ours_cpu_s": "<= 0.06"}, "times": _TIMES}
_READS: list[tuple[str, str, dict[str, Any]]] = [
    ("1 column", "SELECT sum(score) FROM {t}", {"ratio": 1.2}),
    ("count", "SELECT count(*) FROM {t}", {"ratio": 0.5}),
    ("range", _TOTALS + " WHERE id BETWEEN {id} AND {end}", {"ratio": 0.8}),
    ("equality", _TOTALS + " WHERE word = 'word-{word:04}'", {"ratio": 0.8}),
    ("group by", _GROUPED + " FROM {t} GROUP BY word ORDER BY word", {"ratio": 0.9}),
    ("vector element", "SELECT sum(vector[3]) FROM {t}", {}),
    (
        "LIMIT 100",
        "SELECT * FROM {t} LIMIT 100",
        {"ratio": 1, "is_same": _as_many, "times": _TIMES},
    ),
    ("DESCRIBE", "DESCRIBE {t}", {"is_same": _same_names, **_SHORT}),
]
_LOOKUPS: list[tuple[str, str, dict[str, Any]]] = [
    ("point lookup, in order", "SELECT * FROM {t} WHERE id = {id}", {"ratio": 0.5, **_LOOKUP}),
    (
        "point lookup, in no order",
        "SELECT * FROM {t} WHERE score = {score!r}D",
        {"ratio": 0.05} | _LOOKUP,
    ),
]
"""What finds few rows, for which Lance has indices."""


def measure_statements(spark: SparkSession, setup: Setup, options: argparse.Namespace) -> list[Row]:
    """Write the tables, read them, find rows by indices; return a row for each statement."""
    namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
    request(namespace, "create_namespace", id=[NAMESPACE], mode="exist_ok")
    register(spark)
    make = partial(compare, spark, (TABLE, PARQUET))
    measure = partial(measure_in_turns, rounds=options.rounds, rehearsals=1)
    query, search = partial(_query, spark, options.rows), partial(_search, spark)
    reads = [make(name, partial(query, text), **more) for name, text, more in _READS]
    reads.append(make("4 columns", partial(_consume, spark), 1.3))
    reads.append(make("10 nearest, no index", search, 0.1, is_same=_is_near))
    lookups = [make(name, partial(query, text), **more) for name, text, more in _LOOKUPS]
    lookups.append(make("10 nearest, index", search, 0.02, is_same=_is_near, times=_TIMES))
    show_progress("writing tables …")
    found = measure([make("write", partial(_write, spark, setup), 0.8)])
    spark.read.parquet(setup.parquet).createOrReplaceTempView(PARQUET)
    show_progress("reading …")
    found += measure(reads)
    show_progress("building indices …")
    _build_indices(namespace, options.rows)
    show_progress("looking up rows …")
    return found + measure(lookups)


def _write(spark: SparkSession, setup: Setup, table: str, _: int) -> None:
    writer = spark.read.parquet(setup.source).write
    if table == TABLE:
        options = {"catalog": CATALOG, "vector.vector": str(DIMENSIONS), "overwrite_schema": "true"}
        writer.format("lance").options(**options).mode("overwrite").save(f"{NAMESPACE}.rows")
    else:
        shutil.rmtree(setup.parquet, ignore_errors=True)
        writer.parquet(setup.parquet)


def _query(spark: SparkSession, rows: int, text: str, table: str, turn: int) -> list[Any]:
    id, word = _choose(turn, rows), _choose(turn, _WORDS)
    score = id * _FACTOR % _MODULUS + 0.5
    return spark.sql(text.format(t=table, id=id, end=id + 100, word=word, score=score)).collect()


def _consume(spark: SparkSession, table: str, _: int) -> None:
    """Compute all columns, and keep none."""
    spark.table(table).write.format("noop").mode("overwrite").save()


def _build_indices(namespace: Any, rows: int) -> None:
    path = [NAMESPACE, "rows"]
    for column in ("id", "score"):
        request(namespace, "create_table_index", id=path, column=column, index_type="BTREE")
    if rows >= _VECTORS_FOR_AN_INDEX:
        index: dict[str, Any] = {"index_type": "IVF_PQ", "distance_type": "l2"}
        request(namespace, "create_table_index", id=path, column="vector", **index)


def _search(spark: SparkSession, table: str, turn: int) -> list[int]:
    """Return the ids of the 10 nearest rows."""
    random = np.random.default_rng(turn).random(DIMENSIONS, dtype=np.float32)
    vector = [float(each) for each in random]
    if table == TABLE:
        options = {"column": "vector", "query": vector, "k": 10, "nprobes": 20, "refine": 20}
        given = ", ".join(f"`nearest.{key}` '{value}'" for key, value in options.items())
        text = f"SELECT id FROM {table} WITH ({given}) ORDER BY _distance"
    else:
        differences = (f"(vector[{n}] - {value!r}D)" for n, value in enumerate(vector))
        terms = (f"{each} * {each}" for each in differences)
        text = f"SELECT id FROM {table} ORDER BY {' + '.join(terms)} LIMIT 10"
    return [row.id for row in spark.sql(text).collect()]


def _is_near(ours: list[int], exact: list[int]) -> bool:
    """Return whether nine in ten of the nearest rows were found."""
    return len(ours) == len(exact) and len({*ours} & {*exact}) >= 0.9 * len(exact)


def _choose(turn: int, below: int) -> int:
    return (turn * 7_919_317 + 12_345) % below


# -- queries ---------------------------------------------------------------------------------------

_BAR, _BAR_OF_THE_MEAN = 2, 1.3
"""For one query and for the geometric mean of all, in times of Parquet."""
_SIZES = {"suppliers": 10_000, "customers": 150_000, "parts": 200_000, "orders": 1_500_000}
"""Of scale 1, with 6 million rows of ``lineitem``."""
_OURS, _PARQUET = f"{CATALOG}.tpch", "spark_catalog.tpch"


def measure_queries(
    spark: SparkSession, setup: Setup, scale: float, rounds: int
) -> dict[str, list[Row]]:
    """Write the tables and run each query on both; return a row for each, and one for all.

    Tables and sizes are those of TPC-H's public description; rows, words and queries are our own,
    so times compare with Spark on Parquet here, and with no published result.

    Args:
        scale: At least 0.001.
    """
    show_progress("writing the tables of the queries …")
    _write_tables(spark, setup.directory / "tpch", scale)
    queries = _statements("tpch.sql")

    def run(query: str, namespace: str, _: int) -> list[Any]:
        spark.sql(f"USE {namespace}")
        return spark.sql(query).collect()

    show_progress("running the queries …")
    make = partial(compare, spark, (_OURS, _PARQUET))
    made = [make(name, partial(run, query), _BAR) for name, query in queries.items()]
    rows = measure_in_turns(made, rounds, rehearsals=1)
    for row in rows:
        row["rows"] = len(run(queries[row["operation"]], _PARQUET, 0))
    mean = {
        key: round(statistics.geometric_mean(row[key] for row in rows), 3)
        for key in ("ratio", "cpu_ratio")
    }
    bars = dict.fromkeys(mean, f"<= {_BAR_OF_THE_MEAN}")
    all_queries = make_row({"queries": "geometric mean", **mean}, bars, 0)
    return {"queries": rows, "all_queries": [all_queries]}


def _write_tables(spark: SparkSession, directory: Path, scale: float) -> None:
    for namespace in (_OURS, _PARQUET):
        spark.sql(f"CREATE NAMESPACE {namespace}")
    sizes = {name: round(size * scale) for name, size in _SIZES.items()}
    tables = _statements("tpch_tables.sql")
    for function in tables.pop("functions").split(";"):
        spark.sql(function)
    for name, query in tables.items():
        frame = spark.sql(query, args=sizes)
        frame.write.option("path", str(directory / name)).saveAsTable(f"{_PARQUET}.{name}")
        spark.table(f"{_PARQUET}.{name}").writeTo(f"{_OURS}.{name}").create()


def _statements(file: str) -> dict[str, str]:
    """Return the statements of a file by the names above them."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    parts = re.split(r"^-- (\w+)\n", text, flags=re.MULTILINE)
    named = zip(parts[1::2], parts[2::2], strict=True)
    return {name: part.strip().removesuffix(";") for name, part in named}


# -- plans -----------------------------------------------------------------------------------------


def measure_plan(spark: SparkSession, setup: Setup, options: argparse.Namespace) -> Row:
    """Measure how long Spark plans a read of many fragments and versions, or files."""
    fragments, files = options.fragments, setup.directory / "fragments"
    show_progress(f"writing {fragments} fragments …")
    pieces = [pa.table({"id": range(10 * number, 10 * number + 10)}) for number in range(fragments)]
    namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
    path = [NAMESPACE, "fragments"]
    location = for_lance(request(namespace, "declare_table", id=path).location)
    last = min(options.versions, fragments) - 1
    for piece in [*pieces[:last], pa.concat_tables(pieces[last:])]:
        mode = "append" if Path(location).exists() else "create"
        lance.write_dataset(piece, location, mode=mode, max_rows_per_file=10)
    files.mkdir()
    for number, piece in enumerate(pieces):
        pq.write_table(piece, files / f"part-{number:05}.parquet")
    spark.read.parquet(str(files)).createOrReplaceTempView("parquet_fragments")

    def plan(table: str, turn: int) -> int:
        # Lance cannot say how many rows fulfil it, so the plan has tasks; a shuffle would run them.
        frame = spark.sql(f"SELECT id FROM {table} WHERE id % 7 <> {turn % 7}")
        return int(frame._jdf.queryExecution().toRdd().getNumPartitions())

    tables = (f"{CATALOG}.{NAMESPACE}.fragments", "parquet_fragments")
    name, bars = f"plan of {fragments} fragments", {"ours_s": "<= 2"}
    operation = compare(spark, tables, name, plan, bars=bars, is_same=lambda a, b: a > 0 and b > 0)
    [row] = measure_in_turns([operation], options.rounds, rehearsals=1)
    return row


# -- starts ----------------------------------------------------------------------------------------


def measure_starts(setup: Setup, rounds: int) -> list[Row]:
    """Measure the first statement of sessions, each in a new process with a JVM of its own."""
    show_progress("starting sessions …")
    tables = {"ours": TABLE, "parquet": f"parquet.`{setup.parquet}`"}
    ways = {
        way: partial(in_new_process, first_statement, setup, table) for way, table in tables.items()
    }
    operation = Operation(
        "first statement of a session",
        ways,
        lambda found, _: found["ours"] == found["parquet"] == 1,
        {"ours_cpu_s": "<= 3"},
        unit="s",
    )
    return measure_in_turns([operation], rounds, rehearsals=0)


def first_statement(setup: Setup, table: str, turn: int) -> Timed:
    """Start a session and look up a row; the answer is how many rows."""
    with setup.session() as spark:

        def look_up(number: int) -> int:
            return len(spark.sql(f"SELECT * FROM {table} WHERE id = {number}").collect())

        return time_cpu(look_up, partial(cpu_seconds_of, spark), turn)


# -- jobs ------------------------------------------------------------------------------------------


def measure_jobs(setup: Setup, rows: int) -> list[Row]:
    """Do every job on one core and on two, each time on a new table of small files."""
    per_task, per_file = max(1, rows // _TASKS), str(max(1, rows // _SMALL_FILES))
    index = partial(create_index, rows_per_task=per_task)
    jobs: dict[str, Callable[[Any, str], Any]] = {
        "compaction": lambda s, t: compact(s, t, target_rows_per_fragment=per_task),
        "BTREE index": lambda s, t: index(s, t, "id", "BTREE"),
        "full-text index": lambda s, t: index(s, t, "word", "INVERTED"),
        "IVF_PQ index": lambda s, t: index(s, t, "vector", "IVF_PQ"),
    }
    found: dict[str, Row] = {name: {"job": name, "wrong": 0} for name in jobs}
    for cores, key in ((1, "one_core_s"), (2, "two_cores_s")):
        show_progress(f"jobs on {cores} of the cores …")
        with setup.session(cores) as spark:
            register(spark)
            table = f"{CATALOG}.{NAMESPACE}.small_files_{cores}"
            options = {"vector.vector": str(DIMENSIONS), "max_rows_per_file": per_file}
            writer = spark.read.parquet(setup.source).write.format("lance").options(**options)
            writer.mode("append").save(table)
            for name, do in jobs.items():
                started = time.perf_counter()
                do(spark, table)
                found[name][key] = time.perf_counter() - started
                found[name]["wrong"] += spark.read.format("lance").load(table).count() != rows
    for row in found.values():
        row["times_as_fast"] = round(row["one_core_s"] / row["two_cores_s"], 2)
    return list(found.values())
