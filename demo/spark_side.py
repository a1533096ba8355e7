"""The demo's Spark: a small session on the metastore, and how it makes the Parquet table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from demo.spark_source import DIMENSIONS, LanceByName

CATEGORIES = ("book", "chair", "lamp", "shoe")

_ROOT = Path(__file__).parents[1]
_LOG = "spark.log"
_LOG_TAIL = 3000
_STOP_SECONDS = 20
_LOG_SETTINGS = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
"""


@contextmanager
def session(metastore_uri: str, directory: Path) -> Iterator[SparkSession]:
    """Yield a Spark session on the metastore; all its files are in ``directory``.

    What its processes print as errors goes to a log there, whose end is shown if Spark fails.
    """
    directory.mkdir()
    settings = _settings(metastore_uri, directory)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The workers import the data source from here.
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with _errors_into(directory / _LOG):
        spark = SparkSession.builder.config(map=settings).getOrCreate()
    try:
        spark.dataSource.register(LanceByName)
        yield spark
    except (PySparkException, Py4JError):
        log = (directory / _LOG).read_text(encoding="utf-8", errors="replace")
        print(f"Spark's log ends:\n{log[-_LOG_TAIL:]}", file=sys.stderr)
        raise
    finally:
        _end(spark)


def _settings(metastore_uri: str, directory: Path) -> dict[str, bool | float | int | str | None]:
    log_settings = directory / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS, encoding="utf-8")
    java_options = (
        f"-Dlog4j2.configurationFile={log_settings}",
        f"-Djava.io.tmpdir={directory}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    )
    return {
        "spark.app.name": "lance-bridge demo",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.driver.memory": "768m",
        "spark.hadoop.hive.exec.scratchdir": str(directory / "scratch"),
        "spark.hadoop.hive.metastore.uris": metastore_uri,
        "spark.local.dir": str(directory),
        "spark.master": "local[2]",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory.parent / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Give processes that are started meanwhile ``log`` for what they print as errors."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _end(spark: SparkSession) -> None:
    """Stop the session, and its JVM, which would otherwise live as long as this process."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # The JVM ends when its standard input does; its files can be removed after that.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=_STOP_SECONDS)


def parquet_statement(name: str, rows: int) -> str:
    """Return the statement that makes a Parquet table of things to buy.

    Rows of one category have embeddings that are near each other. Prices are multiples of 0.25,
    whose sum is exact in any order.
    """
    words = ", ".join(f"'{category}'" for category in CATEGORIES)
    kinds = len(CATEGORIES)
    return f"""\
CREATE TABLE {name} USING parquet AS
SELECT id, category, price, concat(category, ' no. ', id) AS title,
       transform(sequence(1, {DIMENSIONS}), i ->
           CAST(cos(i * (1 + id % {kinds})) + pmod(hash(id, i), 1000) / 2000 AS float)) AS embedding
FROM (SELECT id, 1 + (id % 400) / 4.0D AS price, array({words})[id % {kinds}] AS category
      FROM range(0, {rows}, 1, 2))"""
