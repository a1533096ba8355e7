"""Tables of pictures in Spark: cells of 100 kB to 10 MB, compared with Parquet with the same cells.

Starts a Hive Metastore and Spark with two tasks, and does the same on a Lance table and on Parquet
files: count, filter, projection, join, a backfill of embeddings by a function, compaction, and an
export to Parquet. Of each it prints the wall time, and the largest resident memory: of the JVM,
which is the driver and the executor, of the largest Python process, and of all together.

By default, Spark reads Parquet in batches of 4,096 rows, and its writer checks the size of a row
group every 100 rows, which would be gigabytes. So both are 4 rows here.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import lance_bridge
from bench.processes import memory_mb, tree
from bench.runner import (
    Operation,
    Row,
    Timed,
    at_least,
    measure_in_turns,
    request,
    show_progress,
)
from bench.spark import CATALOG, NAMESPACE, Setup
from lance_bridge_metastore import Metastore
from lance_bridge_spark import backfill, compact, register

TABLE = f"{CATALOG}.{NAMESPACE}.pictures"
PARQUET = "parquet_pictures"
"""The view of Spark's own Parquet files of the same rows."""
_LABELS = 20
_FILES = 8
_SMALL_FILES = 32
_BARS = {"jvm_mb": "<= 1500", "python_mb": "<= 1500"}
_PARQUET_SETTINGS = {
    "spark.sql.parquet.columnarReaderBatchSize": "4",
    "spark.hadoop.parquet.block.size": str(32 << 20),
    "spark.hadoop.parquet.block.size.row.check.min": "1",
    "spark.hadoop.parquet.block.size.row.check.max": "4",
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.hadoop.parquet.page.size.row.check.max": "4",
    "spark.hadoop.parquet.enable.dictionary": "false",
    "spark.sql.parquet.compression.codec": "none",
}


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--pictures", type=at_least(100), default=100_000)
    parser.add_argument("--least", type=at_least(1), default=100, help="kB of a picture")
    parser.add_argument("--most", type=at_least(1), default=10_000, help="kB of a picture")
    parser.add_argument("--rounds", type=at_least(1), default=1, help="of all statements")
    parser.add_argument("--memory", default="2g", help="of Spark's driver, which does the work")


