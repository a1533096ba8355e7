"""Writers at the same time lose no row and double none; the loser of a race gets an error."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError
from pyspark.sql import SparkSession
from servers.http_proxy import Fault, HttpProxy, Request
from servers.objectstore import MotoServer

from lance_bridge_spark.functions import merge_into, update

from .concurrency import run_concurrently

pytestmark = [pytest.mark.spark, pytest.mark.matrix]
WRITERS = 4
ROWS = 100


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


def test_creators_at_the_same_time_lose_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    errors = run_concurrently(spark, [partial(write, spark, place, n) for n in range(WRITERS)])
    assert errors == [None] * WRITERS
    assert rows_by_writer(place) == dict.fromkeys(range(WRITERS), ROWS)


def test_appends_at_the_same_time_lose_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    write(spark, place, -1)
    errors = run_concurrently(spark, [partial(write, spark, place, n) for n in range(WRITERS)])
    assert errors == [None] * WRITERS
    assert rows_by_writer(place) == dict.fromkeys(range(-1, WRITERS), ROWS)


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


def test_updates_at_the_same_time_each_count_once_or_fail(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = counters(tmp_path)
    errors = run_concurrently(
        spark, [partial(update, spark, place, {"n": "n + 1"}, retries=2)] * WRITERS
    )
    done = errors.count(None)
    assert done >= 1
    assert {type(error) for error in errors} <= {type(None), ConcurrentModificationError}
    assert counted(place) == dict.fromkeys(range(10), done)


def test_merges_at_the_same_time_insert_a_key_once(spark: SparkSession, tmp_path: Path) -> None:
    place = counters(tmp_path)
    source = spark.range(5, 15).selectExpr("id AS k", "CAST(1 AS BIGINT) AS n")
    merge = partial(
        merge_into,
        source,
        place,
        ["k"],
        when_matched_update={"n": "target.n + 1"},
        when_not_matched_insert="*",
        retries=2,
    )
    errors = run_concurrently(spark, [merge] * WRITERS)
    done = errors.count(None)
    assert done >= 1
    assert {type(error) for error in errors} <= {type(None), ConcurrentModificationError}
    assert counted(place) == {k: 0 if k < 5 else done for k in range(15)}


def counters(directory: Path) -> str:
    """Return a table of ten counters at nought, in two fragments."""
    place = str(directory / "counters.lance")
    rows = pa.table({"k": list(range(10)), "n": [0] * 10})
    lance.write_dataset(rows, place, max_rows_per_file=5)
    return place


def counted(place: str) -> dict[int, int]:
    """Return the counters by key, and require that no key is there twice."""
    rows = lance.dataset(place).to_table().to_pylist()
    found = {row["k"]: row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_an_update_that_fails_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = counters(tmp_path)
    with pytest.raises(Exception, match="no such row"):
        update(spark, place, {"n": "IF(k = 7, raise_error('no such row'), n + 1)"})
    assert counted(place) == dict.fromkeys(range(10), 0)
    assert lance.dataset(place).version == 1


@pytest.mark.server
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
