"""Streams of a session: from table to table, through restarts and batches that are sent again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lance_bridge_spark.source.stream_writer import BATCH, QUERY

from .source_helpers import ids_in, numbers

pytestmark = [pytest.mark.spark, pytest.mark.spec("spark.md#streams")]


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
        query = (
            write.option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120), "the stream did not end in time"
        finally:
            query.stop()

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
