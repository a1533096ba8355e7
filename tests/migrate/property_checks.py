"""What `test_property` checks in the process of a Spark session: random tables, row by row."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from migrate.sparking import Scene, failed, run_checks
from pyspark.sql import types as spark

from lance_bridge.migrate import State

_EXAMPLES = 6
"""Each of them is a few jobs of Spark's: seconds."""

_DAY = timedelta(days=20_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_PLAIN: list[tuple[spark.DataType, st.SearchStrategy[Any]]] = [
    (spark.BooleanType(), st.booleans()),
    (spark.ByteType(), st.integers(-128, 127)),
    (spark.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (spark.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (spark.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (spark.FloatType(), st.floats(width=32)),
    (spark.DoubleType(), st.floats()),
    (spark.DecimalType(20, 3), st.decimals(-(10**16), 10**16, places=3)),
    (spark.StringType(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    (spark.BinaryType(), st.binary(max_size=8).map(bytearray)),
    (spark.DateType(), st.dates(date(1800, 1, 1), date(2200, 1, 1))),
    (spark.TimestampType(), st.timedeltas(-_DAY, _DAY).map(lambda each: _EPOCH + each)),
]


def _nested(
    inner: st.SearchStrategy[tuple[spark.DataType, Any]],
) -> st.SearchStrategy[tuple[spark.DataType, Any]]:
    lists = inner.map(
        lambda kind: (spark.ArrayType(kind[0]), st.lists(st.none() | kind[1], max_size=3))
    )
    structs = st.tuples(inner, inner).map(
        lambda two: (
            spark.StructType().add("x", two[0][0]).add("y", two[1][0]),
            st.tuples(st.none() | two[0][1], st.none() | two[1][1]),
        )
    )
    return lists | structs


_KINDS = st.recursive(st.sampled_from(_PLAIN), _nested, max_leaves=3)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[spark.StructType, list[tuple[Any, ...]]]:
    """Return columns of random types, after a key, and rows."""
    kinds = draw(st.lists(_KINDS, min_size=1, max_size=5))
    columns = spark.StructType().add("key", spark.IntegerType())
    for number, (kind, _) in enumerate(kinds):
        columns = columns.add(f"c{number}", kind)
    values = st.tuples(*[st.none() | strategy for _, strategy in kinds])
    rows = draw(st.lists(values, max_size=12))
    return columns, [(key, *row) for key, row in enumerate(rows)]


def check_random_tables_are_the_same_row_by_row(scene: Scene) -> None:
    database = scene.database()
    number = 0

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_tables())
    def migrated(table: tuple[spark.StructType, list[tuple[Any, ...]]]) -> None:
        nonlocal number
        number += 1
        columns, rows = table
        source, name = f"{database}.t{number}", f"t{number}"
        scene.spark.createDataFrame(rows, columns).write.saveAsTable(source)
        with scene.run("convert") as run:
            run.plan(include=[source], namespace=[scene.target])
            record = run.execute(verify="checksums")
            assert record.state is State.DONE, (columns.simpleString(), failed(record))
        found = scene.dataset(name).to_table().to_pylist()
        expected = [row.asDict(recursive=True) for row in scene.spark.table(source).collect()]
        assert len(found) == len(rows)
        for one, other in zip(
            sorted(expected, key=lambda row: row["key"]),
            sorted(found, key=lambda row: row["key"]),
            strict=True,
        ):
            assert _settled(one) == _settled(other), columns.simpleString()

    migrated()
    assert number >= _EXAMPLES


def _settled(value: Any) -> Any:
    """Return a value as text that is the same for the same value, from Spark and from Lance."""
    if isinstance(value, dict):
        return {key: _settled(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(each) for each in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, datetime):
        # Spark's times have no zone here, and are in that of the machine.
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return str(value.normalize()) if isinstance(value, Decimal) else value


CHECKS = {name: each for name, each in globals().items() if name.startswith("check_")}


def run(spark: Any, uri: str, directory: str, names: list[str]) -> dict[str, str]:
    """Do checks, and return what failed of each."""
    return run_checks(CHECKS, spark, uri, directory, names)
