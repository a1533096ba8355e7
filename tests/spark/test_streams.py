"""Streams of tables: offsets and limits of the source, and sessions that stream to tables."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, CreateTableRequest, DropTableRequest
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)
from servers.unity import UnityServer

import lance_bridge
from lance_bridge.dataset import maintenance
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.source.options import Options
from lance_bridge_spark.source.stream_read_limits import RateLimitedReader
from lance_bridge_spark.source.streams import (
    BATCH,
    FAIL,
    QUERY,
    LanceStreamReader,
    Maintenance,
    Stream,
    TableChanges,
)
from lance_bridge_spark.source.worker_calls import LanceError, LanceValueError

from .source_helpers import ids_in, numbers, sent, source
from .sql_helpers import set_conf, stream_all
from .tables import dataset_of, ids, make

pytestmark = [pytest.mark.quick, pytest.mark.spec("spark.md#stream-options", "spark.md#streams")]

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Two versions, of two fragments with two rows each."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(numbers(1, 2, 3, 4), path, max_rows_per_file=2)
    append(path, 5, 6, 7, 8)
    return path


def append(place: str, *ids: int) -> None:
    lance.write_dataset(numbers(*ids), place, mode="append", max_rows_per_file=2)


def backfill(place: str, column: str) -> None:
    """Set a column of existing rows, as a backfill commits it."""
    dataset = lance.dataset(place)
    changed, fields = list[Any](), list[int]()
    for fragment in dataset.get_fragments():
        ids = fragment.to_table(columns=[], with_row_id=True).column("_rowid")
        values = pa.table({"_rowid": ids, column: ["new"] * len(ids)})
        metadata, fields = fragment.update_columns(values, left_on="_rowid", right_on="_rowid")
        changed.append(metadata)
    update = lance.LanceOperation.Update(updated_fragments=changed, fields_modified=fields)
    lance.LanceDataset.commit(dataset, update, read_version=dataset.version)


def reader_of(path: str, **options: Any) -> RateLimitedReader:
    made = source({"path": path, **options})
    reader = made.streamReader(made.schema())
    assert isinstance(reader, RateLimitedReader)
    return reader


def unlimited(**options: str) -> LanceStreamReader:
    """Return the reader of a release without admission control."""
    made = Options(options)
    stream = Stream(made.address(), made, made.reading())
    reading, _ = stream.reading(source(options).schema(), made.reading())
    return LanceStreamReader(stream, reading)


def rows_between(reader: LanceStreamReader, start: Any, end: Any) -> list[int]:
    """Return the ids of a batch, read as tasks do."""
    batches = [
        batch for part in reader.partitions(start, end) for batch in sent(reader).read(sent(part))
    ]
    return ids_in(pa.Table.from_batches(batches, numbers(1).schema))


def begun(path: str, **options: Any) -> tuple[RateLimitedReader, Any]:
    """Return a reader, and the offset after all rows that there are now."""
    reader = reader_of(path, **options)
    return reader, reader.latestOffset(reader.initialOffset(), EVERYTHING)


def added(reader: RateLimitedReader, end: Any) -> list[int]:
    """Return the ids of the rows that there are after an offset."""
    return rows_between(reader, end, reader.latestOffset(end, EVERYTHING))


def batches_of(reader: RateLimitedReader, limit: Any = EVERYTHING) -> list[list[int]]:
    """Return the ids of all batches that there are now."""
    found, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(rows_between(reader, start, end))
        start = end
    return found


def test_a_stream_begins_with_all_rows_and_goes_on_with_new_ones(place: str) -> None:
    reader = reader_of(place)
    start = reader.initialOffset()
    first = reader.latestOffset(start, EVERYTHING)
    assert rows_between(reader, start, first) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reader.latestOffset(first, EVERYTHING) == first
    append(place, 9)
    append(place, 10)
    second = reader.latestOffset(first, EVERYTHING)
    assert rows_between(reader, first, second) == [9, 10]


def test_a_batch_is_the_same_when_it_is_read_again_by_another_process(place: str) -> None:
    reader = reader_of(place)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    append(place, 9)
    lance.dataset(place).optimize.compact_files()
    assert rows_between(reader_of(place), start, end) == rows_between(reader, start, end) == [1, 2]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (ReadMaxRows(2), [[1, 2], [3, 4], [5, 6], [7, 8]]),
        (ReadMaxRows(5), [[1, 2, 3, 4], [5, 6, 7, 8]]),
        (ReadMaxRows(1), [[1, 2], [3, 4], [5, 6], [7, 8]]),
        (ReadMaxFiles(3), [[1, 2, 3, 4, 5, 6], [7, 8]]),
        (ReadMinRows(8), [[1, 2, 3, 4, 5, 6, 7, 8]]),
        (ReadMinRows(9), []),
    ],
)
@pytest.mark.parametrize("options", [{}, {"start_version": 1}])
def test_batches_are_no_larger_than_admitted(
    place: str, limit: Any, expected: list[list[int]], options: dict[str, Any]
) -> None:
    assert batches_of(reader_of(place, **options), limit) == expected


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_rows_per_batch": 6}, ReadMaxRows(6)),
        ({"max_fragments_per_batch": 6}, ReadMaxFiles(6)),
        ({}, EVERYTHING),
    ],
)
def test_an_option_says_how_much_to_admit(place: str, options: dict[str, Any], limit: Any) -> None:
    assert reader_of(place, **options).getDefaultReadLimit() == limit


def test_a_stream_begins_at_a_version(place: str) -> None:
    append(place, 9)
    assert batches_of(reader_of(place, start_version=2)) == [[5, 6, 7, 8, 9]]
    assert batches_of(reader_of(place, start_version="latest")) == []
    reader = reader_of(place, start_version="latest")
    start = reader.initialOffset()
    append(place, 10)
    assert added(reader, start) == [10]


def test_available_now_ends_with_the_version_of_its_beginning(place: str) -> None:
    reader = reader_of(place)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    append(place, 9)
    end = reader.latestOffset(start, EVERYTHING)
    assert rows_between(reader, start, end) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reader.latestOffset(end, EVERYTHING) == end


def test_compactions_indices_and_new_columns_add_no_rows(place: str) -> None:
    reader, end = begun(place, columns="id,word")
    dataset = lance.dataset(place)
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    dataset.add_columns({"twice": "id * 2"})
    passed = reader.latestOffset(end, EVERYTHING)
    assert reader.partitions(end, passed) == []
    assert reader.latestOffset(passed, EVERYTHING) == passed
    lance.dataset(place).insert(pa.table({"id": [9], "word": ["w9"], "twice": [18]}))
    assert added(reader, passed) == [9]


@pytest.mark.parametrize("column", ["beside", "alone"])
def test_a_dropped_column_changes_no_rows(place: str, column: str) -> None:
    """The column is in one file with others, or in files of its own."""
    rows = numbers(1, 2).append_column("beside", pa.array([1, 2]))
    lance.write_dataset(rows, place, mode="overwrite").add_columns({"alone": "id * 2"})
    reader, end = begun(place, columns="id,word")
    lance.dataset(place).drop_columns([column])
    append(place, 9)
    assert added(reader, end) == [9]


def test_a_compaction_is_read_without_the_version_before_it(place: str) -> None:
    lance.dataset(place).optimize.compact_files()
    dataset = lance.dataset(place)
    begun = int(dataset.version) - 1
    for version in (begun, begun + 1):
        dataset.tags.create(f"v{version}", version)
    append(place, 9)
    lance.dataset(place).cleanup_old_versions(
        older_than=timedelta(0), error_if_tagged_old_versions=False
    )
    dataset = lance.dataset(place)
    assert begun - 1 not in {each["version"] for each in dataset.versions()}
    changes = TableChanges("t", FAIL)
    assert [changes.of(dataset, each) for each in (begun, begun + 1)] == [[], []]


def test_a_compaction_that_moves_an_index_adds_no_rows(place: str) -> None:
    lance.dataset(place).create_scalar_index("id", "BTREE")
    reader, end = begun(place)
    lance.dataset(place).optimize.compact_files()
    append(place, 9)
    assert added(reader, end) == [9]


@pytest.mark.parametrize(
    "change",
    ["delete", "overwrite", "update", "restore", "backfill", "backfill of nulls", "new type"],
)
def test_a_version_that_changes_rows_ends_the_stream_or_is_left_out(
    place: str, change: str
) -> None:
    if change == "backfill of nulls":
        lance.dataset(place).add_columns(pa.field("later", pa.string()))
    strict, end = begun(place, columns="id,word")
    lenient = reader_of(place, columns="id,word", on_change="skip")
    dataset: Any = lance.dataset(place)
    if change == "delete":
        dataset.delete("id = 1")
    elif change == "update":
        dataset.update({"word": "'new'"}, where="id = 1")
    elif change == "overwrite":
        lance.write_dataset(numbers(1), place, mode="overwrite")
    elif change.startswith("backfill"):
        backfill(place, "later" if change == "backfill of nulls" else "word")
    elif change == "new type":
        for kind in (pa.large_string(), pa.string()):
            dataset.alter_columns({"path": "word", "data_type": kind})
    else:
        dataset.checkout_version(1).restore()
    append(place, 9)
    with pytest.raises(LanceError, match=r"changes or deletes rows.*on_change"):
        strict.latestOffset(end, EVERYTHING)
    assert added(lenient, end) == [9]


def test_a_version_that_was_cleaned_up_is_named(place: str) -> None:
    reader = reader_of(place, start_version=1)
    start = reader.initialOffset()
    lance.dataset(place).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(LanceError, match=r"Version 1 of table .* does not exist"):
        reader.latestOffset(start, EVERYTHING)


def test_a_stream_needs_no_version_that_it_has_passed(place: str) -> None:
    _, end = begun(place)
    append(place, 9)
    clean_up(place)
    second = reader_of(place)
    after = second.latestOffset(end, EVERYTHING)
    assert rows_between(second, end, after) == [9]
    lance.dataset(place).create_scalar_index("id", "BTREE")
    passed = reader_of(place).latestOffset(after, EVERYTHING)
    clean_up(place)
    append(place, 10)
    third = reader_of(place)
    assert added(third, passed) == [10]


def clean_up(place: str) -> None:
    lance.dataset(place).cleanup_old_versions(older_than=timedelta(0))
    assert len(lance.dataset(place).versions()) == 1


def test_a_filter_is_applied_to_a_stream(place: str) -> None:
    assert batches_of(reader_of(place, filter="id > 6")) == [[7, 8]]


# -- tables that were recreated ------------------------------------------------------------------


def test_a_stream_ends_if_its_table_was_recreated(tmp_path: Path) -> None:
    with UnityServer() as server:
        server.add_catalog("main")
        properties = {"host": server.url, "root": str(tmp_path)}
        namespace = lance_bridge.connect("unity", properties)
        namespace.create_namespace(CreateNamespaceRequest(id=["main", "db"]))

        def create() -> None:
            made = namespace.create_table(CreateTableRequest(id=["main", "db", "t"]), numbers(1))
            append(str(made.location), 2)

        create()
        options = {"impl": "unity", "path": "main.db.t", **properties}
        reader = reader_of(**options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, EVERYTHING)
        assert rows_between(reader, start, end) == [1, 2]
        assert reader.latestOffset(end, EVERYTHING) == end
        namespace.drop_table(DropTableRequest(id=["main", "db", "t"]))
        create()  # as many versions as before
        for again in (reader, reader_of(**options)):
            with pytest.raises(LanceError, match=r"'unity\.main\.db\.t' was recreated"):
                again.latestOffset(end, EVERYTHING)
            with pytest.raises(LanceError, match="was recreated"):
                again.partitions(end, unlimited(**options).latestOffset())
        # The offsets of earlier releases have no identity.
        old = {key: value for key, value in end.items() if key != "entry"}
        assert reader.latestOffset(old, EVERYTHING) == old
        after = unlimited(**options).latestOffset()
        assert rows_between(reader, old, after) == []
        assert after["entry"] != end["entry"]


def test_a_stream_ends_if_its_location_has_fewer_versions_than_it_has_read(place: str) -> None:
    reader, end = begun(place)
    shutil.rmtree(place)
    append(place, 9)
    message = r"The latest version .* is 1, and the stream has read version 2: .*new checkpoint"
    with pytest.raises(LanceError, match=message):
        reader_of(place).latestOffset(end, EVERYTHING)
    with pytest.raises(LanceError, match=message):
        reader.partitions(end, unlimited(path=place).latestOffset())


def test_a_stream_can_begin_at_a_version_that_does_not_exist_yet(place: str) -> None:
    reader = reader_of(place, start_version=4)
    start = reader.initialOffset()
    assert reader.latestOffset(start, EVERYTHING) == start
    append(place, 9)
    append(place, 10)
    assert added(reader, start) == [10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 1}, "'version' is for reads of one version"),
        ({"limit": 1}, "'limit' is for reads of one version"),
        ({"on_change": "ignore"}, "'on_change' must be one of fail, skip"),
        ({"start_version": "first"}, "'start_version' must be a whole number"),
        ({"filter": "nope = 1"}, "there is no column"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    place: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((LanceError, LanceValueError), match=message):
        reader_of(place, **options)


def test_a_release_without_admission_reads_all_there_is_in_one_batch(place: str) -> None:
    reader = unlimited(path=place)
    start, end = reader.initialOffset(), reader.latestOffset()
    assert rows_between(reader, start, end) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert reader.latestOffset() == end
    append(place, 9, 10, 11)
    append(place, 12)
    after = unlimited(path=place).latestOffset()
    assert rows_between(reader, end, after) == [9, 10, 11, 12]


def test_a_branch_is_streamed(place: str) -> None:
    branch = lance.dataset(place).create_branch("side")
    lance.write_dataset(numbers(20), branch, mode="append")
    append(place, 30)
    reader = reader_of(place, branch="side")
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    assert rows_between(reader, start, end) == [1, 2, 3, 4, 5, 6, 7, 8, 20]
    branch = lance.dataset(place).checkout_version(("side", None))
    lance.write_dataset(numbers(21), branch, mode="append")
    assert added(reader, end) == [21]


# -- streams of a session, from table to table -----------------------------------------------------


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
    with set_conf(spark, "spark.sql.adaptive.enabled", "false"):
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
