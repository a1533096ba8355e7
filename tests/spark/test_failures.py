"""No row is lost and none is doubled, though tasks and executors die, and others write at once.

The loser of a race gets an error, and a statement that fails changes nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from servers.http_proxy import Fault, HttpProxy, Request
from servers.metastores import Metastores
from servers.object_stores import MotoServer
from servers.sparks import CLUSTER, Spark

from lance_bridge_spark.addresses import catalogs_of
from lance_bridge_spark.functions.dml import update
from lance_bridge_spark.registration import register

from .processes import MARK
from .processes import ROWS as ROWS_OF_JOBS

pytestmark = pytest.mark.matrix
WRITERS = 4
ROWS = 100
STATEMENTS = 3


@pytest.mark.spec("spark.md#commits")
def test_rows_are_there_once_though_tasks_workers_and_executors_die(tmp_path: Path) -> None:
    spark = Spark(master=CLUSTER, environment={MARK: str(tmp_path / "mark")})
    found = spark.run(
        "spark.processes:append_in_spite_of_failures",
        tmp_path,
        seconds=240,
        directory=str(tmp_path),
    )
    # The empty table is a version, and so is what was appended.
    assert found == {
        "raise": [ROWS_OF_JOBS, ROWS_OF_JOBS, 2],
        "kill the worker": [ROWS_OF_JOBS, ROWS_OF_JOBS, 2],
        "kill the executor": [ROWS_OF_JOBS, ROWS_OF_JOBS, 2],
        "kill the writer": [ROWS_OF_JOBS, ROWS_OF_JOBS, 2],
    }
    assert len(list(tmp_path.glob("*.failed"))) == 3, "not all tasks have failed"
    assert (tmp_path / "mark").exists(), "no writer has died"


# -- writers at the same time ----------------------------------------------------------------------


def run_concurrently(
    spark: SparkSession, jobs: Sequence[Callable[[], Any]]
) -> list[Exception | None]:
    """Start all jobs together; return the error of each, None where it did what it should."""
    start = threading.Barrier(len(jobs))

    def do(job: Callable[[], Any]) -> Exception | None:
        _become_active(spark)
        start.wait(60)
        try:
            job()
        except (PySparkException, LanceNamespaceError) as error:
            return error
        return None

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(do, jobs))


def _become_active(spark: SparkSession) -> None:
    """Make the session that of this thread in the JVM, where writers look for it."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def write(
    spark: SparkSession, place: str, writer: int, mode: str = "append", **options: str
) -> None:
    """Write rows that tell who wrote them."""
    frame = spark.range(ROWS).selectExpr("id", f"CAST({writer} AS INT) AS writer")
    frame.write.format("lance").options(**options).mode(mode).save(place)


def rows_by_writer(place: str, **options: Any) -> dict[int, int]:
    """Return how many rows of each writer there are, and require that none is there twice."""
    rows = lance.dataset(place, **options).to_table().to_pylist()
    assert len({(row["writer"], row["id"]) for row in rows}) == len(rows)
    return dict(Counter(row["writer"] for row in rows))


@pytest.mark.spec("spark.md#save-modes")
@pytest.mark.parametrize("there", [(), (-1,)], ids=["creators", "writers"])
def test_appends_at_the_same_time_lose_no_rows(
    spark: SparkSession, tmp_path: Path, there: tuple[int, ...]
) -> None:
    place = str(tmp_path / "t.lance")
    for writer in there:
        write(spark, place, writer)
    errors = run_concurrently(spark, [partial(write, spark, place, n) for n in range(WRITERS)])
    assert errors == [None] * WRITERS
    assert rows_by_writer(place) == dict.fromkeys([*there, *range(WRITERS)], ROWS)


@pytest.mark.spec("spark.md#commits")
def test_of_overwrites_at_the_same_time_the_last_is_there_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t.lance")
    write(spark, place, -1)
    jobs = [partial(write, spark, place, n, "overwrite") for n in range(WRITERS)]
    errors = run_concurrently(spark, jobs)
    ((winner, rows),) = rows_by_writer(place).items()
    assert rows == ROWS
    assert errors[winner] is None
    for error in errors:
        assert error is None or "LANCE_CONCURRENT_MODIFICATION" in str(error), error


@pytest.mark.spec("spark.md#update")
def test_updates_at_the_same_time_each_count_once_or_fail(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "counters.lance")
    rows = pa.table({"k": list(range(10)), "n": [0] * 10})
    lance.write_dataset(rows, place, max_rows_per_file=5)
    errors = run_concurrently(
        spark, [partial(update, spark, place, {"n": "n + 1"}, retries=2)] * WRITERS
    )
    done = errors.count(None)
    assert done >= 1
    assert {type(error) for error in errors} <= {type(None), ConcurrentModificationError}
    found = lance.dataset(place).to_table().to_pylist()
    assert sorted((row["k"], row["n"]) for row in found) == [(k, done) for k in range(10)]


