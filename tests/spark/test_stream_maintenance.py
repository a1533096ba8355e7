"""Streams compact and clean up the tables that they write to, as properties of these say."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from lance_bridge.dataset import maintenance
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.source.stream_maintenance import Maintenance

from .catalogs import unity_catalog
from .job_tables import ids, make
from .sql_helpers import described

pytestmark = pytest.mark.spec("spark.md#streams")


def stated(**properties: str) -> Maintenance | None:
    named = {f"stream.{name}": value for name, value in properties.items()}
    return Maintenance.of(cast("Any", SimpleNamespace(name="db.t", properties=named)))


@pytest.mark.quick
def test_properties_say_when_and_what() -> None:
    assert stated() is None
    assert stated(compact_every="3") == Maintenance(3)
    both = stated(compact_every="3", clean_up_after_hours="24")
    assert both == Maintenance(3, timedelta(hours=24))


@pytest.mark.quick
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", "many", "1" * 7, "٣"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    for name in ("compact_every", "clean_up_after_hours"):
        with pytest.raises(InvalidInputError, match=rf"stream\.{name} of table 'db\.t'"):
            stated(**{"compact_every": "1", name: value})


@pytest.mark.quick
def test_an_age_without_a_number_of_batches_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"requires stream\.compact_every"):
        stated(clean_up_after_hours="1")


@pytest.mark.quick
def test_the_table_is_compacted_and_cleaned_up_when_it_is_the_batchs_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    place = make(tmp_path / "t", fragments=4)
    before = ids(place)
    maintain = Maintenance(3, timedelta(microseconds=1))
    for batch in (0, 1):
        maintain.run(TableAddress(location=place), batch)
    assert lance.dataset(place).version == 4
    maintain.run(TableAddress(location=place), 2)
    dataset = lance.dataset(place)
    assert len(dataset.get_fragments()) == 1
    assert len(dataset.versions()) == 1
    assert ids(place) == before


@pytest.mark.quick
def test_a_maintenance_that_fails_is_logged_and_does_not_fail_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = make(tmp_path / "t", fragments=2)

    def refuse(_table: Any) -> None:
        raise ConcurrentModificationError("rows changed meanwhile")

    monkeypatch.setattr("lance_bridge.dataset.compact", refuse)
    with caplog.at_level(logging.WARNING):
        Maintenance(1).run(TableAddress(location=place), 6)
    [record] = caplog.records
    assert "was not maintained after batch 6: rows changed meanwhile" in record.getMessage()


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_maintains_a_table_of_a_catalog(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        spark.range(number * 10, number * 10 + 10, 1, 1).write.parquet(
            str(tmp_path / "rows"), "append"
        )

    with unity_catalog(spark, "streams", tmp_path) as catalog:
        table = f"{catalog}.db.t"
        spark.sql(f"CREATE TABLE {table} (id BIGINT) TBLPROPERTIES ('stream.compact_every' = '2')")
        rows = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", "1")
        query = (
            rows.parquet(str(tmp_path / "rows"))
            .writeStream.format("lance")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .toTable(table)
        )
        assert query.awaitTermination(120)
        dataset = lance.dataset(described(spark, table)["Location"])
    # Three batches, and a compaction after the second.
    assert [each.count_rows() for each in dataset.get_fragments()] == [20, 10]
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(30))
