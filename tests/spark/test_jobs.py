"""Jobs on one table, by Spark: compaction, indices, backfill and clean-up; no writer loses rows."""

from __future__ import annotations

import io
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.fragment import write_fragments
from lance_namespace import errors
from lance_namespace.errors import ServiceUnavailableError
from pyspark.sql import SparkSession

from lance_bridge.dataset import maintenance
from lance_bridge.requests import Ref
from lance_bridge_spark import backfill, clean_up, compact, create_index
from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.jobs.tasks import phases, send_once
from lance_bridge_spark.lookup import find_table

from .tables import DIMENSION, Interrupted, append, ids, make, numbered, rows_of

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "spark.md#backfill", "spark.md#compact", "spark.md#create_index", "spark.md#clean_up"
    ),
]

EIGHT_DAYS = 8 * 24 * 3600


# -- compaction ------------------------------------------------------------------------------------


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


# -- indices ---------------------------------------------------------------------------------------

QUERIES = np.random.default_rng(7).random((10, DIMENSION), dtype=np.float32)


def described(place: str, name: str) -> Any:
    return next(each for each in lance.dataset(place).describe_indices() if each.name == name)


def nearest(place: str, metric: str, **how: Any) -> list[set[int]]:
    """Return the numbers of the 10 rows that are nearest to each query."""
    given = {"column": "v", "k": 10, "metric": metric, **how}
    return [set(ids(place, nearest={**given, "q": each})) for each in QUERIES]


def recall(place: str, metric: str) -> float:
    """Return which part of the truth the index finds, of all partitions, without refining."""
    truth = nearest(place, metric, use_index=False)
    found = nearest(place, metric, nprobes=4)
    shares = [len(a & b) / len(a) for a, b in zip(truth, found, strict=True)]
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("column", "kind", "filter_"),
    [
        ("id", "BTREE", "id between 90 and 120"),
        ("tags", "LABEL_LIST", "array_has_any(tags, ['t1'])"),
    ],
)
def test_a_scalar_index_finds_what_a_scan_finds(
    spark: SparkSession, tmp_path: Path, column: str, kind: str, filter_: str
) -> None:
    place = make(tmp_path / "t")
    expected = ids(place, filter=filter_)

    done = create_index(spark, place, column, kind, rows_per_task=100)

    assert (done.tasks, done.segments, done.rows) == (2, 1, 200)
    assert sorted(ids(place, filter=filter_)) == expected
    plan = lance.dataset(place).scanner(filter=filter_).explain_plan()
    assert "ScalarIndexQuery" in plan
    assert described(place, f"{column}_idx").num_rows_indexed == 200


