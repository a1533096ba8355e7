"""Random tables are converted and exported again, and compared row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st
from migrate.sparking import Scene, failed
from migrate.test_export import exporting
from pyspark.sql import types as spark
from spark.sql_helpers import setting

from lance_bridge_migrate import State

pytestmark = [pytest.mark.slow, pytest.mark.spec("migration.md#convert", "migration.md#export")]


Table = tuple[spark.StructType, list[tuple[Any, ...]]]
Kind = tuple[spark.DataType, st.SearchStrategy[Any]]

EXAMPLES = 20
_DAY = timedelta(days=20_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_PLAIN: list[Kind] = [
    (spark.BooleanType(), st.booleans()),
    (spark.ByteType(), st.integers(-128, 127)),
    (spark.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (spark.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (spark.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (spark.FloatType(), st.floats(width=32)),
    (spark.DoubleType(), _FLOATS),
    (spark.DecimalType(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (spark.DecimalType(38, 0), st.decimals(-(10**37), 10**37, places=0)),
    (spark.StringType(), _TEXT),
    (spark.BinaryType(), st.binary(max_size=8).map(bytearray)),
    (spark.DateType(), st.dates(date(1800, 1, 1), date(2200, 1, 1))),
    (spark.TimestampType(), st.timedeltas(-_DAY, _DAY).map(lambda each: _EPOCH + each)),
    (
        spark.TimestampNTZType(),
        st.timedeltas(-_DAY, _DAY).map(lambda each: _EPOCH.replace(tzinfo=None) + each),
    ),
    (spark.DayTimeIntervalType(), st.timedeltas(-_DAY, _DAY)),
]


def _nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return inner.map(_list_of) | inner.map(_map_of) | st.tuples(inner, inner).map(_struct_of)


def _list_of(kind: Kind) -> Kind:
    return spark.ArrayType(kind[0]), st.lists(st.none() | kind[1], max_size=3)


def _map_of(kind: Kind) -> Kind:
    values = st.dictionaries(st.text("abc", max_size=2), st.none() | kind[1], max_size=3)
    return spark.MapType(spark.StringType(), kind[0]), values


def _struct_of(two: tuple[Kind, Kind]) -> Kind:
    (one, some), (other, more) = two
    fields = spark.StructType().add("x", one).add("y Z", other)
    return fields, st.tuples(st.none() | some, st.none() | more)


_KINDS = st.recursive(st.sampled_from(_PLAIN), _nested, max_leaves=3)
_NAMES = st.text("aB1_ -,;(){}='\"%&+ä日", min_size=1, max_size=6).filter(str.strip)


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    """Return columns of random names and types, after a key, and rows."""
    kinds = draw(st.lists(_KINDS, min_size=1, max_size=7))
    names = draw(
        st.lists(
            _NAMES.filter(lambda name: name.lower() != "key"),
            min_size=len(kinds),
            max_size=len(kinds),
            unique_by=str.lower,
        )
    )
    columns = spark.StructType().add("key", spark.IntegerType())
    for name, (kind, _) in zip(names, kinds, strict=True):
        columns = columns.add(name, kind)
    values = st.tuples(*[st.none() | strategy for _, strategy in kinds])
    rows = draw(st.lists(values, max_size=12))
    return columns, [(key, *row) for key, row in enumerate(rows)]


_EMPTY: Table = (
    spark.StructType()
    .add("key", spark.IntegerType())
    .add("lists", spark.ArrayType(spark.StringType()))
    .add("maps", spark.MapType(spark.StringType(), spark.DecimalType(9, 2))),
    [],
)
_HARD: Table = (
    spark.StructType()
    .add("key", spark.IntegerType())
    .add("number", spark.DoubleType())
    .add("numbers", spark.ArrayType(spark.FloatType()))
    .add("none", spark.ArrayType(spark.StructType().add("x", spark.BinaryType()))),
    [
        (0, math.nan, [math.nan, None, -0.0], None),
        (1, -0.0, [], None),
        (2, 0.0, None, []),
        (3, None, [math.inf], [None, (None,)]),
    ],
)


def test_random_tables_are_the_same_row_by_row_both_ways(scene: Scene) -> None:
    """So many tables, each a dozen jobs of Spark's, beside those that are hard."""
    done = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,  # as in the profile of pytest's process
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_tables(), st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kolkata"]))
    @example(_EMPTY, "UTC")
    @example(_HARD, "Asia/Kolkata")
    def there_and_back(table: Table, zone: str) -> None:
        nonlocal done
        done += 1
        event(f"{len(table[1])} rows of {len(table[0].fields)} columns")
        with setting(scene.spark, "spark.sql.session.timeZone", zone):
            _there_and_back(scene, f"t{done}", table)

    scene.database()
    there_and_back()
    assert done >= EXAMPLES


def _there_and_back(scene: Scene, name: str, table: Table) -> None:
    """Convert a table of Spark's, export what it became, and compare all rows of all three."""
    columns, rows = table
    source, shown = f"{scene.prefix}_raw.{name}", (columns.simpleString(), rows)
    scene.spark.createDataFrame(rows, columns).write.saveAsTable(source)
    with scene.run("convert") as run:
        run.plan(include=[source], namespace=[scene.target])
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, (*shown, failed(record))
    out = scene.directory / "out"
    with exporting(scene) as run:
        run.plan(include=[f"{scene.target}.{name}"], directory=str(out))
        record = run.execute()
        assert record.state is State.DONE, (*shown, failed(record))
    expected = [row.asDict(recursive=True) for row in scene.spark.table(source).collect()]
    assert len(expected) == len(rows)
    for found in (
        scene.dataset(name).to_table().to_pylist(),
        pq.read_table(out / scene.target / name, coerce_int96_timestamp_unit="us").to_pylist(),
    ):
        _require_same(columns, expected, found)


def _require_same(columns: spark.StructType, one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for row, its in zip(sorted(one, key=_key), sorted(other, key=_key), strict=True):
        assert _settled(row, columns) == _settled(its, columns), columns.simpleString()


def _key(row: dict[str, Any]) -> int:
    return int(row["key"])


# -- values --------------------------------------------------------------------------------------


def _settled(value: Any, kind: spark.DataType) -> Any:
    """Return what is the same for the same value, from Spark, from Lance and from Parquet."""
    if value is None:
        return None
    if isinstance(kind, spark.StructType):
        return {f.name: _settled(value[f.name], f.dataType) for f in kind.fields}
    if isinstance(kind, spark.ArrayType):
        return [_settled(each, kind.elementType) for each in value]
    if isinstance(kind, spark.MapType):
        return {key: _settled(each, kind.valueType) for key, each in dict(value).items()}
    settle = _SETTLED.get(type(kind))
    return value if settle is None else settle(value)


def _moment(value: datetime) -> float:
    """Moments of Spark and of Parquet come without a zone, and mean UTC: that is the machine's."""
    known = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return (known - _EPOCH) / timedelta(microseconds=1)


_SETTLED: dict[type[spark.DataType], Callable[[Any], Any]] = {
    spark.FloatType: lambda each: "nan" if math.isnan(each) else float(each).hex(),
    spark.DoubleType: lambda each: "nan" if math.isnan(each) else float(each).hex(),
    spark.BinaryType: bytes,
    spark.TimestampType: _moment,
    spark.DayTimeIntervalType: lambda each: (
        each if isinstance(each, int) else each // timedelta(microseconds=1)
    ),
}
