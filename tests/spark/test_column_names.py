"""Names of columns that Spark or Lance does not tell apart, or does not find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.errors import AnalysisException, PySparkException

import lance_bridge_spark

from .sql_helpers import setting, stream_all
from .stored_tables import StoredTable, stored_table

pytestmark = [pytest.mark.servers, pytest.mark.spec("spark.md#row-level-changes")]

Change = Callable[[StoredTable], Any]

# -- names that differ only in letter case ---------------------------------------------------------

ALIKE = {
    "columns": {"id": [1, 9], "Id": [2, 8], "v": [3, 7]},
    "fields": {"id": [1, 9], "s": [{"a": 1, "A": 2}, {"a": 5, "A": 6}], "v": [3, 7]},
}
FUNCTIONS: dict[str, Change] = {
    "update": lambda t: lance_bridge_spark.update(t.spark, t.name, {"v": "4"}, "v = 3"),
    "delete": lambda t: lance_bridge_spark.delete(t.spark, t.name, "v = 3"),
    "merge_into": lambda t: lance_bridge_spark.merge_into(
        t.spark.sql("SELECT 3L AS v, 70L AS w"),
        t.name,
        on=["v"],
        when_matched_update={"v": "source.w"},
    ),
    "merge_into all": lambda t: lance_bridge_spark.merge_into(
        t.spark.sql("SELECT 3L AS v, 70L AS id"), t.name, on=["v"], when_matched_update="*"
    ),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", ALIKE)
def test_a_function_that_would_take_one_column_for_another_is_refused(
    spark: Any, catalog: str, kind: str, function: str
) -> None:
    rows = pa.table(ALIKE[kind])
    table = stored_table(spark, catalog, rows, "alike")
    with pytest.raises(InvalidInputError, match=r"'id' and 'Id'|'a' and 'A'"):
        FUNCTIONS[function](table)
    assert table.dataset().to_table() == rows


def test_with_letter_case_a_function_changes_what_it_names(spark: Any, catalog: str) -> None:
    table = stored_table(spark, catalog, pa.table(ALIKE["columns"]), "alike")
    with setting(spark, "spark.sql.caseSensitive", "true"):
        lance_bridge_spark.update(spark, table.name, {"Id": "id + 40"}, "v = 3")
    found = table.dataset().to_table().sort_by("v").to_pylist()
    assert found == [{"id": 1, "Id": 41, "v": 3}, {"id": 9, "Id": 8, "v": 7}]


def _source(table: StoredTable) -> Any:
    return table.spark.sql("SELECT 5L AS id, 6L AS Id, 7L AS v")


def _stream(table: StoredTable, directory: Any, **to: str) -> None:
    rows = pa.table({"id": [5], "Id": [6], "v": [7]})
    source = stored_table(table.spark, table.name.split(".")[0], rows, "source")
    writer = table.spark.readStream.table(source.name).writeStream
    if to:
        stream_all(writer.format("lance").options(**to), directory / "checkpoint")
    else:
        stream_all(writer, directory / "checkpoint", table.name)


WRITES: dict[str, Callable[[StoredTable, Any], Any]] = {
    "write": lambda t, _: lance_bridge_spark.write(_source(t), t.name, "append"),
    "writeTo": lambda t, _: _source(t).writeTo(t.name).append(),
    "insertInto": lambda t, _: _source(t).write.insertInto(t.name),
    "data source": lambda t, _: _source(t).write.format("lance").mode("append").save(t.name),
    "stream": _stream,
    "stream of the data source": lambda t, directory: _stream(t, directory, path=t.name),
}


BY_SPELLING = ("write", "data source", "stream of the data source")
"""Writes whose columns Spark does not resolve."""


@pytest.mark.parametrize("write", sorted(set(WRITES) - {*BY_SPELLING}))
def test_a_write_of_columns_that_spark_confuses_is_refused_with_their_names(
    spark: Any, catalog: str, tmp_path: Any, write: str
) -> None:
    rows = pa.table(ALIKE["columns"])
    table = stored_table(spark, catalog, rows, "alike")
    with pytest.raises((PySparkException, InvalidInputError), match=r"'id' and 'Id'|`id`"):
        WRITES[write](table, tmp_path)
    assert table.dataset().to_table() == rows


@pytest.mark.parametrize(
    ("write", "is_case_sensitive"),
    [*((each, "true") for each in WRITES), *((each, "false") for each in BY_SPELLING)],
)
def test_a_write_goes_by_the_names_as_they_are_spelled(
    spark: Any, catalog: str, tmp_path: Any, write: str, is_case_sensitive: str
) -> None:
    table = stored_table(spark, catalog, pa.table(ALIKE["columns"]), "alike")
    with setting(spark, "spark.sql.caseSensitive", is_case_sensitive):
        WRITES[write](table, tmp_path)
    [added] = table.dataset().to_table(filter="v = 7 AND id = 5").to_pylist()
    assert added == {"id": 5, "Id": 6, "v": 7}


def test_a_merge_by_a_name_that_may_mean_two_columns_is_refused(spark: Any, catalog: str) -> None:
    rows = pa.table(ALIKE["columns"])
    table = stored_table(spark, catalog, rows, "alike")
    single = stored_table(spark, catalog, pa.table({"ID": [1]}), "single")
    with setting(spark, "spark.sql.caseSensitive", "true"):
        for target in (table, single):
            with pytest.raises(InvalidInputError, match="'ID' may mean 'id' and 'Id'"):
                lance_bridge_spark.merge_into(
                    _source(table), target.name, on=["ID"], when_matched_delete=True
                )
        with pytest.raises(InvalidInputError, match="'ID' may mean 'id' and 'Id'"):
            lance_bridge_spark.update(spark, table.name, {"ID": "1"})
    assert table.dataset().to_table() == rows


def test_a_backfill_reads_and_writes_the_columns_as_they_are_spelled(
    spark: Any, catalog: str
) -> None:
    table = stored_table(spark, catalog, pa.table(ALIKE["columns"]), "alike")
    lance_bridge_spark.backfill(spark, table.name, "Id", "id * 100")
    found = table.dataset().to_table().sort_by("v").to_pylist()
    assert found == [{"id": 1, "Id": 100, "v": 3}, {"id": 9, "Id": 900, "v": 7}]


def test_an_option_that_may_mean_two_columns_is_refused(spark: Any, catalog: str) -> None:
    with setting(spark, "spark.sql.caseSensitive", "true"):
        rows = spark.sql("SELECT array(1.0f) AS v, array(2.0f) AS V")
        options = {"vector.v": 1}
        with pytest.raises(InvalidInputError, match="'v', 'V'"):
            lance_bridge_spark.write(rows, f"{catalog}.db.two_vectors", "error", **options)


# -- names that Lance does not find ----------------------------------------------------------------

BACKTICK = "a`b"
ODD = ["a b", "ä", 'a"b', "a'b", "a,b", "select", "1a", "a[0]"]
OTHERS: dict[str, str] = {
    "UPDATE": "UPDATE {t} SET v = 4 WHERE v = 3",
    "MERGE": "MERGE INTO {t} t USING (SELECT 3L k) o ON t.v = o.k "
    "WHEN MATCHED THEN UPDATE SET v = 4",
    "INSERT": "INSERT INTO {t} SELECT * FROM VALUES (5L, 6L)",
    "DELETE by Spark": "DELETE FROM {t} WHERE abs(v) < 0",
}


@pytest.mark.parametrize("statement", OTHERS)
def test_a_write_beside_a_backtick_is_refused_with_the_column(
    spark: Any, catalog: str, statement: str
) -> None:
    rows = pa.table({BACKTICK: [1, 9], "v": [3, 7]})
    table = stored_table(spark, catalog, rows, "backtick")
    with pytest.raises(AnalysisException, match="a`b") as caught:
        table.sql(OTHERS[statement])
    assert caught.value.getCondition() == "LANCE_INVALID_INPUT"
    assert table.rows("SELECT v FROM {t} ORDER BY v") == [(3,), (7,)]


def test_what_does_not_read_a_column_with_a_backtick_works(spark: Any, catalog: str) -> None:
    table = stored_table(spark, catalog, pa.table({BACKTICK: [1, 9], "v": [3, 7]}), "backtick")
    table.sql("DELETE FROM {t} WHERE v = 3")
    assert table.rows("SELECT v, v + 1 FROM {t} WHERE v > 0") == [(7, 8)]
    assert table.rows("SELECT count(*) FROM {t}") == [(1,)]
    with pytest.raises(PySparkException, match=r"LANCE_INVALID_INPUT.*a``?b"):
        table.rows("SELECT * FROM {t}")
    with pytest.raises(InvalidInputError, match="a`b"):
        lance_bridge_spark.update(spark, table.name, {"v": "4"})
    with pytest.raises(InvalidInputError, match="a`b"):
        lance_bridge_spark.backfill(spark, table.name, "w", "v + 1")
    table.sql("ALTER TABLE {t} RENAME COLUMN `a``b` TO ab")
    table.sql("UPDATE {t} SET v = 4")
    assert table.rows("SELECT * FROM {t}") == [(9, 4)]
    with pytest.raises(AnalysisException, match=r"LANCE_INVALID_INPUT.*a``?b"):
        table.sql("ALTER TABLE {t} RENAME COLUMN ab TO `a``b`")
    with pytest.raises(AnalysisException, match=r"LANCE_INVALID_INPUT.*a``?b"):
        table.sql("ALTER TABLE {t} ADD COLUMN `a``b` INT")
    with pytest.raises(AnalysisException, match=r"LANCE_INVALID_INPUT.*a``?b"):
        table.sql("CREATE TABLE {t}_new (`a``b` INT)")


def test_other_odd_names_are_as_good_as_any(spark: Any, catalog: str) -> None:
    rows = pa.table({**{name: [1, 9] for name in ODD}, "v": [3, 7]})
    table = stored_table(spark, catalog, rows, "odd")
    for statement in ("UPDATE", "MERGE", "DELETE by Spark"):
        table.sql(OTHERS[statement])
    lance_bridge_spark.update(spark, table.name, {"v": "v + 1"}, "v = 4")
    table.sql("CREATE TABLE {t}_copy AS SELECT * FROM {t}")
    found = StoredTable(spark, f"{table.name}_copy").dataset().to_table().sort_by("v").to_pylist()
    assert found == [{**row, "v": {3: 5}.get(row["v"], row["v"])} for row in rows.to_pylist()]
