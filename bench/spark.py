"""Lance tables in Spark, compared with Spark's own Parquet with the same rows.

Starts a Hive Metastore and Spark on two cores, writes the rows as a Lance table through the SQL
catalog and as Parquet files, and does the same statements on both, in turns within one session;
then 22 queries like TPC-H's (`bench.tpch`), the first statements of sessions, and jobs on one core
and on two. CPU is that of the driver, its JVM, and all Python processes. Missed bars are reported
only: they are for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lance_bridge
from bench import spark_plans, tpch
from bench.runner import (
    Bar,
    Operation,
    Timed,
    at_least,
    make_report,
    make_row,
    request,
    show_progress,
)
from bench.spark_session import CATALOG, ProcessTree, Setup, Statements, measure_operations
from lance_bridge_metastore import Metastore
from lance_bridge_spark import register
from lance_bridge_spark.jobs import compact, create_index

NAMESPACE = "bench"
TABLE = f"{CATALOG}.{NAMESPACE}.rows"
"""The Lance table that is read."""
PARQUET = "parquet_rows"
"""The view of Spark's own Parquet files of the same rows."""
DIMENSIONS = 16
_WORDS = 1000
_FILES = 8
_SEED = 20
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
    parser.add_argument("--idle", type=at_least(0), default=0, help="seconds before a lookup, 300")
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")
    parser.add_argument("--no-jobs", action="store_true", help="only the statements")
    spark_plans.add_options(parser)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure statements, queries, starts and jobs."""
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-spark-", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        show_progress("writing the rows …")
        megabytes = write_source(directory / "source", options.rows)
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            setup = Setup(directory, metastore.uri, options.memory)
            tables = _measure_session(setup, options)
            tables["first_statement"] = measure_starts(setup, options.rounds)
            if not options.no_jobs:
                tables["jobs"] = measure_jobs(setup, options.rows)
    facts = {key: getattr(options, key) for key in ("rows", "scale", "rounds")}
    return make_report({**facts, "megabytes": megabytes}, tables)


def _measure_session(setup: Setup, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    with setup.session() as spark:
        tables = {"statements": measure_statements(spark, setup, options)}
        if options.scale:
            queries, mean = tpch.measure_queries(spark, setup, options.scale, options.rounds)
            tables |= {"queries": queries, "all_queries": [mean]}
        return {**tables, "plans": spark_plans.measure_plans(spark, setup, options)}


# -- the rows --------------------------------------------------------------------------------------


def write_source(directory: Path, rows: int) -> int:
    """Write the rows as Parquet files for Spark to read; return their size in MB (10^6 bytes)."""
    directory.mkdir(parents=True)
    bounds = [rows * number // _FILES for number in range(_FILES + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        path = directory / f"part-{number:03}.parquet"
        pq.write_table(_make_rows(start, stop), path, compression="snappy")
    return round(sum(each.stat().st_size for each in directory.iterdir()) / 1e6)


def _make_rows(start: int, stop: int) -> pa.Table:
    """Return rows with an id in order, a score in no order, one of 1,000 words, and a vector."""
    ids = np.arange(start, stop, dtype=np.int64)
    random = np.random.default_rng(_SEED + start)
    words = pa.array([f"word-{number:04}" for number in range(_WORDS)])
    vectors = random.random(len(ids) * DIMENSIONS, dtype=np.float32)
    offsets = np.arange(0, len(vectors) + 1, DIMENSIONS, dtype=np.int32)
    return pa.table(
        {
            "id": ids,
            "score": _scores(ids),
            "word": words.take(pa.array(random.integers(0, _WORDS, len(ids)))),
            "vector": pa.ListArray.from_arrays(pa.array(offsets), pa.array(vectors)),
        }
    )


def _scores(ids: Any) -> Any:
    """Return the scores of ids: all different, and exact as floats."""
    return (ids.astype(np.uint64) * np.uint64(2_654_435_761)) % np.uint64(2**32) + 0.5


# -- statements ------------------------------------------------------------------------------------


def measure_statements(
    spark: SparkSession, setup: Setup, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Write the tables, read them, find rows by indices; return a row for each statement."""
    namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
    request(namespace, "create_namespace", id=[NAMESPACE], mode="exist_ok")
    register(spark)
    statements, rows = Statements(spark, (TABLE, PARQUET)), options.rows
    show_progress("writing tables …")
    found = measure_operations([_write(statements, setup)], options.rounds)
    spark.read.parquet(setup.parquet).createOrReplaceTempView(PARQUET)
    show_progress("reading …")
    found += measure_operations(_reads(statements, rows), options.rounds)
    show_progress("building indices …")
    _build_indices(namespace, rows)
    show_progress("looking up rows …")
    found += measure_operations(_lookups(statements, rows), options.rounds)
    if options.idle:
        show_progress(f"waiting twice for {options.idle} s …")
        found += measure_operations([_idle_lookup(statements, rows, options.idle)], 1, rehearsals=0)
    return found


