"""Lance tables in Spark, compared with Spark's own Parquet with the same rows.

Starts a Hive Metastore and Spark on two cores, writes the rows as a Lance table through the SQL
catalog and as Parquet files, and does the same statements on both, in turns within one session.
Then builds indices and compacts on one core and on two. Missed bars are reported only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lance_bridge
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
from lance_bridge_metastore import Metastore
from lance_bridge_spark import register
from lance_bridge_spark.jobs import compact, create_index

CATALOG, NAMESPACE = "prod", "bench"
TABLE = f"{CATALOG}.{NAMESPACE}.rows"
"""The Lance table that is read."""
PARQUET = "parquet_rows"
"""The view of Spark's own Parquet files of the same rows."""
DIMENSIONS = 16
_WORDS = 1000
_FILES = 8
_SEED = 20
_WRITES = 2
_VECTORS_FOR_AN_INDEX = 5000
_SMALL_FILES = 64
_TASKS = 8


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rows", type=at_least(1000), default=10_000_000)
    parser.add_argument("--rounds", type=at_least(1), default=5, help="of all statements")
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")
    parser.add_argument("--no-jobs", action="store_true", help="only the statements")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure statements, then jobs."""
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-spark-", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        show_progress("writing the rows …")
        megabytes = write_source(directory / "source", options.rows)
        warehouse = directory / "warehouse"
        with Metastore("2.3", directory / "hms", warehouse=warehouse) as metastore:
            setup = Setup(directory, metastore.uri, options.memory)
            tables = {"statements": measure_statements(setup, options.rows, options.rounds)}
            if not options.no_jobs:
                tables["jobs"] = measure_jobs(setup, options.rows)
    facts = {"rows": options.rows, "megabytes": megabytes, "rounds": options.rounds}
    return make_report(facts, tables)


# -- the rows and the session ----------------------------------------------------------------------


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
    def session(self, cores: int = 2) -> Iterator[SparkSession]:
        """Yield a session with the catalog, on some cores."""
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        root = Path(__file__).parents[1]
        paths = [str(root / name) for name in ("core", "adapters", "apps", "tests", ".")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        settings: dict[str, Any] = {
            "spark.master": f"local[{cores}]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": self.memory,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.local.dir": str(self.directory),
            "spark.sql.warehouse.dir": str(self.directory / "spark-warehouse"),
            f"spark.sql.catalog.{CATALOG}.impl": "hive",
            f"spark.sql.catalog.{CATALOG}.uri": self.metastore,
        }
        spark = SparkSession.builder.config(map=settings).getOrCreate()
        try:
            register(spark)
            yield spark
        finally:
            spark.stop()


# -- statements ------------------------------------------------------------------------------------


def measure_statements(setup: Setup, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Write the tables, read them, find rows by indices; return a row for each statement."""
    namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
    request(namespace, "create_namespace", id=[NAMESPACE], mode="exist_ok")
    found = []

    def measure_all(operations: list[Operation], rounds: int) -> None:
        figures = take_turns(operations, rounds, rehearsals=1)
        for operation in operations:
            found.append(operation_row(operation, figures[operation.name]))

    with setup.session() as spark:
        show_progress("writing tables …")
        measure_all([_write(spark, setup)], min(rounds, _WRITES))
        spark.read.parquet(setup.parquet).createOrReplaceTempView(PARQUET)
        show_progress("reading …")
        measure_all(_reads(spark, rows), rounds)
        show_progress("building indices …")
        _build_indices(namespace, rows)
        show_progress("looking up rows …")
        measure_all(_lookups(spark, rows), rounds)
    return found


def _statement(
    name: str,
    do: Callable[[str, int], Any],
    bar: float | None = None,
    is_same: Callable[[Any, Any], bool] | None = None,
    rounds: int | None = None,
) -> Operation:
    """Return a statement; it gets the table or the view of Parquet, and the number of the turn."""
    ways = {"ours": lambda turn: do(TABLE, turn), "parquet": lambda turn: do(PARQUET, turn)}
    same = is_same or _are_equal

    def is_right(found: Mapping[str, Any], _: int) -> bool:
        return same(found["ours"], found["parquet"])

    bars = [] if bar is None else [Bar("ratio", "<=", bar)]
    return Operation(name, ways, is_right, bars, rounds=rounds, unit="s")


