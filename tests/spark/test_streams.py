"""Streams of a session from table to table, and the maintenance of tables that they write to."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lance_bridge.dataset import maintenance
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.source.stream_maintenance import Maintenance
from lance_bridge_spark.source.stream_writer import BATCH, QUERY

from .job_tables import ids, make
from .parquet_pairs import dataset_of
from .source_helpers import ids_in, numbers
from .sql_helpers import setting, stream_all

pytestmark = [pytest.mark.spec("spark.md#streams")]


class Pipe:
    """A stream from one table to another, run until nothing is left to read."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.source = str(directory / "source.lance")
        self.sink = str(directory / "sink.lance")
        self.checkpoint = directory / "checkpoint"

    def add(self, *ids: int) -> None:
        lance.write_dataset(numbers(*ids), self.source, mode="append", max_rows_per_file=2)

    def run(self, **options: Any) -> None:
        read = self.spark.readStream.format("lance").options(**options).load(self.source)
        write = read.writeStream.format("lance").option("path", self.sink)
        stream_all(write, self.checkpoint)

    def ids(self) -> list[int]:
        return ids_in(lance.dataset(self.sink).to_table())

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as after a crash between the sink's commit and Spark's own."""
        last = max(int(each.name) for each in (self.checkpoint / "commits").glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def batches(self) -> list[tuple[str, str]]:
        """Return the query and the batch that each version of the sink is of."""
        dataset = lance.dataset(self.sink)
        found = [dataset.read_transaction(v + 1) for v in range(1, dataset.version)]
        properties = [(each.transaction_properties or {}) if each else {} for each in found]
        return [(each[QUERY], each[BATCH]) for each in properties]


@pytest.fixture
def pipe(spark: SparkSession, tmp_path: Path) -> Pipe:
    """A pipe whose source has four rows in two fragments."""
    made = Pipe(spark, tmp_path)
    lance.write_dataset(numbers(1, 2, 3, 4), made.source, max_rows_per_file=2)
    return made


@pytest.mark.servers
def test_each_row_arrives_once_through_restarts_and_repeated_batches(pipe: Pipe) -> None:
    pipe.run(max_rows_per_batch=2)
    assert pipe.ids() == [1, 2, 3, 4]
    pipe.forget_last_commit()
    pipe.add(5)
    pipe.run(max_rows_per_batch=2)
    assert pipe.ids() == [1, 2, 3, 4, 5]
    batches = pipe.batches()
    assert [batch for _, batch in batches] == ["0", "1", "2"]
    assert len({query for query, _ in batches}) == 1


@pytest.mark.slow
def test_a_batch_is_not_written_again_where_its_version_may_be_gone(pipe: Pipe) -> None:
    pipe.run()
    pipe.forget_last_commit()
    lance.write_dataset(numbers(90), pipe.sink, mode="append")
    lance.dataset(pipe.sink).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(StreamingQueryException, match=r"Whether table .* has batch 0 .* known"):
        pipe.run()
    assert pipe.ids() == [1, 2, 3, 4, 90]
    [note] = Path(pipe.sink).glob("_transactions/*.stream.json")
    note.write_text(json.dumps({"batch": 0, "since": 0, "done": True}))
    pipe.run()
    assert pipe.ids() == [1, 2, 3, 4, 90]
    pipe.add(5)
    pipe.run()
    assert pipe.ids() == [1, 2, 3, 4, 5, 90]


@pytest.mark.slow
def test_new_batches_need_no_version_of_the_batch_before(pipe: Pipe) -> None:
    pipe.run()
    lance.write_dataset(numbers(90), pipe.sink, mode="append")
    lance.dataset(pipe.sink).cleanup_old_versions(older_than=timedelta(0))
    pipe.add(5)
    pipe.run()
    assert pipe.ids() == [1, 2, 3, 4, 5, 90]


@pytest.mark.slow
def test_another_query_writes_its_own_batches(pipe: Pipe) -> None:
    pipe.run()
    pipe.checkpoint = pipe.checkpoint.with_name("another")
    pipe.run()
    assert pipe.ids() == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.slow
@pytest.mark.spec("spark.md#write-order")
def test_a_stream_sorts_each_batch(spark: Any, catalog: str, tmp_path: Path) -> None:
    table, place = f"{catalog}.db.sorted_stream", str(tmp_path / "rows")
    given = "SELECT id, concat('w', pmod(id * 7, 13)) AS word FROM range(0, 400, 1, 4)"
    spark.sql(given).write.parquet(place)
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, word STRING) "
        "TBLPROPERTIES ('write.order_by' = 'word, id DESC')"
    )
    rows = spark.readStream.schema("id BIGINT, word STRING").parquet(place)
    with setting(spark, "spark.sql.adaptive.enabled", "false"):
        stream_all(rows.writeStream.format("lance"), tmp_path / "checkpoint", table)
    written = dataset_of(spark, table)
    assert written.count_rows() == 400
    for each in written.get_fragments():
        found = each.to_table().to_pylist()
        assert found == sorted(found, key=lambda row: (row["word"], -row["id"]))


# -- maintenance -----------------------------------------------------------------------------------


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
def test_a_stream_maintains_a_table_of_a_catalog(spark: Any, catalog: str, tmp_path: Path) -> None:
    place, table = str(tmp_path / "rows"), f"{catalog}.db.maintained"
    for start in (0, 10, 20):
        spark.range(start, start + 10, 1, 1).write.parquet(place, "append")
    spark.sql(f"CREATE TABLE {table} (id BIGINT) TBLPROPERTIES ('stream.compact_every' = '2')")
    rows = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", "1").parquet(place)
    stream_all(rows.writeStream.format("lance"), tmp_path / "checkpoint", table)
    dataset = dataset_of(spark, table)
    # Three batches, and a compaction after the second.
    assert [each.count_rows() for each in dataset.get_fragments()] == [20, 10]
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(30))
