"""Every type of Arrow and Lance in every statement: the same values, or a refusal with the name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import arrow_types
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, as_numbers, plain, rows_of
from pyspark.errors import PySparkException

import lance_bridge_spark
from lance_bridge_spark.source.stored_types import as_new

from .parquet_pairs import LOCAL_ROWS
from .sql_helpers import setting, stream_all
from .stored_tables import StoredTable, stored_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#reading-types", "spark.md#writing-types"),
]

Values = dict[int, dict[str, Any]]
"""The values of columns by the id of their row."""

REFUSED: Mapping[str, str] = {
    "null": "void",
}
"""Types that statements which write them refuse, by name, and a word of the refusal."""


def test_every_type_of_pyarrow_and_pylance_is_decided() -> None:
    assert arrow_types.undecided() == []


DECLARED = "blob by metadata"
NOT_OVERWRITTEN = ("in a list", "in a list of structs")
"""Shapes of the type `DECLARED` of which an overwrite is refused."""


def columns_of(case: TypeCase, rows: int = 0, left_out: Sequence[str] = ()) -> pa.Table:
    """Return rows with a column for each of `SHAPES`, in this order: `c0` to `c3`.

    Args:
        left_out: Shapes of the type `DECLARED` to leave out.
    """
    shapes = [shape for shape in SHAPES if case.name != DECLARED or shape not in left_out]
    tables = [rows_of(case, shape, rows) for shape in shapes]
    found = tables[0].select(["id", "n"])
    for number, table in enumerate(tables):
        field = table.schema.field("c").with_name(f"c{number}")
        found = found.append_column(field, table.column("c"))
    return found


def wide_rows(cases: Sequence[TypeCase], left_out: Sequence[str] = ()) -> pa.Table:
    """Return rows with columns of all types and shapes: `t0_c0` and so on; see `columns_of`."""
    most = max(len(case.values) for case in cases) + 2
    tables = [columns_of(case, most, left_out) for case in cases]
    rows = tables[0].select(["id", "n"])
    for number, table in enumerate(tables):
        for field in list(table.schema)[2:]:
            renamed = field.with_name(f"t{number}_{field.name}")
            rows = rows.append_column(renamed, table.column(field.name))
    return rows


def stored(table: StoredTable) -> Values:
    """Return the values in the table, as pylance reads them."""
    return values_of(table.dataset().to_table(blob_handling="all_binary"))


def values_of(found: pa.Table) -> Values:
    """Return the values of columns by the ids of their rows."""
    ids = found["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    columns = {name: plain(found[name]) for name in found.schema.names if name not in ("id", "n")}
    return {
        each: {name: values[place] for name, values in columns.items()}
        for place, each in enumerate(ids)
    }


# -- reads -----------------------------------------------------------------------------------------

IN_TASKS = {LOCAL_ROWS: "0"}
BY_WORKERS = {**IN_TASKS, "spark.lance_bridge.columnar": "false"}
READS: dict[str, tuple[str, Mapping[str, str]]] = {
    "on the driver": ("SELECT * FROM {t}", {}),
    "in tasks": ("SELECT * FROM {t}", IN_TASKS),
    "by Python workers": ("SELECT * FROM {t}", BY_WORKERS),
    "with a filter of Lance": ("SELECT * FROM {t} WHERE id >= 0", IN_TASKS),
    "with a filter of Spark": ("SELECT * FROM {t} WHERE abs(n) > 0", IN_TASKS),
    "sorted": ("SELECT * FROM {t} ORDER BY n, id LIMIT 100", IN_TASKS),
}
"""Queries of all rows, and the session's settings for them."""


def wrong_values(found: pa.Table, expected: Values) -> dict[str, str]:
    """Return the columns with other values than the expected ones."""
    values = values_of(found)
    assert set(values) == set(expected)
    return {
        f"{column} of row {key}": f"{row[column]} != {values[key].get(column)}"[:300]
        for key, row in expected.items()
        for column in row
        if values[key].get(column) != row[column]
    }


