"""Tables with values of megabytes: every way to read and to change them, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from servers.processes import memory

import lance_bridge_spark
from lance_bridge.dataset import BATCH_BYTES, BATCH_ROWS, SCAN_BYTES
from lance_bridge_spark import backfill, compact, merge_into, update
from lance_bridge_spark.source import reading
from lance_bridge_spark.source.memory import MEMORY, scan_memory
from lance_bridge_spark.source.options import Aggregate

from .source_helpers import parts_of, read, source
from .sql_helpers import set_conf, stream_all
from .tables import StoredTable, stored_table

pytestmark = [pytest.mark.spec("spark.md#large-values")]

CELL = 2**20
FEW, MANY = 100, 2100
"""Many rows have more than the 2 GiB that a column of one batch may have."""


def pictures(rows: int, size: int = CELL, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield rows with a number, a name, and bytes that do not compress."""
    random = np.random.default_rng(first)
    for number in range(first, first + rows):
        values = {"id": [number], "name": [f"picture {number}"], "b": [random.bytes(size)]}
        yield pa.RecordBatch.from_pydict(values)


def write(place: Path, rows: int, size: int = CELL, first: int = 0) -> str:
    """Write a fragment of pictures."""
    batches = pictures(rows, size, first)
    schema = next(pictures(1, 1)).schema
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    lance.write_dataset(reader, str(place), mode="append")
    return str(place)


