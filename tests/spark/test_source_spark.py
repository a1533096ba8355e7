"""The data source in a session: plans, errors, and types both ways."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from arrow_types import CASES, SHAPES, TypeCase, plain, rows_of
from lance_namespace.errors import InvalidInputError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from lance_bridge import blobs
from lance_bridge_spark import schemas
from lance_bridge_spark.schemas import batch_schema, new_schema, spark_schema
from lance_bridge_spark.source import conversion
from lance_bridge_spark.source.conversion import match_columns
from lance_bridge_spark.source.worker_calls import LanceValueError

from .source_helpers import source
from .tables import unity_catalog

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#reading-types", "spark.md#writing-types", "spark.md#blobs"),
]


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> str:
    """A hundred rows that Spark has written, in two fragments at least."""
    path = str(tmp_path / "t.lance")
    frame = spark.range(100).selectExpr("id", "id % 7 as k", "concat('w', id) as word")
    frame.repartition(2).write.format("lance").mode("append").save(path)
    return path


def test_a_view_is_read_and_inserted_into(spark: SparkSession, place: str) -> None:
    spark.read.format("lance").load(place).createOrReplaceTempView("through")
    try:
        spark.sql("INSERT INTO through VALUES (1000, 6, 'last')")
        assert lance.dataset(place).count_rows() == 101
        lance.dataset(place).delete("id = 1000")
        spark.sql("INSERT OVERWRITE through SELECT id + 1, k, word FROM through")
        ids = lance.dataset(place).to_table()["id"].to_pylist()
        assert sorted(ids) == list(range(1, 101))
    finally:
        spark.catalog.dropTempView("through")


def test_a_task_that_fails_leaves_no_version(spark: SparkSession, place: str) -> None:
    before = lance.dataset(place).version
    frame = spark.range(100).selectExpr(
        "id", "id as k", "if(id = 99, raise_error('not this row'), 'w') as word"
    )
    with pytest.raises(Exception, match="not this row"):
        frame.repartition(2).write.format("lance").mode("append").save(place)
    assert lance.dataset(place).version == before


def test_an_error_names_what_to_do_in_sparks_style(spark: SparkSession, place: str) -> None:
    frame = spark.range(1).selectExpr("id", "id as k", "id as word", "1 as more")
    with pytest.raises(
        Exception,
        match=r"\[LANCE_TABLE_SCHEMA_VALIDATION\] The rows do not fit .* the table has no 'more'",
    ):
        frame.write.format("lance").mode("append").save(place)


# -- types that are read ---------------------------------------------------------------------------

DAY = dt.date(2024, 2, 29)


NOON = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)


UTC = dt.timezone.utc


READ: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "boolean": (pa.bool_(), "boolean", [True, False, None]),
    "int8": (pa.int8(), "tinyint", [-128, 127, None]),
    "int16": (pa.int16(), "smallint", [-32768, 32767, None]),
    "int32": (pa.int32(), "int", [-(2**31), 2**31 - 1, None]),
    "int64": (pa.int64(), "bigint", [-(2**63), 2**63 - 1, None]),
    "uint8": (pa.uint8(), "smallint", [0, 255, None]),
    "uint16": (pa.uint16(), "int", [0, 65535, None]),
    "uint32": (pa.uint32(), "bigint", [0, 2**32 - 1, None]),
    "uint64": (pa.uint64(), "decimal(20,0)", [0, 2**64 - 1, None]),
    "float16": (pa.float16(), "float", [0.5, -2.0, None]),
    "float32": (pa.float32(), "float", [0.5, -2.0, None]),
    "float64": (pa.float64(), "double", [0.1, -1e300, None]),
    "decimal": (pa.decimal128(38, 18), "decimal(38,18)", [Decimal("1.000000000000000001"), None]),
    "string": (pa.string(), "string", ["", "häß", None]),
    "large_string": (pa.large_string(), "string", ["", "häß", None]),
    "binary": (pa.binary(), "binary", [b"", b"\x00\xff", None]),
    "large_binary": (pa.large_binary(), "binary", [b"", b"\x00\xff", None]),
    "fixed_binary": (pa.binary(2), "binary", [b"ab", b"\x00\xff", None]),
    "date": (pa.date32(), "date", [DAY, dt.date(1, 1, 1), None]),
    "date64": (pa.date64(), "date", [DAY, dt.date(1969, 12, 31), None]),
    "timestamp_s": (pa.timestamp("s"), "timestamp_ntz", [NOON.replace(microsecond=0), None]),
    "timestamp_ms": (pa.timestamp("ms"), "timestamp_ntz", [NOON.replace(microsecond=0), None]),
    "timestamp_us": (pa.timestamp("us"), "timestamp_ntz", [NOON, None]),
    "timestamp_ns": (pa.timestamp("ns"), "timestamp_ntz", [NOON, None]),
    "time_s": (pa.time32("s"), "bigint", [86_399, 0, None]),
    "time_us": (pa.time64("us"), "bigint", [86_399_999_999, 0, None]),
    "duration": (
        pa.duration("us"),
        "interval day to second",
        [dt.timedelta(days=-3, microseconds=1), None],
    ),
    "list": (pa.list_(pa.int32()), "array<int>", [[1, None, 3], [], None]),
    "large_list": (pa.large_list(pa.string()), "array<string>", [["a", None], [], None]),
    "vectors": (pa.list_(pa.float32(), 2), "array<float>", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "vectors_with_null": (
        pa.list_(pa.float32(), 2),
        "array<float>",
        [[1.0, 2.0], None, [5.0, 6.0]],
    ),
    "half_vectors": (pa.list_(pa.float16(), 2), "array<float>", [[1.0, 2.0], [3.0, 4.0]]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "string", ["a", "b", "a", None]),
    "struct": (
        pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.float32(), 2))]),
        "struct<a:smallint,b:array<float>>",
        [{"a": 1, "b": [1.0, 2.0]}, {"a": None, "b": [3.0, 4.0]}],
    ),
    "list_of_structs": (
        pa.list_(pa.struct([("a", pa.large_string())])),
        "array<struct<a:string>>",
        [[{"a": "x"}, {"a": None}], [], None],
    ),
    "list_of_vectors": (
        pa.list_(pa.list_(pa.float32(), 2)),
        "array<array<float>>",
        [[[1.0, 2.0], [3.0, 4.0]], [], None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), "map<string,bigint>", [[("a", 1)], [], None]),
}


def table_of_all(directory: Path) -> str:
    """Write a table with a column of each type, padded with null to one length."""
    columns = {}
    for name, (kind, _, values) in READ.items():
        padded = [*values, *[values[-1]] * (4 - len(values))]
        if pa.types.is_dictionary(kind):
            columns[name] = pa.array(padded, pa.string()).dictionary_encode().cast(kind)
        else:
            columns[name] = pa.array(padded, kind)
    place = str(directory / "all.lance")
    lance.write_dataset(pa.table(columns), place)
    return place


def test_every_column_is_read_with_all_its_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("lance").load(table_of_all(tmp_path))
    found: dict[str, tuple[str, list[Any]]] = {
        field.name: (field.dataType.simpleString(), []) for field in frame.schema.fields
    }
    for row in frame.collect():
        for name, value in row.asDict(recursive=True).items():
            found[name][1].append(bytes(value) if isinstance(value, bytearray) else value)
    expected = {
        name: (type_name, [dict(v) if name == "map" and v is not None else v for v in values])
        for name, (_, type_name, values) in READ.items()
    }
    assert {n: (kind, v[: len(READ[n][2])]) for n, (kind, v) in found.items()} == expected


def test_a_time_with_a_zone_is_the_same_moment_in_every_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    moment = NOON.replace(tzinfo=UTC)
    zones = {zone: pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin", "+05:30")}
    table = pa.table({zone: pa.array([moment, None], kind) for zone, kind in zones.items()})
    lance.write_dataset(table, str(tmp_path / "t.lance"))

    frame = spark.read.format("lance").load(str(tmp_path / "t.lance"))

    assert [each.dataType.simpleString() for each in frame.schema] == ["timestamp"] * 3
    found = frame.selectExpr(*(f"unix_micros(`{zone}`) as `{zone}`" for zone in zones)).first()
    assert found is not None
    micros = int(moment.timestamp()) * 1_000_000 + moment.microsecond
    assert set(found.asDict().values()) == {micros}


def test_what_a_microsecond_cannot_hold_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    lance.write_dataset(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), str(tmp_path / "t"))
    frame = spark.read.format("lance").load(str(tmp_path / "t"))
    with pytest.raises(Exception, match=r"LANCE_INVALID_INPUT\] Column 'at' cannot be read"):
        frame.collect()


def test_an_extension_is_read_as_what_it_is_stored_as() -> None:
    assert schemas.read_type(pa.uuid()) == pa.binary()


# -- types that are written ------------------------------------------------------------------------


def test_a_decimal_column_survives_many_batches(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(50_000).selectExpr("id", "cast(id as decimal(38,4)) / 3 as third")
    place = str(tmp_path / "t.lance")
    frame.write.format("lance").mode("append").save(place)
    again = spark.read.format("lance").load(place)
    assert again.exceptAll(frame).count() == 0
    assert again.count() == 50_000


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        (YearMonthIntervalType(), "cast it to its number of months"),
        (ArrayType(YearMonthIntervalType()), "cast it to its number of months"),
        (VariantType(), "to_json"),
        (StringType("UTF8_LCASE"), "collate UTF8_LCASE, .* cast it as STRING COLLATE UTF8_BINARY"),
        (ArrayType(StringType("UNICODE_CI")), "collate UNICODE_CI, .* no collations"),
        (MapType(StringType("UNICODE_CI"), LongType()), "no collations"),
        (StructType([StructField("s", StringType("UTF8_LCASE"))]), "no collations"),
    ],
)
def test_a_type_that_lance_has_no_place_for_is_refused_with_advice(
    tmp_path: Path, bad: DataType, hint: str
) -> None:
    made = source({"path": str(tmp_path / "t.lance")})
    with pytest.raises(LanceValueError, match=f"Column 'bad' has the type .*{hint}"):
        made.writer(StructType([StructField("bad", bad)]), overwrite=False)
    assert not (tmp_path / "t.lance").exists()


COLLATED = "string collate UTF8_LCASE"


def test_a_table_with_a_collation_is_not_created(spark: SparkSession, tmp_path: Path) -> None:
    statements = (
        f"CREATE TABLE {{}} (id INT, name {COLLATED})",
        f"CREATE TABLE {{}} (id INT, names ARRAY<{COLLATED}>)",
        "CREATE TABLE {} (id INT, name VARCHAR(3) COLLATE UTF8_LCASE)",
        "CREATE TABLE {} (id INT, name STRING) DEFAULT COLLATION UTF8_LCASE",
        f"CREATE TABLE {{}} AS SELECT cast('Anna' as {COLLATED}) AS name",
    )
    with unity_catalog(spark, "collated", tmp_path) as catalog:
        for statement in statements:
            with pytest.raises(PySparkException, match="Lance has no collations"):
                spark.sql(statement.format(f"{catalog}.db.t"))
        assert spark.sql(f"SHOW TABLES IN {catalog}.db").collect() == []
        spark.sql(f"CREATE TABLE {catalog}.db.t (id INT, name VARCHAR(9))")
        for change in (f"ADD COLUMN other {COLLATED}", f"ALTER COLUMN name TYPE {COLLATED}"):
            with pytest.raises(PySparkException, match="Lance has no collations"):
                spark.sql(f"ALTER TABLE {catalog}.db.t {change}")
        # Into the columns of an existing table, values are stored as they are.
        spark.sql(f"INSERT INTO {catalog}.db.t SELECT 1, cast('Anna' as {COLLATED})")
        frame = spark.range(1).selectExpr("2 as id", f"cast('ANNA' as {COLLATED}) as name")
        frame.write.format("lance").mode("append").save(f"{catalog}.db.t")
        found = spark.sql(f"SELECT id FROM {catalog}.db.t WHERE name COLLATE UTF8_LCASE = 'anna'")
        assert sorted(row.id for row in found.collect()) == [1, 2]
        assert spark.table(f"{catalog}.db.t").where("name = 'Anna'").count() == 1


# -- vectors ---------------------------------------------------------------------------------------


def test_metadata_of_a_column_makes_vectors_of_lists(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    frame = spark.range(2).selectExpr("array(float(id)) as v")
    typed = frame.withMetadata("v", {"arrow.fixed-size-list.size": 1})
    typed.write.format("lance").mode("append").save(place)
    assert lance.dataset(place).schema.field("v").type == pa.list_(pa.float32(), 1)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.uint8()])
def test_the_schema_of_the_table_makes_vectors_of_lists(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    place = str(tmp_path / "t.lance")
    empty = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.list_(kind, 2))]).empty_table()
    lance.write_dataset(empty, place)
    element = spark.read.format("lance").load(place).schema["v"].dataType.simpleString()
    frame = spark.sql(
        f"select * from values (1, cast(array(1, 2) as {element})), (2, null) as t(id, v)"
    ).selectExpr("v", "bigint(id) as id")
    frame.write.format("lance").mode("append").save(place)
    found = lance.dataset(place).to_table()
    assert found.schema.field("v").type == pa.list_(kind, 2)
    rows = sorted(found.to_pylist(), key=lambda row: int(row["id"]))
    assert rows == [{"id": 1, "v": [1, 2]}, {"id": 2, "v": None}]


def test_a_vector_of_another_length_ends_the_write(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t.lance")
    frame = spark.range(4).selectExpr("array(1.0f, 1.0f) as v")
    with pytest.raises(Exception, match=r"Column 'v' has lists whose length is not 3"):
        frame.write.format("lance").mode("append").option("vector.v", 3).save(place)
    assert lance.dataset(place).count_rows() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector.w": "2"}, "'vector.w' names a column that does not exist"),
        ({"vector.v": "0"}, "'vector.v' must be a whole number from 1"),
        ({"vector.v": "2147483648"}, "'v' must have 1 to 2147483647 numbers"),
        ({"vector.id": "2"}, "Column 'id' cannot hold vectors"),
    ],
)
def test_vectors_that_cannot_be_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    columns = StructType(
        [StructField("id", LongType()), StructField("v", ArrayType(FloatType(), False))]
    )
    with pytest.raises(LanceValueError, match=message):
        source({"path": str(tmp_path / "t"), **options}).writer(columns, overwrite=False)


# -- types without a session -----------------------------------------------------------------------


def _as_read(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as Lance reads them: with bytes in place of blobs."""
    columns = [_with_bytes(each) for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _with_bytes(array: pa.Array) -> pa.Array:
    if blobs.is_blob_type(array.type):
        return array.storage.flatten()[0]
    if pa.types.is_struct(array.type):
        parts = [_with_bytes(each) for each in array.flatten()]
        return pa.StructArray.from_arrays(
            parts, names=[each.name for each in array.type], mask=array.is_null()
        )
    if pa.types.is_list(array.type):
        inner = _with_bytes(array.values)
        return pa.ListArray.from_arrays(array.offsets, inner, mask=array.is_null())
    return array


@pytest.mark.quick
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_the_same_after_spark(case: TypeCase) -> None:
    for shape in SHAPES:
        rows = rows_of(case, shape)
        [batch] = rows.to_batches()
        expected = batch_schema(spark_schema(rows.schema))
        read = conversion.to_spark(_as_read(rows.schema, batch), expected)
        assert read.schema.equals(expected)
        back = conversion.to_lance(read.column("c"), rows.schema.field("c"))
        assert back.type.equals(rows.schema.field("c").type), shape
        assert plain(back) == plain(rows.column("c")), shape


@pytest.mark.quick
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_new_table_has_the_types_of_its_source(case: TypeCase) -> None:
    for shape in SHAPES:
        schema = rows_of(case, shape).schema
        made = new_schema(spark_schema(schema))
        assert made.field("c").type.equals(schemas.as_new(schema.field("c")).type), shape
        assert blobs.has_blobs(made.field("c")) == blobs.has_blobs(schema.field("c"))
        # Its own rows fit.
        match_columns(spark_schema(schema), made, "copy")


@pytest.mark.quick
def test_a_column_of_another_type_takes_none_from_its_metadata() -> None:
    [field] = spark_schema(pa.schema([pa.field("c", pa.uint8())])).fields
    for text in (
        field.metadata[schemas.STORED_TYPE],
        "no base64",
        base64.b64encode(b"no schema").decode(),
    ):
        made = StructType([StructField("c", StringType(), True, {schemas.STORED_TYPE: text})])
        assert new_schema(made).field("c").type == pa.string()


@pytest.mark.quick
def test_runs_of_rows_have_few_bytes_and_at_least_one_row() -> None:
    most = 16 * 1024 * 1024
    sizes = np.array([most + 1, 1, most, 5, 5])
    assert list(blobs.slices(sizes, 5)) == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert list(blobs.slices(None, 40)) == [(0, 16), (16, 16), (32, 8)]
    assert list(blobs.slices(sizes, 0)) == []


@pytest.mark.quick
def test_a_value_that_the_type_cannot_hold_is_refused_with_the_column() -> None:
    for given, dtype in ((pa.array([300]), pa.uint8()), (pa.array([2**40]), pa.time32("s"))):
        with pytest.raises(InvalidInputError, match="Column 'c'"):
            conversion.to_lance(given, pa.field("c", dtype))
