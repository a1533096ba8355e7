"""Errors of tasks that write, and of commits: conditions as those of reads, and no tracebacks."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
)
from pyspark.errors import AnalysisException, PySparkException

import lance_bridge_spark as lb
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_spark.source import conversion
from lance_bridge_spark.source.worker_calls import (
    LanceError,
    condition,
    error_of_task,
    spark_call,
    spark_error,
)

from .sql_helpers import stream_all
from .tables import StoredTable, make, stored_table

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#errors-of-tasks")]

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([1, 2], pa.uint8()),
        "v": pa.FixedSizeListArray.from_arrays(pa.array([0.0, 1.0, 2.0, 3.0], pa.float32()), 2),
        "must": pa.array([1, 2], pa.int64()),
    },
    schema=pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.uint8()),
            ("v", pa.list_(pa.float32(), 2)),
            pa.field("must", pa.int64(), nullable=False),
        ]
    ),
)
GOOD = {"id": "9L", "small": "3S", "v": "array(1f, 2f)", "must": "4L"}
WRONG = {
    "a value out of range": ({"small": "300S"}, "small"),
    "a list of another length": ({"v": "array(1f)"}, "length is not 2"),
    "a null": ({"must": "nullif(id, 9L)"}, "must"),
}
"""Expressions of values that the table cannot hold, and what the error names."""


def selected(wrong: dict[str, str]) -> str:
    """Return a query of one row, in which some values are wrong."""
    values = {**GOOD, **wrong}
    columns = ", ".join(f"{value} AS {name}" for name, value in values.items() if name != "id")
    return f"SELECT id, {columns} FROM (SELECT {values['id']} AS id)"


@pytest.fixture
def table(spark: Any, catalog: str) -> StoredTable:
    return stored_table(spark, catalog, ROWS, "wrong")


def refused(call: Callable[[], Any], code: str = "LANCE_INVALID_INPUT") -> str:
    """Return the message of Spark's own error with a condition, which has no traceback."""
    with pytest.raises(AnalysisException) as caught:
        call()
    assert caught.value.getCondition() == code
    message = str(caught.value).partition("JVM stacktrace")[0]
    assert message.startswith(f"[{code}] "), message
    assert "Traceback" not in message
    return message


@pytest.mark.parametrize("what", WRONG)
def test_a_value_that_a_statement_cannot_write_is_a_condition(
    table: StoredTable, what: str
) -> None:
    wrong, named = WRONG[what]
    if what == "a null":
        # Spark checks these itself, unless it takes the column for one that has none.
        with pytest.raises(PySparkException, match="NOT_NULL"):
            table.sql(f"INSERT INTO {{t}} {selected(wrong)}")
    else:
        assert named in refused(lambda: table.sql(f"INSERT INTO {{t}} {selected(wrong)}"))
        copy = f"CREATE OR REPLACE TABLE {{t}} AS SELECT * FROM {{t}} UNION ALL {selected(wrong)}"
        assert named in refused(lambda: table.sql(copy))
    assert table.rows("SELECT id FROM {t} ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET v = array(1f)",
        "MERGE INTO {t} t USING (SELECT 1L AS k) s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET v = array(1f)",
    ],
)
def test_a_value_that_a_change_cannot_write_is_a_condition(
    table: StoredTable, statement: str
) -> None:
    assert "length is not 2" in refused(lambda: table.sql(statement))
    assert table.rows("SELECT v[0] FROM {t} ORDER BY id") == [(0.0,), (2.0,)]


def test_functions_raise_the_error_of_a_task(spark: Any, table: StoredTable) -> None:
    with pytest.raises(InvalidInputError, match="length is not 2") as updated:
        lb.update(spark, table.name, {"v": "array(1f)"})
    source = spark.sql("SELECT 1L AS id, array(1f) AS v")
    with pytest.raises(InvalidInputError, match="length is not 2") as merged:
        lb.merge_into(source, table.name, ["id"], when_matched_update={"v": "source.v"})
    for caught in (updated, merged):
        assert "Traceback" not in str(caught.value)
    assert table.rows("SELECT v[0] FROM {t} ORDER BY id") == [(0.0,), (2.0,)]