# -- without Spark ---------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_task_reads_large_rows_in_small_batches(tmp_path: Path) -> None:
    found = read({"path": write(tmp_path / "t", FEW // 2)})
    assert max(chunk.nbytes for chunk in found["b"].chunks) <= 1.1 * BATCH_BYTES
    assert found["id"].to_pylist() == list(range(FEW // 2))


@pytest.mark.quick
def test_the_batch_size_of_an_option_is_obeyed(tmp_path: Path) -> None:
    found = read({"path": write(tmp_path / "t", FEW // 2), "batch_size": 30})
    assert [len(chunk) for chunk in found["b"].chunks] == [30, 20]


@pytest.mark.quick
def test_other_columns_of_large_rows_have_batches_of_a_set_size(tmp_path: Path) -> None:
    rows, size = 10_000, 3000
    content = np.frombuffer(np.random.default_rng(0).bytes(rows * size), f"S{size}")
    table = pa.table({"name": [f"picture {each}" for each in range(rows)], "b": content})
    place = str(tmp_path / "t")
    lance.write_dataset(table, place)
    found = read({"path": place, "columns": "name"})
    assert max(len(chunk) for chunk in found["name"].chunks) == BATCH_ROWS


@pytest.mark.quick
def test_large_rows_are_filtered_limited_and_aggregated(tmp_path: Path) -> None:
    place = write(tmp_path / "t", 40)
    assert read({"path": place, "filter": "b is not null and id > 30"}).num_rows == 9
    assert read({"path": place, "limit": 3})["id"].to_pylist() == [0, 1, 2]
    schema = pa.schema([("c", pa.int64()), ("m", pa.int64())])
    wanted = (Aggregate("count", "b"), Aggregate("max", "id"))
    found = reading.partial_aggregates(lance.dataset(place), None, None, wanted, schema)
    assert found.to_pylist() == [{"c": 40, "m": 39}]


@pytest.mark.quick
def test_fragments_of_large_rows_are_divided_among_tasks(tmp_path: Path) -> None:
    for first in range(0, 40, 10):
        place = write(tmp_path / "t", 10, first=first)
    assert len(parts_of({"path": place, "bytes_per_task": 20 * CELL})) == 2
    assert len(parts_of({"path": place, "columns": "id", "bytes_per_task": 20 * CELL})) == 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SCAN_BYTES),
        ({MEMORY: "512m", "spark.master": "local[4]"}, 128 << 20),
        ({MEMORY: "1g", "spark.master": "local-cluster[2,4,1024]"}, 256 << 20),
        ({MEMORY: "1GB", "spark.master": "yarn", "spark.executor.cores": "8"}, 128 << 20),
        (
            {MEMORY: "1g", "spark.executor.cores": "8", "spark.task.cpus": "4"},
            512 << 20,
        ),
        ({MEMORY: "100m", "spark.master": "local[100]"}, 16 << 20),
        ({MEMORY: "4g", "spark.master": "local[*]"}, (4 << 30) // (os.cpu_count() or 1)),
        ({MEMORY: "4g", "spark.master": "local[*, 2]"}, (4 << 30) // (os.cpu_count() or 1)),
        ({MEMORY: "4g", "spark.master": "local"}, 4 << 30),
        ({MEMORY: "67108864"}, 64 << 20),
    ],
)
def test_tasks_of_an_executor_share_its_memory(settings: dict[str, str], expected: int) -> None:
    assert scan_memory(settings) == expected


@pytest.mark.quick
@pytest.mark.parametrize("text", ["much", "-1", "1.5g", "512mm"])
def test_a_memory_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a size such as 512m"):
        scan_memory({MEMORY: text})


@pytest.mark.quick
def test_less_memory_makes_smaller_batches(tmp_path: Path) -> None:
    made = source({"path": write(tmp_path / "t", 20)})
    made.memory = 32 << 20
    reader = made.reader(made.schema())
    batches = [b for part in reader.partitions() for b in reader.read(part)]
    assert {batch.num_rows for batch in batches} <= {1, 2}


# -- with Spark ------------------------------------------------------------------------------------


@pytest.fixture
def few(spark: SparkSession, catalog: str) -> StoredTable:
    """A table of pictures in two fragments."""
    rows = pa.Table.from_batches(pictures(FEW))
    return stored_table(spark, catalog, rows, max_rows_per_file=FEW // 2)


@pytest.mark.servers
@pytest.mark.parametrize("columnar", ["true", "false"])
def test_statements_read_and_change_large_values(few: StoredTable, columnar: str) -> None:
    with set_conf(few.spark, "spark.lance_bridge.columnar", columnar):
        assert few.rows("SELECT count(*), sum(length(b)) FROM {t}") == [(FEW, FEW * CELL)]
        assert few.rows("SELECT id FROM {t} WHERE length(b) > 5 AND id = 7") == [(7,)]
        ordered = few.rows("SELECT id, length(b) FROM {t} ORDER BY id DESC LIMIT 60")
        assert ordered == [(FEW - 1 - i, CELL) for i in range(60)]
    few.sql("UPDATE {t} SET name = 'new' WHERE id < 10")
    few.sql("DELETE FROM {t} WHERE length(b) > 5 AND id >= 90")
    assert few.rows("SELECT count(*), sum(length(b)) FROM {t}") == [(90, 90 * CELL)]
    assert few.rows("SELECT count(*) FROM {t} WHERE name = 'new'") == [(10,)]


@pytest.mark.servers
def test_functions_and_jobs_change_large_values(few: StoredTable) -> None:
    spark, expected = few.spark, digests(few)
    assert update(spark, few.name, {"name": "upper(name)"}, "id < 60").updated == 60
    backfill(spark, few.name, "size", sizes, columns=["b"], data_type=pa.int32())
    backfill(spark, few.name, "md5", "md5(b)")
    given = few.sql("SELECT id, 'merged' AS name FROM {t} WHERE id % 2 = 0")
    changed = merge_into(given, few.name, ["id"], when_matched_update={"name": "source.name"})
    assert changed.updated == FEW // 2
    assert compact(spark, few.name).fragments_added == 1
    assert digests(few) == expected
    assert set(few.dataset().to_table(columns=["size"])["size"].to_pylist()) == {CELL}
    assert few.rows("SELECT count(*) FROM {t} WHERE md5 = md5(b)") == [(FEW,)]
    assert few.rows("SELECT count(*) FROM {t} WHERE name = 'merged'") == [(FEW // 2,)]


def sizes(rows: pa.RecordBatch) -> pa.Array:
    """The function of a backfill; it is given no more than a batch may have."""
    assert rows.nbytes <= 1.1 * BATCH_BYTES
    return pc.binary_length(rows.column("b"))


def digests(table: StoredTable) -> list[tuple[int, int]]:
    """Return a hash of each value, read by pylance."""
    batches = table.dataset().scanner(columns=["id", "b"], batch_size=10).to_batches()
    found = [(row["id"], hash(row["b"])) for batch in batches for row in batch.to_pylist()]
    return sorted(found)


@pytest.mark.slow
def test_a_stream_passes_large_values(few: StoredTable, tmp_path: Path) -> None:
    target = StoredTable(few.spark, few.name + "_copy")
    few.sql("CREATE TABLE {t}_copy AS SELECT * FROM {t} LIMIT 0")
    stream = few.spark.readStream.table(few.name)
    stream_all(stream.writeStream, tmp_path / "checkpoint", target.name)
    assert digests(target) == digests(few)


@pytest.mark.slow
def test_a_fragment_of_more_than_two_gigabytes_is_read_and_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = write(tmp_path / "t", MANY)
    assert len(lance.dataset(place).get_fragments()) == 1
    frame = lance_bridge_spark.read(spark, place)
    total = frame.agg(F.sum(F.length("b")), F.count("id")).collect()
    assert [tuple(row) for row in total] == [(MANY * CELL, MANY)]
    backfill(spark, place, "size", sizes, columns=["b"], data_type=pa.int32())
    assert update(spark, place, {"name": "'even'"}, "id % 2 = 0").updated == MANY // 2
    assert compact(spark, place, target_rows_per_fragment=MANY).fragments_added == 1
    counted = lance_bridge_spark.read(spark, place, filter="size = 1048576 and name = 'even'")
    assert counted.count() == MANY // 2


@pytest.mark.slow
def test_an_executor_reads_values_of_ten_megabytes_in_bounded_memory(
    spark: SparkSession, catalog: str
) -> None:
    values = pictures(120, 10 * CELL)
    table = stored_table(spark, catalog, pa.Table.from_batches(values), max_rows_per_file=30)
    for _ in range(3):
        assert table.rows("SELECT sum(length(b)) FROM {t}") == [(120 * 10 * CELL,)]
    java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    peaks = [memory(each.pid, peak=True) for each in psutil.Process(java).children(recursive=True)]
    assert max(peaks) < 2 << 30  # 1.6 GB were measured


@pytest.fixture(scope="module")
def largest(spark: SparkSession, catalog: str) -> Any:
    """A table in the SQL catalog with one fragment of more than two gigabytes."""
    table = stored_table(spark, catalog, pa.Table.from_batches(pictures(1)))
    lance.write_dataset(
        pa.RecordBatchReader.from_batches(next(pictures(1, 1)).schema, pictures(MANY)),
        table.location,
        mode="overwrite",
    )
    return table


@pytest.mark.slow
@pytest.mark.parametrize("columnar", ["true", "false"])
def test_sql_sums_the_lengths_of_a_fragment_of_more_than_two_gigabytes(
    largest: StoredTable, columnar: str
) -> None:
    with set_conf(largest.spark, "spark.lance_bridge.columnar", columnar):
        assert largest.rows("SELECT sum(length(b)) FROM {t}") == [(MANY * CELL,)]
        assert largest.rows("SELECT count(*) FROM {t} WHERE length(b) > 5") == [(MANY,)]
