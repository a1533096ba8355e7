"""Sessions of Spark that measure: where things are, and the settings that all have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.spark_steps import CATALOG, PARQUET


@dataclass(frozen=True)
class Place:
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
    place: Place, cores: int = 2, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Lend a session on so many cores, with the catalog and the view of the Parquet files."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = Path(__file__).parents[1]
    paths = [str(root / name) for name in ("core", "adapters", "tests")] + [str(root)]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": place.memory,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.local.dir": str(place.directory),
        "spark.sql.warehouse.dir": str(place.directory / "spark-warehouse"),
        f"spark.sql.catalog.{CATALOG}.impl": "hive",
        f"spark.sql.catalog.{CATALOG}.uri": place.metastore,
        **(more or {}),
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        from lance_bridge.spark import register  # noqa: PLC0415 - Spark is running by now

        register(spark)
        if Path(place.parquet).exists():
            spark.read.parquet(place.parquet).createOrReplaceTempView(PARQUET)
        yield spark
    finally:
        spark.stop()