def _write(spark: SparkSession, setup: Setup) -> Operation:
    options = {"catalog": CATALOG, "vector.vector": str(DIMENSIONS), "overwrite_schema": "true"}

    def write(table: str, _: int) -> None:
        writer = spark.read.parquet(setup.source).write
        if table == TABLE:
            writer.format("lance").options(**options).mode("overwrite").save(f"{NAMESPACE}.rows")
        else:
            shutil.rmtree(setup.parquet, ignore_errors=True)
            writer.parquet(setup.parquet)

    return _statement("write", write, 1.0)


def _build_indices(namespace: Any, rows: int) -> None:
    path = [NAMESPACE, "rows"]
    for column in ("id", "score"):
        request(namespace, "create_table_index", id=path, column=column, index_type="BTREE")
    if rows >= _VECTORS_FOR_AN_INDEX:
        index: dict[str, Any] = {"index_type": "IVF_PQ", "distance_type": "l2"}
        request(namespace, "create_table_index", id=path, column="vector", **index)


def _reads(spark: SparkSession, rows: int) -> list[Operation]:
    """Return the statements that read; those that compute all columns and keep none, no rows."""

    def sql(text: str) -> Any:
        return spark.sql(text).collect()

    def consume(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ids(turn: int) -> str:
        start = _choose(turn, rows)
        return f"id BETWEEN {start} AND {start + 100}"

    def word(turn: int) -> str:
        return f"word = 'word-{_choose(turn, _WORDS):04}'"

    totals = "SELECT count(*), sum(score) FROM"
    return [
        _statement("4 columns", lambda t, _: consume(spark.table(t))),
        _statement("1 column", lambda t, _: sql(f"SELECT sum(score) FROM {t}"), 2.0),
        _statement("range filter", lambda t, n: sql(f"{totals} {t} WHERE {ids(n)}"), 2.0),
        _statement("equality filter", lambda t, n: sql(f"{totals} {t} WHERE {word(n)}"), 1.2),
        _statement("count", lambda t, _: sql(f"SELECT count(*) FROM {t}"), 1.2),
        _statement(
            "group by",
            lambda t, _: sql(
                f"SELECT word, count(*), sum(score) FROM {t} GROUP BY word ORDER BY word"
            ),
            1.2,
        ),
        _statement("vector element", lambda t, _: sql(f"SELECT sum(vector[3]) FROM {t}")),
        _statement("limit", lambda t, _: len(sql(f"SELECT * FROM {t} LIMIT 100"))),
    ]


def _lookups(spark: SparkSession, rows: int) -> list[Operation]:
    """Return the statements that find few rows, for which Lance has indices."""

    def find(table: str, column: str, value: Any) -> Any:
        return spark.sql(f"SELECT * FROM {table} WHERE {column} = {value}").collect()

    def score(turn: int) -> str:
        return f"{float(_scores(np.array([_choose(turn, rows)]))[0])!r}D"

    def nearest(table: str, turn: int) -> list[int]:
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

    def is_near(ours: list[int], exact: list[int]) -> bool:
        """Return whether nine in ten of the nearest rows were found."""
        return len(ours) == len(exact) and len({*ours} & {*exact}) >= 0.9 * len(exact)

    return [
        _statement("point lookup, sorted", lambda t, n: find(t, "id", _choose(n, rows)), 0.1),
        _statement("point lookup, unsorted", lambda t, n: find(t, "score", score(n)), 0.1),
        _statement("vector search", nearest, 0.1, is_near, rounds=2),
    ]


def _choose(turn: int, below: int) -> int:
    return (turn * 7_919_317 + 12_345) % below


def _are_equal(ours: Any, theirs: Any) -> bool:
    """Return whether rows are the same; sums of floats differ by the order of their terms."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * max(abs(ours), abs(theirs), 1.0)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_are_equal, ours, theirs))
    return bool(ours == theirs)


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
