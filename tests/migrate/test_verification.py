"""Comparing two datasets: each level notices what it is for, and names the column."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from migrate.building import rows

from lance_bridge_migrate import Level
from lance_bridge_migrate.migrations.verification import compare

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#verifying")]

MANY = 5000


def dataset(place: Path, table: pa.Table) -> lance.LanceDataset:
    return lance.write_dataset(table, str(place))


def failed(source: pa.Table, target: pa.Table, place: Path, level: Level) -> list[tuple[str, str]]:
    """Return the checks that failed: their names and columns."""
    checks = compare(dataset(place / "one", source), dataset(place / "two", target), level)
    return [(check.name, check.column) for check in checks if not check.ok]


def changed(at: int) -> pa.Table:
    """Return many rows, of which one has another name."""
    table = rows(MANY)
    names = table["name"].to_pylist()
    names[at] = "another"
    return table.set_column(1, "name", pa.array(names))


@pytest.mark.parametrize("level", [Level.COUNTS, Level.SAMPLE, Level.CHECKSUMS])
def test_equal_tables_pass_every_level(tmp_path: Path, level: Level) -> None:
    assert failed(rows(MANY), rows(MANY), tmp_path, level) == []


@pytest.mark.parametrize(
    ("target", "level", "noticed"),
    [
        (rows(MANY - 1), Level.COUNTS, [("rows", "")]),
        (rows(MANY).drop_columns("vector"), Level.COUNTS, [("schema", "")]),
        (changed(0), Level.COUNTS, []),
        (changed(0), Level.SAMPLE, [("sample", "name")]),
        (changed(MANY - 1), Level.SAMPLE, [("sample", "name")]),
        (changed(7), Level.SAMPLE, []),
        (changed(7), Level.CHECKSUMS, [("values", "name")]),
        (changed(MANY - 2), Level.CHECKSUMS, [("values", "name")]),
    ],
    ids=lambda each: "" if isinstance(each, pa.Table) else str(each),
)
def test_each_level_notices_what_it_is_for(
    tmp_path: Path, target: pa.Table, level: Level, noticed: list[tuple[str, str]]
) -> None:
    assert failed(rows(MANY), target, tmp_path, level) == noticed


def test_empty_tables_are_compared(tmp_path: Path) -> None:
    assert failed(rows(0), rows(0), tmp_path, Level.CHECKSUMS) == []
    assert failed(rows(0), rows(0), tmp_path / "more", Level.SAMPLE) == []


def test_levels_include_those_before_them() -> None:
    assert Level.SAMPLE.includes(Level.COUNTS)
    assert not Level.COUNTS.includes(Level.SAMPLE)


# -- NaN -----------------------------------------------------------------------------------------

VALUES = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.float32()))])
NAN = float("nan")


def columns_of(value: float | None, extra: float = 1.0) -> pa.Table:
    """Return columns of many types, each with a value, a null and an extra value."""

    def column(of: pa.DataType, *rows: object) -> pa.Array:
        return pa.array([rows[0], None, *rows[1:]], of)

    half = pa.array([None if v is None else np.float16(v) for v in (value, None, extra)])
    return pa.table(
        {
            "half": half,
            "single": column(pa.float32(), value, extra),
            "double": column(pa.float64(), value, extra),
            "vector": column(pa.list_(pa.float32(), 2), [value, 0.0], [extra, 0.0]),
            "list": column(pa.list_(pa.float64()), [value, None], [extra]),
            "lists": column(pa.large_list(pa.list_(pa.float64())), [[value], []], [[extra]]),
            "struct": column(VALUES, {"x": value, "y": [value]}, {"x": extra, "y": None}),
            "structs": column(pa.list_(VALUES), [{"x": value, "y": []}], [{"x": extra, "y": []}]),
            "map": column(pa.map_(pa.string(), pa.float64()), {"k": value}, {"k": extra}),
            "words": column(pa.float64(), value, extra).dictionary_encode(),
        }
    )


LEVELS = pytest.mark.parametrize("level", [Level.SAMPLE, Level.CHECKSUMS])


@LEVELS
def test_tables_with_nan_are_equal_to_their_copies(tmp_path: Path, level: Level) -> None:
    assert failed(columns_of(NAN), columns_of(NAN), tmp_path, level) == []
    other = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    one, two = (pa.table({"x": values}) for values in (np.array([NAN, NAN]), other))
    assert failed(one, two, tmp_path / "payloads", level) == []


@LEVELS
@pytest.mark.parametrize("target", [columns_of(0.0), columns_of(NAN, 2.0), columns_of(None)])
def test_differences_beside_nan_are_noticed(tmp_path: Path, target: pa.Table, level: Level) -> None:
    columns = [column for _, column in failed(columns_of(NAN), target, tmp_path, level)]
    assert columns == target.schema.names


@LEVELS
def test_lists_are_different_if_they_are_divided_differently(tmp_path: Path, level: Level) -> None:
    one, two = (pa.table({"x": x}) for x in ([[NAN], [1.0, 2.0]], [[NAN, 1.0], [2.0]]))
    name = "sample" if level is Level.SAMPLE else "values"
    assert failed(one, two, tmp_path, level) == [(name, "x")]
