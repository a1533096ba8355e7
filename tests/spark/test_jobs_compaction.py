"""Compaction on Spark: the rows are the same, in fewer fragments; others lose nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest
from lance_namespace import errors
from pyspark.sql import SparkSession

from lance_bridge_spark.jobs import compact

from .job_tables import Interrupted, append, ids, make, rows_of

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#compact")]


def test_a_compaction_leaves_the_rows_and_what_pylance_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=5)
    lance.dataset(place).create_scalar_index("id", "BTREE")
    lance.dataset(place).delete("id >= 60 and id < 90")
    twin = str(tmp_path / "twin")
    shutil.copytree(place, twin)
    before = rows_of(place)
    expected = lance.dataset(twin).optimize.compact_files(target_rows_per_fragment=100)

    done = compact(spark, place, target_rows_per_fragment=100)

    assert rows_of(place) == before
    assert done.fragments_removed == expected.fragments_removed
    assert done.fragments_added == expected.fragments_added
    sizes = [each.count_rows() for each in lance.dataset(place).get_fragments()]
    assert sizes == [each.count_rows() for each in lance.dataset(twin).get_fragments()]
    assert done.tasks > 1
    assert done.version == lance.dataset(place).version
    assert ids(place, filter="id = 120") == [120]


def test_a_table_without_small_fragments_stays_at_its_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=1)
    done = compact(spark, place)
    assert (done.version, done.tasks) == (1, 0)
    assert lance.dataset(place).version == 1


def test_rows_that_are_appended_meanwhile_stay(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t")
    other = Interrupted(spark, lambda: append(place, 5, 1000))
    assert compact(other, place).fragments_removed == 4
    assert sorted(ids(place)) == [*range(200), *range(1000, 1005)]


def test_rows_that_are_deleted_meanwhile_stay_deleted(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t")
    other = Interrupted(spark, lambda: lance.dataset(place).delete("id < 10"))
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        compact(other, place)
    assert ids(place) == list(range(10, 200))


def test_a_task_that_fails_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t")

    def lose() -> None:
        next(iter((tmp_path / "t" / "data").iterdir())).unlink()

    with pytest.raises(errors.ServiceUnavailableError, match="was not compacted"):
        compact(Interrupted(spark, lose), place)
    assert lance.dataset(place).version == 4


def test_what_cannot_be_compacted_is_refused_before_any_task(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    with pytest.raises(errors.InvalidInputError, match="batch_size must be 1 or more, not 0"):
        compact(None, place, batch_size=0)
    with pytest.raises(errors.TableNotFoundError, match="no Lance table"):
        compact(None, str(tmp_path / "nothing"))