def measure(options: argparse.Namespace) -> Row:
    """Measure statements and jobs on pictures."""
    with tempfile.TemporaryDirectory(
        prefix="lance-bridge-pictures-", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            setup = Setup(directory, metastore.uri, options.memory)
            namespace = lance_bridge.connect("hive", {"uri": setup.metastore})
            request(namespace, "create_namespace", id=[NAMESPACE], mode="exist_ok")
            with setup.session(more=_PARQUET_SETTINGS) as spark:
                register(spark)
                megabytes = write_pictures(spark, setup.source, options)
                rows = measure_pictures(spark, setup, options.rounds)
    return {"megabytes": megabytes, "operations": rows}


# -- pictures --------------------------------------------------------------------------------------


def write_pictures(spark: SparkSession, directory: str, options: argparse.Namespace) -> int:
    """Write pictures as Parquet files; return their size in MB (10^6 bytes).

    They have an id, a name, one of 20 labels, and bytes that do not compress. As many pictures have
    between 100 and 200 kB as between 5 and 10 MB.
    """
    show_progress("writing the pictures …")
    make = partial(_make_pictures, options.least * 1000, options.most * 1000)
    numbers = spark.range(0, options.pictures, 1, _FILES)
    schema = "id bigint, name string, label int, picture binary"
    numbers.mapInArrow(make, schema).write.parquet(directory)
    return round(sum(each.stat().st_size for each in Path(directory).iterdir()) / 1e6)


def _make_pictures(
    least: int, most: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            random = np.random.default_rng(number)
            size = int(least * (most / least) ** random.random())
            yield pa.RecordBatch.from_pydict(
                {
                    "id": pa.array([number], pa.int64()),
                    "name": [f"picture-{number:09}.jpeg"],
                    "label": pa.array([number * 7 % _LABELS], pa.int32()),
                    "picture": pa.array([random.bytes(size)], pa.binary()),
                }
            )


def _embed(rows: pa.RecordBatch) -> pa.Array:
    """Return a number for each picture, which takes reading all of it."""
    sums = [float(np.frombuffer(each.as_buffer(), np.uint8).sum()) for each in rows["picture"]]
    return pa.array(sums, pa.float64())


def _embed_in_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("embedding", _embed(batch))


# -- memory ----------------------------------------------------------------------------------------


class Peaks:
    """The largest resident memory of a session's processes while a block runs, in MB."""

    def __init__(self, jvm: int) -> None:
        self._jvm = jvm
        self.total = 0.0
        self.jvm = 0.0
        self.python = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the JVM and all processes below it."""
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()

    def _watch(self, ended: threading.Event) -> None:
        while True:
            sizes = {pid: memory_mb(pid) for pid in tree(self._jvm)}
            self.total = max(self.total, sum(sizes.values()))
            self.jvm = max(self.jvm, sizes.pop(self._jvm, 0))
            self.python = max(self.python, *sizes.values(), 0)
            if ended.wait(0.1):
                return


# -- operations ------------------------------------------------------------------------------------

_TOTALS = "SELECT count(*), sum(length(picture)) FROM {t}"
_STATEMENTS = {
    "count": "SELECT count(*) FROM {t}",
    "filter": _TOTALS + " WHERE label = 7",
    "filter by pictures": "SELECT count(*) FROM {t} WHERE length(picture) > 1000000",
    "projection without pictures": "SELECT sum(id), count(DISTINCT name) FROM {t}",
    "projection": _TOTALS,
    "first pictures": "SELECT sum(crc32(picture)) FROM (SELECT picture FROM {t} LIMIT 50)",
    "join": "SELECT l.name, count(*), sum(length(picture)) FROM {t} JOIN labels l USING (label) "
    "GROUP BY l.name ORDER BY l.name",
}
_NOT_EQUAL = ("first pictures",)


def measure_pictures(spark: SparkSession, setup: Setup, rounds: int) -> list[Row]:
    """Write, query, change and export the pictures; return a row for each operation."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    labels = spark.range(_LABELS).selectExpr("CAST(id AS INT) label", "concat('label ', id) name")
    labels.createOrReplaceTempView("labels")

    def once(name: str, do: Callable[[str], Any]) -> Row:
        show_progress(f"{name} …")
        [row] = measure_in_turns([_operation(name, jvm, do)], 1, rehearsals=0)
        return row

    found = [once("write", partial(_write, spark, setup))]
    spark.read.parquet(setup.parquet).createOrReplaceTempView(PARQUET)
    show_progress("reading …")
    statements = [
        _operation(name, jvm, partial(_query, spark, text)) for name, text in _STATEMENTS.items()
    ]
    found += measure_in_turns(statements, rounds, rehearsals=0)
    found.append(once("export", partial(_export, spark, setup)))
    found.append(once("backfill by a function", partial(_backfill, spark, setup)))
    found.append(once("compaction", partial(_compact, spark, setup)))
    return found


def _operation(name: str, jvm: int, do: Callable[[str], Any]) -> Operation:
    """Return an operation on both tables, with its peaks of memory."""

    def run(table: str, prefix: str, _: Any) -> Timed:
        peaks, started = Peaks(jvm), time.perf_counter()
        with peaks.watched():
            answer = do(table)
        seconds = time.perf_counter() - started
        parts = {"jvm_mb": peaks.jvm, "python_mb": peaks.python, "all_mb": peaks.total}
        rounded = {f"{prefix}{key}": float(round(value)) for key, value in parts.items()}
        return Timed(seconds, answer, rounded)

    ways = {"ours": partial(run, TABLE, ""), "parquet": partial(run, PARQUET, "parquet_")}
    is_same = (lambda _a, _t: True) if name in _NOT_EQUAL else _is_same
    return Operation(name, ways, is_same, _BARS, unit="s")


def _is_same(answers: Any, _: Any) -> bool:
    return bool(answers["ours"] == answers["parquet"])


def _query(spark: SparkSession, text: str, table: str) -> list[Any]:
    return spark.sql(text.format(t=table)).collect()


def _write(spark: SparkSession, setup: Setup, table: str) -> None:
    source = spark.read.parquet(setup.source).repartition(_SMALL_FILES, "id")
    if table == TABLE:
        source.writeTo(TABLE).create()
    else:
        source.write.parquet(setup.parquet)


def _export(spark: SparkSession, setup: Setup, table: str) -> int:
    place = setup.directory / "export"
    spark.table(table).write.parquet(str(place))
    count = spark.read.parquet(str(place)).count()
    shutil.rmtree(place)
    return count


def _backfill(spark: SparkSession, setup: Setup, table: str) -> float:
    if table == TABLE:
        backfill(spark, TABLE, "embedding", _embed, columns=["picture"], data_type=pa.float64())
        return _sum(spark.table(TABLE))
    place = str(setup.directory / "embedded")
    frame = spark.table(table)
    columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in frame.schema)
    made = frame.mapInArrow(_embed_in_batches, f"{columns}, embedding double")
    made.write.parquet(place)
    found = _sum(spark.read.parquet(place))
    shutil.rmtree(place)
    return found


def _sum(frame: DataFrame) -> float:
    return float(frame.selectExpr("sum(embedding)").first()[0])  # type: ignore[index]  # one row


def _compact(spark: SparkSession, setup: Setup, table: str) -> int:
    if table == TABLE:
        compact(spark, TABLE)
        return spark.table(TABLE).count()
    place = str(setup.directory / "compacted")
    spark.table(table).coalesce(_FILES).write.parquet(place)
    return spark.read.parquet(place).count()