def _write(statements: Statements, setup: Setup) -> Operation:
    options = {"catalog": CATALOG, "vector.vector": str(DIMENSIONS), "overwrite_schema": "true"}

    def write(table: str, _: int) -> None:
        writer = statements.spark.read.parquet(setup.source).write
        if table == TABLE:
            writer.format("lance").options(**options).mode("overwrite").save(f"{NAMESPACE}.rows")
        else:
            shutil.rmtree(setup.parquet, ignore_errors=True)
            writer.parquet(setup.parquet)

    return statements.make("write", write, 0.8)


def _build_indices(namespace: Any, rows: int) -> None:
    path = [NAMESPACE, "rows"]
    for column in ("id", "score"):
        request(namespace, "create_table_index", id=path, column=column, index_type="BTREE")
    if rows >= _VECTORS_FOR_AN_INDEX:
        index: dict[str, Any] = {"index_type": "IVF_PQ", "distance_type": "l2"}
        request(namespace, "create_table_index", id=path, column="vector", **index)


def _reads(statements: Statements, rows: int) -> list[Operation]:
    """Return the statements that read; those that compute all columns and keep none, no rows."""
    sql, make = statements.sql, statements.make

    def consume(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ids(turn: int) -> str:
        start = _choose(turn, rows)
        return f"id BETWEEN {start} AND {start + 100}"

    def word(turn: int) -> str:
        return f"word = 'word-{_choose(turn, _WORDS):04}'"

    totals = "SELECT count(*), sum(score) FROM"
    groups = "SELECT word, count(*), sum(score) FROM {} GROUP BY word ORDER BY word"
    return [
        make("1 column", lambda t, _: sql(f"SELECT sum(score) FROM {t}"), 1.2),
        make("4 columns", lambda t, _: consume(statements.spark.table(t)), 1.3),
        make("count", lambda t, _: sql(f"SELECT count(*) FROM {t}"), 0.5),
        make("range", lambda t, n: sql(f"{totals} {t} WHERE {ids(n)}"), 0.8),
        make("equality", lambda t, n: sql(f"{totals} {t} WHERE {word(n)}"), 0.8),
        make("group by", lambda t, _: sql(groups.format(t)), 0.9),
        make("vector element", lambda t, _: sql(f"SELECT sum(vector[3]) FROM {t}")),
        make("LIMIT 100", lambda t, _: len(sql(f"SELECT * FROM {t} LIMIT 100")), 1.0, times=_TIMES),
        make("DESCRIBE", lambda t, _: _names(sql(f"DESCRIBE {t}")), cpu=0.04, times=_TIMES),
        _nearest(statements, "10 nearest, no index", 0.1),
    ]


def _names(described: Sequence[Any]) -> list[str]:
    return [row.col_name for row in described][:4]


def _lookups(statements: Statements, rows: int) -> list[Operation]:
    """Return the statements that find few rows, for which Lance has indices."""
    return [
        statements.make(
            "point lookup, in order", partial(_find, statements, rows), 0.5, cpu=0.06, times=_TIMES
        ),
        statements.make(
            "point lookup, in no order",
            lambda t, n: statements.sql(f"SELECT * FROM {t} WHERE score = {_score(n, rows)}"),
            0.05,
            cpu=0.06,
            times=_TIMES,
        ),
        _nearest(statements, "10 nearest, index", 0.02, times=_TIMES),
    ]


def _idle_lookup(statements: Statements, rows: int, seconds: int) -> Operation:
    find = partial(_find, statements, rows)
    return statements.make("lookup after rest", find, cpu=1.0, before=lambda: time.sleep(seconds))


def _find(statements: Statements, rows: int, table: str, turn: int) -> list[Any]:
    return statements.sql(f"SELECT * FROM {table} WHERE id = {_choose(turn, rows)}")


def _score(turn: int, rows: int) -> str:
    return f"{float(_scores(np.array([_choose(turn, rows)]))[0])!r}D"


def _nearest(statements: Statements, name: str, bar: float, times: int = 1) -> Operation:
    def search(table: str, turn: int) -> list[int]:
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
        return [row.id for row in statements.sql(text)]

    def is_near(ours: list[int], exact: list[int]) -> bool:
        """Return whether nine in ten of the nearest rows were found."""
        return len(ours) == len(exact) and len({*ours} & {*exact}) >= 0.9 * len(exact)

    return statements.make(name, search, bar, is_same=is_near, times=times)


def _choose(turn: int, below: int) -> int:
    return (turn * 7_919_317 + 12_345) % below


# -- starts ----------------------------------------------------------------------------------------


def measure_starts(setup: Setup, rounds: int) -> list[dict[str, Any]]:
    """Measure the first statement of sessions, each in a new process with a JVM of its own."""
    show_progress("starting sessions …")
    parquet = f"parquet.`{setup.parquet}`"

    def start(way: str, table: str, turn: int) -> Timed:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, cpu, found = pool.apply(first_statement, (setup, table, turn))
        return Timed(seconds, found, {f"{way}_cpu_s": cpu})

    ways = {"ours": partial(start, "ours", TABLE), "parquet": partial(start, "parquet", parquet)}
    operation = Operation(
        "first statement of a session",
        ways,
        lambda found, _: found["ours"] == found["parquet"] == 1,
        [Bar("ours_cpu_s", "<=", 3.0)],
        unit="s",
    )
    return measure_operations([operation], rounds, rehearsals=0)


def first_statement(setup: Setup, table: str, turn: int) -> tuple[float, float, int]:
    """Start a session and look up a row; return seconds, seconds of CPU, and how many rows."""
    with setup.session() as spark:
        tree = ProcessTree.of(spark)
        started, before = time.perf_counter(), tree.seconds()
        rows = spark.sql(f"SELECT * FROM {table} WHERE id = {turn}").collect()
        return time.perf_counter() - started, tree.seconds() - before, len(rows)


# -- jobs ------------------------------------------------------------------------------------------


def measure_jobs(setup: Setup, rows: int) -> list[dict[str, Any]]:
    """Do every job on one core and on two, each time on a new table of small files."""
    per_task = max(1, rows // _TASKS)
    jobs: dict[str, Callable[[Any, str], Any]] = {
        "compaction": lambda s, t: compact(s, t, target_rows_per_fragment=per_task),
        "BTREE index": lambda s, t: create_index(s, t, "id", "BTREE", rows_per_task=per_task),
        "full-text index": lambda s, t: create_index(
            s, t, "word", "INVERTED", rows_per_task=per_task
        ),
        "IVF_PQ index": lambda s, t: create_index(s, t, "vector", "IVF_PQ", rows_per_task=per_task),
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    wrong = dict.fromkeys(jobs, 0)
    for cores in (1, 2):
        show_progress(f"jobs on {cores} of the cores …")
        with setup.session(cores) as spark:
            register(spark)
            table = f"{CATALOG}.{NAMESPACE}.small_files_{cores}"
            per_file = str(max(1, rows // _SMALL_FILES))
            options = {"vector.vector": str(DIMENSIONS), "max_rows_per_file": per_file}
            writer = spark.read.parquet(setup.source).write.format("lance").options(**options)
            writer.mode("append").save(table)
            for name, do in jobs.items():
                started = time.perf_counter()
                do(spark, table)
                seconds[name].append(time.perf_counter() - started)
                wrong[name] += spark.read.format("lance").load(table).count() != rows
    return [
        make_row(
            {"job": name, "one_core_s": one, "two_cores_s": two, "speed_up": round(one / two, 2)},
            [],
            wrong[name],
        )
        for name, (one, two) in seconds.items()
    ]
