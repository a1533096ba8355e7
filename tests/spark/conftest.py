"""A Spark session for the tests of one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .tables import unity_catalog, write_all_types

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two local threads, without Hive."""
    directory = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # For the daemon of Python workers, which is a module of the tests.
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), *([given] if given else [])])
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(directory))
        .config("spark.python.daemon.module", "servers.spark_daemon")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a catalog that all tests share, with a namespace `db`."""
    with unity_catalog(spark, "shared", tmp_path_factory.mktemp("shared")) as name:
        yield name


@pytest.fixture(scope="session")
def all_types(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory of Parquet, with rows of every type."""
    path = str(tmp_path_factory.mktemp("all_types") / "rows.parquet")
    write_all_types(spark, path)
    return path