@pytest.mark.spec("spark.md#commits")
def test_a_commit_whose_reply_is_lost_is_made_once(spark: SparkSession) -> None:
    def is_commit(request: Request) -> bool:
        return request.method == "PUT" and "/_versions/" in request.path

    with MotoServer() as store, HttpProxy(store.endpoint) as proxy:
        place = f"{store.make_bucket('bucket')}/t.lance"
        storage = {**store.storage_options, "aws_endpoint": proxy.endpoint}
        options = {f"storage.{key}": value for key, value in storage.items()}
        write(spark, place, 0, **options)
        for mode, expected in (("append", {0: ROWS, 1: ROWS}), ("overwrite", {1: ROWS})):
            proxy.fail_next(is_commit, Fault.LOSE_REPLY)
            write(spark, place, 1, mode, **options)
            assert rows_by_writer(place, storage_options=store.storage_options) == expected
        assert [how for _, how in proxy.fired] == [Fault.LOSE_REPLY] * 2


# -- statements at the same time -------------------------------------------------------------------


@pytest.fixture(scope="module")
def namespace(spark: SparkSession, metastores: Metastores) -> Iterator[str]:
    """A database of a Hive catalog in the session."""
    register(spark, {"racing": {"impl": "hive", "uri": metastores.get("2.3").uri}})
    catalog = catalogs_of(spark)["racing"].connect()
    catalog.create_namespace(CreateNamespaceRequest(id=["races"], mode="exist_ok"))
    yield "racing.races"
    spark.sql("DROP NAMESPACE racing.races CASCADE")


def counted(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row.k, row.n) for row in spark.sql(f"SELECT k, n FROM {table}").collect())


def counters(spark: SparkSession, namespace: str, name: str) -> str:
    """Return a table of ten counters at nought."""
    table = f"{namespace}.{name}"
    spark.sql(f"CREATE TABLE {table} AS SELECT id AS k, CAST(0 AS BIGINT) AS n FROM range(10)")
    return table


def race(spark: SparkSession, statements: list[str]) -> list[int]:
    """Run statements at once, and return those that did what they should; losers say why not."""
    errors = run_concurrently(spark, [partial(spark.sql, each) for each in statements])
    for error in errors:
        lost = ("CONCURRENT_MODIFICATION", "ALREADY_EXISTS")
        assert error is None or any(word in str(error) for word in lost), error
    return [number for number, error in enumerate(errors) if error is None]


@pytest.mark.spec("spark.md#create-and-replace-with-a-query")
def test_of_creators_at_the_same_time_one_has_its_rows(spark: SparkSession, namespace: str) -> None:
    table = f"{namespace}.created"
    create = f"CREATE TABLE {table} AS SELECT id AS k, {{}} AS n FROM range(10)"
    (winner,) = race(spark, [create.format(n) for n in range(STATEMENTS)])
    assert counted(spark, table) == [(k, winner) for k in range(10)]


@pytest.mark.spec("spark.md#row-level-changes")
def test_update_statements_at_the_same_time_each_count_once_or_fail(
    spark: SparkSession, namespace: str
) -> None:
    table = counters(spark, namespace, "updated")
    done = race(spark, [f"UPDATE {table} SET n = n + 1 WHERE k < 5"] * STATEMENTS)
    assert done
    assert counted(spark, table) == [(k, len(done) if k < 5 else 0) for k in range(10)]


@pytest.mark.spec("spark.md#row-level-changes")
def test_merges_at_the_same_time_insert_a_key_once(spark: SparkSession, namespace: str) -> None:
    table = counters(spark, namespace, "merged")
    merge = (
        f"MERGE INTO {table} t USING (SELECT id AS k FROM range(5, 15)) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET t.n = t.n + 1 WHEN NOT MATCHED THEN INSERT (k, n) "
        "VALUES (s.k, 1)"
    )
    done = race(spark, [merge] * STATEMENTS)
    assert done
    assert counted(spark, table) == [(k, 0 if k < 5 else len(done)) for k in range(15)]


@pytest.mark.spec("spark.md#row-level-changes")
def test_a_statement_that_fails_leaves_the_table_as_it_was(
    spark: SparkSession, namespace: str
) -> None:
    table = counters(spark, namespace, "failed")
    bad = "IF(t.k = 7, CAST(raise_error('a bad row') AS BIGINT), t.n + 1)"
    statements = (
        f"UPDATE {table} t SET n = {bad}",
        f"INSERT OVERWRITE {table} SELECT k, {bad} FROM {table} t",
        f"MERGE INTO {table} t USING (SELECT id AS k FROM range(20)) s ON t.k = s.k "
        f"WHEN MATCHED THEN UPDATE SET t.n = {bad} "
        "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 1)",
    )
    for statement in statements:
        with pytest.raises(PySparkException, match="a bad row"):
            spark.sql(statement)
        assert counted(spark, table) == [(k, 0) for k in range(10)], statement