@pytest.mark.parametrize("how", [{"rows_per_task": 50}, {}, {"rows_per_task": 50, "merge": False}])
def test_a_full_text_index_ranks_as_that_of_pylance(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    place, twin = make(tmp_path / "t"), make(tmp_path / "twin")
    lance.dataset(twin).create_scalar_index("text", "INVERTED")
    create_index(spark, place, "text", "INVERTED", **how)
    query = {"full_text_query": "word3 thing17", "limit": 5}
    assert ids(place, **query) == ids(twin, **query)
    assert ids(place, **query)[0] == 17


@pytest.mark.parametrize(
    ("kind", "metric", "segments"),
    [("IVF_PQ", "l2", 1), ("IVF_PQ", "dot", 2), ("IVF_HNSW_SQ", "l2", 2), ("IVF_RQ", "cosine", 1)],
)
def test_a_vector_index_finds_about_what_that_of_pylance_finds(
    spark: SparkSession, tmp_path: Path, kind: str, metric: str, segments: int
) -> None:
    place, twin = make(tmp_path / "t", 4, 300), make(tmp_path / "twin", 4, 300)
    options: Any = {"num_sub_vectors": DIMENSION // 2} if "PQ" in kind else {}
    lance.dataset(twin).create_index("v", kind, metric=metric, num_partitions=4, **options)

    done = create_index(
        spark, place, "v", kind, metric=metric, rows_per_task=600, num_partitions=4, **options
    )

    assert (done.tasks, done.segments) == (2, segments)
    assert described(place, "v_idx").num_rows_indexed == 1200
    assert recall(place, metric) > recall(twin, metric) - 0.15
    assert recall(place, metric) > 0.3


def test_an_index_gives_way_only_where_it_is_to(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    create_index(spark, place, "id", "BTREE", name="mine", rows_per_task=50)
    append(place, 5, 1000)
    with pytest.raises(errors.TableIndexAlreadyExistsError, match="already has an index 'mine'"):
        create_index(spark, place, "id", "BTREE", name="mine")
    assert described(place, "mine").num_rows_indexed == 100
    create_index(spark, place, "id", "BTREE", name="mine", replace=True)
    assert described(place, "mine").num_rows_indexed == 105
    assert ids(place, filter="id = 1002") == [1002]


def test_rows_that_are_appended_meanwhile_are_found_without_the_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other = Interrupted(spark, lambda: append(place, 5, 1000))
    create_index(other, place, "id", "BTREE", rows_per_task=50)
    assert described(place, "id_idx").num_rows_indexed == 100
    assert sorted(ids(place, filter="id > 97")) == [98, 99, *range(1000, 1005)]


def test_fragments_that_are_rewritten_meanwhile_are_a_conflict(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t")
    other = Interrupted(spark, lance.dataset(place).optimize.compact_files)
    with pytest.raises(errors.ConcurrentModificationError):
        create_index(other, place, "id", "BTREE", rows_per_task=100)
    assert lance.dataset(place).describe_indices() == []
    assert ids(place, filter="id = 7") == [7]


def test_a_request_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    for column, kind, options, said in (
        ("id", "IVF_PQ", {}, "IVF_PQ is for a column of vectors"),
        ("id", "SOMETHING", {}, "'SOMETHING' is not known"),
        ("v", "IVF_PQ", {"num_sub_vectors": 5}, "must divide the dimension 16"),
        ("v", "IVF_PQ", {"num_parts": 5}, "num_parts is no parameter"),
        ("v", "IVF_PQ", {"num_partitions": "x"}, "num_partitions"),
        ("v", "IVF_PQ", {"metric": "far"}, "'far' is not known"),
        ("id", "BTREE", {"name": "__lance"}, "cannot be an index's name"),
        ("id", "BTREE", {"rows_per_task": 0}, "rows_per_task must be 1 or more"),
    ):
        with pytest.raises(errors.InvalidInputError, match=said):
            create_index(None, place, column, kind, **options)
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        create_index(None, place, "nope", "BTREE")
    assert lance.dataset(place).version == 1


# -- backfill --------------------------------------------------------------------------------------


def values(place: str, column: str) -> list[Any]:
    found: list[Any] = rows_of(place).column(column).to_pylist()
    return found


def test_sql_of_spark_makes_a_new_column(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t")
    lance.dataset(place).delete("id % 7 = 3")
    kept = [i for i in range(200) if i % 7 != 3]

    done = backfill(spark, place, "twice", "id * 2")

    assert values(place, "twice") == [2 * i for i in kept]
    assert rows_of(place).drop_columns("twice") == numbered_rows(kept)
    assert (done.version, done.fragments) == (6, 4)
    transaction = lance.dataset(place).read_transaction(6)
    assert transaction is not None
    assert transaction.uuid == done.transaction_id


def numbered_rows(kept: list[int]) -> pa.Table:
    whole = pa.concat_tables([numbered(50, start) for start in range(0, 200, 50)])
    return whole.filter(pc.is_in(whole.column("id"), pa.array(kept))).combine_chunks()


def test_sql_of_spark_changes_the_chosen_rows_and_no_other_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t")
    for column in ("id", "text"):
        lance.dataset(place).create_scalar_index(column, "BTREE")

    done = backfill(spark, place, "text", "concat_ws('-', 'n', id)", where="id < 70")

    assert values(place, "text")[:70] == [f"n-{i}" for i in range(70)]
    assert values(place, "text")[70:] == numbered(200).column("text").to_pylist()[70:]
    covered = {i.name: i.num_rows_indexed for i in lance.dataset(place).describe_indices()}
    assert covered == {"id_idx": 200, "text_idx": 100}
    assert done.fragments == 2
    assert lance.dataset(place).count_rows("text = 'n-42'") == 1


def test_a_new_column_is_null_where_no_row_is_chosen(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=3)
    backfill(spark, place, "a", "id + 1", where="id >= 30 and id < 60")
    backfill(
        spark,
        place,
        "b",
        lambda rows: pc.add(rows.column("id"), 1),
        where="id >= 30 and id < 60",
        data_type=pa.int64(),
    )
    expected = [i + 1 if 30 <= i < 60 else None for i in range(150)]
    assert values(place, "a") == expected
    assert values(place, "b") == expected


def test_vectors_keep_their_type(spark: SparkSession, tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    before = values(place, "v")
    backfill(spark, place, "v", "transform(v, x -> x * 2)")
    assert lance.dataset(place).schema.field("v").type == pa.list_(pa.float32(), DIMENSION)
    assert values(place, "v") == [[2 * x for x in each] for each in before]


def test_a_function_gets_the_columns_it_wants_and_may_answer_with_pandas(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)

    def lengths(rows: pa.RecordBatch) -> Any:
        assert rows.schema.names == ["text"]
        return rows.to_pandas()["text"].str.len()

    backfill(spark, place, "length", lengths, columns=["text"], data_type=pa.int32())
    assert values(place, "length") == [len(text) for text in values(place, "text")]
    assert lance.dataset(place).schema.field("length").type == pa.int32()


def broken(rows: pa.RecordBatch) -> Any:
    raise OSError(f"no model for {rows.num_rows} rows")


def short(rows: pa.RecordBatch) -> Any:
    return rows.column("id").slice(1)


@pytest.mark.parametrize(
    ("values_of", "error", "said"),
    [
        ("nope + 1", errors.TableColumnNotFoundError, "nope"),
        ("1 / (id - 5)", errors.InvalidInputError, "Division by zero"),
        ("id)", errors.InvalidInputError, "Syntax error"),
        ("sum(id)", errors.InvalidInputError, "aggregate"),
        ("sum(id) OVER (ORDER BY id)", errors.InvalidInputError, "window"),
        ("text", errors.InvalidInputError, "'id' cannot be stored"),
        (broken, errors.ServiceUnavailableError, "no model for 50 rows"),
        (short, errors.InvalidInputError, "49 values of 50 rows"),
    ],
)
def test_an_expression_or_a_function_that_does_not_fit_changes_nothing(
    spark: SparkSession, tmp_path: Path, values_of: Any, error: type[Exception], said: str
) -> None:
    place = make(tmp_path / "t", fragments=2)
    with pytest.raises(error, match=said):
        backfill(spark, place, "id", values_of)
    assert lance.dataset(place).version == 2


@pytest.mark.parametrize("column", ["twice", "text"])
def test_rows_that_are_appended_meanwhile_get_a_new_column_and_keep_one_that_was_there(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other: Any = Interrupted(spark, lambda: append(place, 5, 1000))
    backfill(other, place, column, "concat('new ', id)")
    added = [f"new {i}" for i in range(1000, 1005)]
    kept = numbered(5, 1000).column("text").to_pylist()
    expected = [f"new {i}" for i in range(100)] + (added if column == "twice" else kept)
    assert values(place, column) == expected


def test_rows_that_are_updated_meanwhile_are_a_conflict_that_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = make(tmp_path / "t", fragments=2)
    other: Any = Interrupted(
        spark, lambda: lance.dataset(place).update({"text": "'other'"}, where="id = 7")
    )
    with pytest.raises(errors.ConcurrentModificationError):
        backfill(other, place, "text", "'mine'")
    assert values(place, "text")[7] == "other"
    assert "mine" not in values(place, "text")


def test_a_request_that_does_not_fit_is_refused_before_any_task(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    bad: list[tuple[str, dict[str, Any], str]] = [
        ("new", {}, "a function needs its data_type"),
        ("ID", {"data_type": pa.int64()}, "by letter case only"),
        ("a.b", {"data_type": pa.int64()}, "cannot be a new column's name"),
        ("id", {"data_type": pa.int32()}, "is int64 already, not int32"),
        ("id", {"columns": ["nope"]}, "no column 'nope'"),
        ("id", {"where": "id +"}, "where 'id"),
        ("id", {"batch_size": 0}, "batch_size must be 1 or more"),
    ]
    for column, given, said in bad:
        with pytest.raises(errors.InvalidInputError, match=said):
            backfill(None, place, column, short, **given)
    assert lance.dataset(place).version == 1


def test_an_index_on_a_field_inside_does_not_answer_with_old_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}]}), place)
    lance.dataset(place).create_scalar_index("s.x", "BTREE")
    backfill(spark, place, "s", "named_struct('x', id + 100)")
    assert [lance.dataset(place).count_rows(f"s.x = {x}") for x in (1, 101)] == [0, 1]


def test_a_subquery_that_moves_rows_is_refused_and_fills_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": list(range(100, 0, -1))}), place)
    spark.range(50).createOrReplaceTempView("few")
    with pytest.raises(errors.InvalidInputError, match="computed row by row"):
        backfill(spark, place, "n", "id IN (SELECT /*+ MERGE(few) */ id FROM few)")
    assert lance.dataset(place).schema.names == ["id"]


# -- clean-up --------------------------------------------------------------------------------------


def left_behind(place: str, name: str, age: float) -> Path:
    """Return a data file that no version names, as a job that failed leaves it."""
    path = Path(place) / "data" / name
    path.write_bytes(b"rows that no version has")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


@pytest.mark.quick
def test_versions_that_are_young_stay(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=3)
    assert clean_up(None, place).versions == 0
    assert len(lance.dataset(place).versions()) == 3


@pytest.mark.quick
def test_old_versions_go_and_the_latest_and_tagged_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    place = make(tmp_path / "t", fragments=4)
    lance.dataset(place).tags.create("kept", 2)
    now = timedelta(microseconds=1)
    planned = clean_up(None, place, older_than=now, dry_run=True)
    assert len(lance.dataset(place).versions()) == 4
    done = clean_up(None, place, older_than=now)
    assert (planned.versions, done.versions) == (2, 2)
    assert [each["version"] for each in lance.dataset(place).versions()] == [2, 4]
    assert len(ids(place)) == 200


@pytest.mark.quick
def test_an_old_version_stays_that_was_the_latest_until_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    place = make(tmp_path / "t", fragments=2)
    listed: Any = lance.dataset(place).versions()
    made = listed[-1]["timestamp"].timestamp()
    age = timedelta(seconds=2)
    while time.time() - made < age.total_seconds():
        time.sleep(0.05)
    lance.dataset(place).delete("id < 10")
    assert clean_up(None, place, older_than=age).versions == 1
    assert [each["version"] for each in lance.dataset(place).versions()] == [2, 3]


@pytest.mark.quick
def test_files_of_failed_jobs_go_when_no_running_job_can_have_them(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=2)
    old = left_behind(place, "old.lance", EIGHT_DAYS)
    young = left_behind(place, "young.lance", 3600)
    done = clean_up(None, place)
    assert (done.data_files, old.exists(), young.exists()) == (1, False, True)
    assert len(ids(place)) == 100


@pytest.mark.quick
def test_an_age_that_is_not_safe_is_refused(tmp_path: Path) -> None:
    place = make(tmp_path / "t", fragments=1)
    with pytest.raises(errors.InvalidInputError, match="older_than must be 1:00:00 or more"):
        clean_up(None, place, older_than=timedelta(0))
    with pytest.raises(errors.InvalidInputError, match="keep_versions must be 1 or more"):
        clean_up(None, place, keep_versions=0)


class Terminal(io.StringIO):
    """A terminal that keeps what was shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.quick
@pytest.mark.spec("spark.md#jobs")
def test_phases_are_shown_on_a_terminal_only() -> None:
    pytest.importorskip("rich")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with phases("compact prod.db.t", 2, stream=stream) as shown:
            shown.begin("plan")
            shown.begin("commit")
    assert "compact prod.db.t" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert file.getvalue() == ""


# -- commits ---------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("branch", [None, "side"])
def test_a_commit_whose_reply_is_lost_is_found_on_its_branch(
    tmp_path: Path, branch: str | None
) -> None:
    place = make(tmp_path / "t", fragments=1, rows=5)
    lance.dataset(place).create_branch("side")
    table = find_table(TableAddress(location=place))
    dataset = table.open(Ref(branch=branch), write=True)
    files = write_fragments(numbered(5, 100), dataset)
    append = lance.LanceOperation.Append(files)
    transaction = lance.Transaction(read_version=dataset.version, operation=append)
    sent: list[Any] = []

    def send() -> lance.LanceDataset:
        sent.append(lance.LanceDataset.commit(dataset, transaction).version)
        raise ServiceUnavailableError("the reply is lost")

    version = send_once(
        table, dataset, send, lambda other: other.uuid == transaction.uuid, "nothing was done"
    )
    assert [version] == sent
    assert table.open(Ref(branch=branch)).count_rows() == 10
