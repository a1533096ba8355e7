"""The data of a table: copied file by file, and compared row by row."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError
from migrate.building import rows
from migrate.places import files

from lance_bridge.storage import TableFiles, TableStorage
from lance_bridge_migrate import Level
from lance_bridge_migrate.migration import Stopped
from lance_bridge_migrate.migrations.copy import copy_files, files_of
from lance_bridge_migrate.migrations.verification import compare

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#verifying")]

# -- copies ----------------------------------------------------------------------------------------


def _directory(path: Path) -> TableFiles:
    return TableFiles(TableStorage({}), str(path))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three versions."""
    place = tmp_path / "a.lance"
    for start in (0, 3, 6):
        lance.write_dataset(rows(3, start), str(place), mode="append" if start else "create")
    return place


def _copied(source: Path, target: Path, version: int) -> list[int]:
    """Copy up to a version; return the bytes of each file that was copied."""
    sizes: list[int] = []
    copy_files(
        _directory(source),
        _directory(target),
        files_of(_directory(source), version),
        stopping=threading.Event(),
        advance=sizes.append,
    )
    return sizes


def test_versions_up_to_one_are_copied_with_their_rows(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 2)
    found = lance.dataset(str(target))
    assert [each["version"] for each in found.versions()] == [1, 2]
    assert found.to_table().equals(lance.dataset(str(table), version=2).to_table())


def test_only_what_is_missing_or_cut_short_is_copied_again(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    _copied(table, target, 3)
    whole = files(target)
    assert _copied(table, target, 3) == []
    cut, gone, *_ = sorted((target / "data").iterdir())
    size = cut.stat().st_size + gone.stat().st_size
    cut.write_bytes(cut.read_bytes()[:10])
    gone.unlink()
    assert sum(_copied(table, target, 3)) == size
    assert files(target) == whole
    # The hint is of the source's latest version, and Lance does without.
    assert whole == {k: v for k, v in files(table).items() if not k.endswith("hint.json")}


def test_a_file_that_cannot_be_copied_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "a.lance"
    lance.write_dataset(rows(100), str(table), max_rows_per_file=1)
    tried: list[str] = []

    def fail(_: TableFiles, __: TableFiles, path: str) -> None:
        tried.append(path)
        if len(tried) > 1:
            threading.Event().wait(1)  # while the first failure is seen
        raise ServiceUnavailableError("the storage is down")

    monkeypatch.setattr(TableFiles, "copy_from", fail)
    with pytest.raises(ServiceUnavailableError):
        _copied(table, tmp_path / "copy.lance", 1)
    assert len(tried) < 20


def test_a_copy_that_is_stopped_shows_no_version(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.lance"
    stopping = threading.Event()
    wanted = files_of(_directory(table), 3)
    with pytest.raises(Stopped):
        copy_files(
            _directory(table),
            _directory(target),
            wanted,
            stopping=stopping,
            advance=lambda _: stopping.set(),
        )
    assert not TableStorage({}).has_dataset(str(target))


# -- comparisons -----------------------------------------------------------------------------------

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
