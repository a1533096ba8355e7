"""Comparing two datasets: each level notices what it is for, and names the column."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from migrate.building import rows

from lance_bridge_migrate import Level
from lance_bridge_migrate.migrations.verification import compare

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
