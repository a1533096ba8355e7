"""A session of Spark that runs for longer than the secrets of its catalog are valid."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from servers.unity import UnityServer

from lance_bridge_spark.registration import register

from .python_processes import the_pid

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.spec("common.md#secrets-that-change", "spark.md#credentials"),
]


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    with UnityServer() as server:
        server.add_catalog("main")
        server.token = "first-hush"
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own: a session keeps its catalogs."""
    return f"renewed_{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def file(spark: Any, unity: UnityServer, name: str, tmp_path: Path) -> Path:
    """The file of secrets of a catalog with a table, which the session has read."""
    file = tmp_path / "secrets.yaml"
    file.write_text("token: first-hush\n")
    given = {"impl": "unity", "host": unity.url, "catalog": "main", "root": str(tmp_path / "lake")}
    register(spark, {name: {**given, "secrets.file": str(file)}})
    spark.sql(f"CREATE NAMESPACE {name}.db")
    spark.sql(f"CREATE TABLE {name}.db.t (id BIGINT)")
    spark.sql(f"INSERT INTO {name}.db.t VALUES (1)")
    return file


def rows(spark: Any, name: str) -> list[int]:
    return sorted(row.id for row in spark.table(f"{name}.db.t").collect())


def test_the_process_of_the_driver_goes_on_with_the_new_secret(
    spark: Any, unity: UnityServer, name: str, file: Path
) -> None:
    assert rows(spark, name) == [1]
    pid = the_pid(spark)
    for number, token in enumerate(("second-hush", "third-hush"), start=2):
        unity.token = token
        file.write_text(f"token: {token}\n")
        spark.sql(f"INSERT INTO {name}.db.t VALUES ({number})")
        assert rows(spark, name) == list(range(1, number + 1))
    assert the_pid(spark) == pid


def test_a_secret_that_is_the_same_is_named(
    spark: Any, unity: UnityServer, name: str, file: Path
) -> None:
    unity.token = "second-hush"
    with pytest.raises(PySparkException, match=r"secrets\.file, and are the same") as caught:
        spark.sql(f"SHOW TABLES IN {name}.db").collect()
    assert "hush" not in str(caught.value)
    file.write_text("token: second-hush\n")
    assert rows(spark, name) == [1]