@pytest.fixture(scope="module")
def all_types_once(spark: Any, catalog: str) -> StoredTable:
    """A table of all types, which tests only read."""
    return stored_table(spark, catalog, wide_rows(CASES), "read")


@pytest.mark.parametrize("read", READS)
def test_a_query_of_all_types_has_the_values_of_pylance(
    all_types_once: StoredTable, read: str
) -> None:
    table, (query, settings) = all_types_once, READS[read]
    assert stored(table) == values_of(wide_rows(CASES))
    with ExitStack() as stack:
        for key, value in settings.items():
            stack.enter_context(setting(table.spark, key, value))
        found = table.sql(query).toArrow()
    assert wrong_values(found, values_of(wide_rows([as_numbers(case) for case in CASES]))) == {}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_function_and_a_stream_read_the_values_of_pylance(
    all_types_once: StoredTable, tmp_path: Any, shape: str
) -> None:
    table = all_types_once
    spark, number = table.spark, list(SHAPES).index(shape)
    expected = {
        key: {name: value for name, value in row.items() if name.endswith(f"_c{number}")}
        for key, row in values_of(wide_rows([as_numbers(case) for case in CASES])).items()
    }
    names = ["id", *expected[0]]
    found = lance_bridge_spark.read(spark, table.name).select(*names).toArrow()
    assert wrong_values(found, expected) == {}
    query = (
        spark.readStream.table(table.name)
        .select(*names)
        .writeStream.format("memory")
        .queryName(f"read{number}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert wrong_values(spark.table(f"read{number}").toArrow(), expected) == {}


# -- statements ------------------------------------------------------------------------------------

Statement = Callable[[StoredTable, Any], StoredTable]


def _changed(statement: str) -> Statement:
    def run(table: StoredTable, _: Any) -> StoredTable:
        table.sql(statement)
        return table

    return run


def _insert(table: StoredTable, _: Any) -> StoredTable:
    rest = ", ".join(table.dataset().schema.names[1:])
    table.sql(f"INSERT INTO {{t}} SELECT id + 100, {rest} FROM {{t}}")
    found = stored(table)
    first = {key: row for key, row in found.items() if key < 100}
    assert {key - 100: row for key, row in found.items() if key >= 100} == first
    table.sql("DELETE FROM {t} WHERE id >= 100")
    return table


def _create(table: StoredTable, _: Any) -> StoredTable:
    table.sql(f"CREATE TABLE {table.name}_ctas AS SELECT * FROM {{t}}")
    return StoredTable(table.spark, f"{table.name}_ctas")


def _dataframe(table: StoredTable, _: Any) -> StoredTable:
    lance_bridge_spark.write(lance_bridge_spark.read(table.spark, table.name), f"{table.name}_df")
    return StoredTable(table.spark, f"{table.name}_df")


def _stream(table: StoredTable, directory: Any) -> StoredTable:
    copy = StoredTable(table.spark, f"{table.name}_stream")
    table.sql(f"CREATE TABLE {copy.name} AS SELECT * FROM {{t}} LIMIT 0")
    rows = table.spark.readStream.table(table.name)
    stream_all(rows.writeStream, directory / "checkpoint", copy.name)
    return copy


def _function(table: StoredTable, _: Any) -> StoredTable:
    lance_bridge_spark.update(table.spark, table.name, {"n": "n + 1"}, "id = 1")
    return table


_SOURCE = "MERGE INTO {t} t USING (SELECT 1L AS k) s ON t.id = s.k"
STATEMENTS: dict[str, Statement] = {
    "ALTER TABLE ADD COLUMN": _changed("ALTER TABLE {t} ADD COLUMN added STRING"),
    "UPDATE": _changed("UPDATE {t} SET n = n + 1 WHERE id = 1"),
    "update": _function,
    "MERGE": _changed(f"{_SOURCE} WHEN MATCHED THEN UPDATE SET n = 7"),
    "DELETE by Lance": _changed("DELETE FROM {t} WHERE id = -1"),
    "DELETE by Spark": _changed("DELETE FROM {t} WHERE abs(n) < 0"),
    "INSERT OVERWRITE": _changed("INSERT OVERWRITE {t} SELECT * FROM {t}"),
    "INSERT": _insert,
    "CREATE TABLE AS SELECT": _create,
    "DataFrame": _dataframe,
    "stream": _stream,
}


def outcomes(table: StoredTable, directory: Any, names: Mapping[str, str]) -> dict[str, str]:
    """Run all statements, and return what is wrong with which.

    Args:
        names: A name that a refusal must contain, by word that makes it a refusal.
    """
    expected, wrong = stored(table), {}
    types = table.dataset().schema
    for name, statement in STATEMENTS.items():
        (directory / name).mkdir()
        try:
            result = statement(table, directory / name)
        except PySparkException as error:
            text = " ".join(str(error).split())
            if not all(word in text for word in names.values()) or not names:
                wrong[name] = text[:600]
            continue
        found = {
            key: {each: value for each, value in row.items() if each in types.names}
            for key, row in stored(result).items()
        }
        differing = {
            column: (expected[key][column], found.get(key, {}).get(column))
            for key in expected
            for column in expected[key]
            if found.get(key, {}).get(column) != expected[key][column]
        }
        if differing or set(found) != set(expected):
            wrong[name] = f"differs: {str(differing)[:600]}"
        elif result.name != table.name:
            copied = result.dataset().schema
            changed = [f"{f} is {copied.field(f.name)}" for f in types if not _same(f, copied)]
            if changed:
                wrong[name] = f"types: {changed}"
    return wrong


def _same(field: pa.Field, copied: pa.Schema) -> bool:
    return bool(as_new(field).type.equals(as_new(copied.field(field.name)).type))


def test_all_types_survive_all_statements(spark: Any, catalog: str, tmp_path: Any) -> None:
    cases = [case for case in CASES if case.name not in REFUSED]
    table = stored_table(spark, catalog, wide_rows(cases, NOT_OVERWRITTEN), "wide")
    wrong = outcomes(table, tmp_path, {})
    if wrong:
        numbers = ", ".join(f"{number} {case.name}" for number, case in enumerate(cases))
        pytest.fail("\n".join([*(f"{each}: {wrong[each]}" for each in wrong), numbers]))


@pytest.mark.spec("spark.md#blobs")
@pytest.mark.parametrize("shape", NOT_OVERWRITTEN)
def test_an_overwrite_that_lance_refuses_names_the_column(
    spark: Any, catalog: str, shape: str
) -> None:
    [case] = [each for each in CASES if each.name == DECLARED]
    table = stored_table(spark, catalog, rows_of(case, shape), "listed")
    table.sql("UPDATE {t} SET n = n + 1 WHERE id = 1")
    table.sql("INSERT INTO {t} SELECT id + 100, n, c FROM {t} WHERE id = 1")
    before = stored(table)
    with pytest.raises(PySparkException, match=r"LANCE_INVALID_INPUT.*'c'"):
        table.sql("INSERT OVERWRITE {t} SELECT * FROM {t}")
    assert stored(table) == before


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_type_survives_each_statement_or_is_refused_by_name(
    spark: Any, catalog: str, tmp_path: Any, case: TypeCase
) -> None:
    table = stored_table(spark, catalog, columns_of(case, left_out=NOT_OVERWRITTEN), "typed")
    word = REFUSED.get(case.name)
    names = {} if word is None else {"column": "c0", "word": word}
    wrong = outcomes(table, tmp_path, names)
    if wrong:
        pytest.fail("\n".join(f"{each}: {wrong[each]}" for each in wrong))