def test_a_write_whose_storage_fails_is_a_condition(table: StoredTable) -> None:
    data = Path(table.location, "data")
    shutil.rmtree(data)
    data.write_text("a file, where tasks write files")
    message = refused(
        lambda: table.sql(f"INSERT INTO {{t}} {selected({})}"), "LANCE_SERVICE_UNAVAILABLE"
    )
    assert table.name in message


def kill_worker(batches: Iterator[Any]) -> Iterator[Any]:
    """Be killed as by a system without memory."""
    for batch in batches:
        os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def test_a_task_that_is_killed_is_a_condition(spark: Any, table: StoredTable) -> None:
    spark.range(1).mapInArrow(kill_worker, "id long").createOrReplaceTempView("killed")
    query = selected({}).replace("(SELECT 9L AS id)", "killed")
    message = refused(lambda: table.sql(f"INSERT INTO {{t}} {query}"), "LANCE_SERVICE_UNAVAILABLE")
    assert "memory" in message
    place = table.location
    with pytest.raises(ServiceUnavailableError, match="memory"):
        lb.merge_into(spark.table("killed"), place, ["id"], when_matched_delete=True)


def test_a_stream_ends_with_the_condition(spark: Any, table: StoredTable, tmp_path: Path) -> None:
    source = make(tmp_path / "numbers.lance", fragments=1, rows=1)
    rows = spark.readStream.format("lance").load(source).selectExpr("id + 9 AS id")
    wrong = rows.selectExpr("id", "3S AS small", "array(1f) AS v", "4L AS must")
    with pytest.raises(PySparkException) as caught:
        stream_all(wrong.writeStream.outputMode("append"), tmp_path / "log", table.name)
    message = str(caught.value).partition("JVM stacktrace")[0]
    assert "[LANCE_INVALID_INPUT] Column 'v' has lists whose length is not 2" in message
    assert "Traceback" not in message.partition("=== Streaming Query ===")[0]


def test_the_data_source_raises_the_condition_without_a_traceback(
    spark: Any, tmp_path: Path
) -> None:
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place)
    for wrong, code in (
        (selected({"v": "array(1f)"}), "LANCE_INVALID_INPUT"),
        (f"SELECT id, 1 AS other FROM ({selected({})})", "LANCE_TABLE_SCHEMA_VALIDATION"),
    ):
        with pytest.raises(PySparkException) as caught:
            spark.sql(wrong).write.format("lance").mode("append").save(place)
        message = str(caught.value).partition("JVM stacktrace")[0]
        assert f"[{code}] " in message
        assert "Traceback" not in message
    assert lance.dataset(place).count_rows() == 2


def test_jobs_raise_the_error_of_a_task_without_its_class(spark: Any, tmp_path: Path) -> None:
    place = make(tmp_path / "t.lance", fragments=2)
    next(Path(place, "data").iterdir()).unlink()
    for job in (
        lambda: lb.compact(spark, place),
        lambda: lb.create_index(spark, place, "id", "BTREE"),
        lambda: lb.backfill(spark, place, "twice", "id * 2"),
    ):
        with pytest.raises(LanceNamespaceError) as caught:
            job()
        assert "Traceback" not in str(caught.value)
        assert not re.search(r"\w\.\w+(?:Error|Exception): ", str(caught.value))


# -- without a session -----------------------------------------------------------------------------


def test_an_error_is_found_in_what_spark_says_of_a_task() -> None:
    error = spark_error(TableColumnNotFoundError("Table 't' has no column 'x': it has a"))
    text = f"Job aborted:\nlance_bridge_spark.source.worker_calls.LanceError: {error}\n\tat x.y(Z)"
    found = error_of_task(text)
    assert isinstance(found, TableColumnNotFoundError)
    assert str(found) == "Table 't' has no column 'x': it has a"
    killed = error_of_task("SparkException: Python worker exited unexpectedly (crashed)")
    assert isinstance(killed, ServiceUnavailableError)
    assert error_of_task("[CAST_OVERFLOW] The value 9 cannot be cast") is None


def test_errors_of_our_own_have_the_condition_of_their_code() -> None:
    assert condition(OutcomeUnknownError("perhaps")) == "LANCE_SERVICE_UNAVAILABLE"


def test_a_worker_without_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(conversion, "_convert", fail)
    with (
        pytest.raises(LanceError, match=r"LANCE_SERVICE_UNAVAILABLE\] .*memoryOverhead"),
        spark_call(),
    ):
        conversion.to_lance(pa.array([1]), pa.field("id", pa.int64()))
