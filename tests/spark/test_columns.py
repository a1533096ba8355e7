"""Columns in every statement: the values of every type, blobs, and names that are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import arrow_types
import lance
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, as_numbers, plain, rows_of
from lance_namespace.errors import InvalidInputError
from pyspark.errors import AnalysisException, PySparkException

import lance_bridge_spark
from lance_bridge import blobs
from lance_bridge_spark.schemas import as_new

from .sql_helpers import set_conf, stream_all
from .tables import LOCAL_ROWS, StoredTable, stored_table

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "spark.md#reading-types",
        "spark.md#writing-types",
        "spark.md#blobs",
        "spark.md#row-level-changes",
    ),
]

Values = dict[int, dict[str, Any]]
"""The values of columns by the id of their row."""
REFUSED: Mapping[str, str] = {
    "null": "void",
}
"""Types that statements which write them refuse, by name, and a word of the refusal."""
VALUES = [b"first", b"", None, b"\x00" * 300_000]
_OLD = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
Change = Callable[[StoredTable], Any]


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
            stack.enter_context(set_conf(table.spark, key, value))
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


# -- blobs -----------------------------------------------------------------------------------------


def _rows(field: pa.Field, values: pa.Array) -> pa.Table:
    ids = pa.array(range(4), pa.int64())
    return pa.table([ids, values], schema=pa.schema([pa.field("id", pa.int64()), field]))


KINDS: dict[str, tuple[pa.Table, str]] = {
    "key in the metadata, 2.0": (_rows(_OLD, pa.array(VALUES, pa.large_binary())), "2.0"),
    "key in the metadata, 2.1": (_rows(_OLD, pa.array(VALUES, pa.large_binary())), "2.1"),
    "extension type": (_rows(lance.blob_field("b"), lance.blob_array(VALUES)), "2.2"),
}


@pytest.fixture(params=KINDS)
def table(spark: Any, catalog: str, request: pytest.FixtureRequest) -> StoredTable:
    """A table with blobs in the column `b`."""
    rows, version = KINDS[request.param]
    return stored_table(spark, catalog, rows, data_storage_version=version)


def _stored(table: StoredTable) -> dict[int, bytes | None]:
    """Return the bytes by id, as pylance reads them."""
    found = table.dataset().to_table(columns=["id", "b"], blob_handling="all_binary")
    return dict(zip(found["id"].to_pylist(), found["b"].to_pylist(), strict=True))


EXPECTED = dict(enumerate(VALUES))


def test_reads_have_the_bytes(table: StoredTable) -> None:
    for local in ("0", "10000"):
        table.spark.conf.set("spark.lance_bridge.local.rows", local)
        assert dict(table.rows("SELECT id, b FROM {t}")) == EXPECTED
        assert table.rows("SELECT count(b), max(length(b)) FROM {t}") == [(3, 300_000)]
        assert table.rows("SELECT id FROM {t} WHERE b IS NULL") == [(2,)]
        assert table.rows("SELECT id FROM {t} WHERE b = X'6669727374'") == [(0,)]
    table.spark.conf.unset("spark.lance_bridge.local.rows")
    frame = lance_bridge_spark.read(table.spark, table.name, with_row_id=True)
    ids = [row["_rowid"] for row in frame.orderBy("id").collect()]
    taken = lance_bridge_spark.take(table.spark, table.name, ids[::-1]).collect()
    assert [row["b"] for row in taken] == VALUES[::-1]


CHANGES: dict[str, Callable[[StoredTable], Any]] = {
    "UPDATE": lambda t: t.sql("UPDATE {t} SET id = 13 WHERE id = 3"),
    "MERGE": lambda t: t.sql(
        "MERGE INTO {t} t USING (SELECT 3L AS k) s ON t.id = s.k "
        "WHEN MATCHED THEN UPDATE SET id = 13"
    ),
    "update": lambda t: lance_bridge_spark.update(t.spark, t.name, {"id": "id + 10"}, "id = 3"),
    "merge_into": lambda t: lance_bridge_spark.merge_into(
        t.spark.sql("SELECT 3L AS id"),
        t.name,
        on=["id"],
        when_matched_update={"id": "target.id + 10"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_another_column_keeps_the_bytes(table: StoredTable, change: str) -> None:
    CHANGES[change](table)
    assert _stored(table) == {0: b"first", 1: b"", 2: None, 13: VALUES[3]}


def test_bytes_are_written_into_the_column(table: StoredTable) -> None:
    table.sql("INSERT INTO {t} VALUES (5, X'AABB'), (6, NULL), (7, X'')")
    table.sql("UPDATE {t} SET b = X'01' WHERE id = 0")
    lance_bridge_spark.update(table.spark, table.name, {"b": "X'02'"}, "id = 1")
    table.sql("DELETE FROM {t} WHERE b = X'AABB'")
    expected = {0: b"\x01", 1: b"\x02", 2: None, 3: VALUES[3], 6: None, 7: b""}
    assert _stored(table) == expected
    table.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < 4")
    assert _stored(table) == {key: value for key, value in expected.items() if key < 4}


def _view(table: StoredTable, copy: str) -> None:
    lance_bridge_spark.create_materialized_view(table.spark, copy, f"SELECT * FROM {table.name}")


COPIES: dict[str, Callable[[StoredTable, str], Any]] = {
    "CREATE TABLE AS SELECT": lambda t, copy: t.sql(f"CREATE TABLE {copy} AS SELECT * FROM {{t}}"),
    "DataFrame": lambda t, copy: lance_bridge_spark.write(
        lance_bridge_spark.read(t.spark, t.name), copy
    ),
    "materialized view": _view,
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_a_column_of_blobs_with_the_same_bytes(table: StoredTable, copy: str) -> None:
    name = f"{table.name}_copy"
    COPIES[copy](table, name)
    copied = StoredTable(table.spark, name)
    assert _stored(copied) == EXPECTED
    assert blobs.is_blob(copied.dataset().schema.field("b"))


def test_files_of_spark_have_the_bytes(table: StoredTable, tmp_path: Any) -> None:
    table.spark.table(table.name).write.parquet(str(tmp_path / "files"))
    assert dict(map(tuple, table.spark.read.parquet(str(tmp_path / "files")).collect())) == EXPECTED


def test_a_column_is_computed_from_the_bytes(table: StoredTable) -> None:
    lance_bridge_spark.backfill(table.spark, table.name, "size", "length(b)")
    assert dict(table.rows("SELECT id, size FROM {t}")) == {0: 5, 1: 0, 2: None, 3: 300_000}
    assert _stored(table) == EXPECTED


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
    with set_conf(spark, "spark.sql.caseSensitive", "true"):
        lance_bridge_spark.update(spark, table.name, {"Id": "id + 40"}, "v = 3")
    found = table.dataset().to_table().sort_by("v").to_pylist()
    assert found == [{"id": 1, "Id": 41, "v": 3}, {"id": 9, "Id": 8, "v": 7}]


def _source(table: StoredTable) -> Any:
    return table.spark.sql("SELECT 5L AS id, 6L AS Id, 7L AS v")


def _stream_named(table: StoredTable, directory: Any, **to: str) -> None:
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
    "stream": _stream_named,
    "stream of the data source": lambda t, directory: _stream_named(t, directory, path=t.name),
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
    with set_conf(spark, "spark.sql.caseSensitive", is_case_sensitive):
        WRITES[write](table, tmp_path)
    [added] = table.dataset().to_table(filter="v = 7 AND id = 5").to_pylist()
    assert added == {"id": 5, "Id": 6, "v": 7}


def test_a_merge_by_a_name_that_may_mean_two_columns_is_refused(spark: Any, catalog: str) -> None:
    rows = pa.table(ALIKE["columns"])
    table = stored_table(spark, catalog, rows, "alike")
    single = stored_table(spark, catalog, pa.table({"ID": [1]}), "single")
    with set_conf(spark, "spark.sql.caseSensitive", "true"):
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
    with set_conf(spark, "spark.sql.caseSensitive", "true"):
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
