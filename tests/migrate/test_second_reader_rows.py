"""How the rows of a converted table are compared with those that a second reader finds in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from migrate.sessions import Scene, failed
from migrate.test_second_reader import plan, write, write_text
from pyarrow import orc
from spark.sql_helpers import setting

from lance_bridge_migrate import State, verify
from lance_bridge_migrate.levels import Level
from lance_bridge_migrate.record import Check

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#the-second-reader")]

LEVELS = (Level.SAMPLE, Level.CHECKSUMS)
VALUES = "values in the files"
TYPES: Mapping[str, str] = {
    "id": "id",
    "flag": "id % 2 = 0",
    "tiny": "CAST(id AS TINYINT)",
    "real": "CAST(id / 3 AS FLOAT)",
    "wide": "IF(id = 4, DOUBLE('NaN'), -0.0D)",
    "price": "CAST(id / 8 AS DECIMAL(12, 3))",
    "name": "IF(id % 5 = 0, NULL, concat('naïve ', id))",
    "fixed": "CAST('ab' AS CHAR(5))",
    "short": "CAST('xyz' AS VARCHAR(9))",
    "raw": "unhex(hex(id))",
    "day": "DATE'1970-01-01' + CAST(id AS INT)",
    "old": "DATE'0001-01-01'",
    "at": "TIMESTAMP'2020-02-03 04:05:06.789123' + make_interval(0, 0, 0, CAST(id AS INT))",
    "far": "TIMESTAMP'9999-12-31 23:59:59'",
    "plain": "TIMESTAMP_NTZ'1500-01-01 00:00:00'",
    "tags": "array('a', NULL, concat('t', id))",
    "vector": "array(CAST(id AS FLOAT), 0.5F)",
    "place": "named_struct('x', id, 'In', named_struct('y', INT(NULL), 'z', concat('', id)))",
    "items": "array(named_struct('n', id), NULL)",
    "counts": "map('k', id, concat('l', id), NULL)",
    "part": "concat('p ', id % 3)",
}
_NOT_IN_ORC = ("at", "far", "plain")


def checks_of(run: Any, level: Level) -> list[Check]:
    """Verify a migration; return its checks of values in files."""
    record = verify(run.type, run.endpoints, run.migration, level)
    return [c for each in record.items.values() for c in each.checks if c.name == VALUES]


def not_compared(checks: list[Check]) -> set[str]:
    return {each.column for each in checks if "not compared" in str(each.found)}


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_all_types_are_compared_and_found_equal(scene: Scene, format: str) -> None:
    database = scene.database()
    columns = ", ".join(f"{sql} AS {name}" for name, sql in TYPES.items())
    scene.sql(
        f"CREATE TABLE {database}.t USING {format} PARTITIONED BY (part) AS "
        f"SELECT {columns} FROM range(100)"
    )
    options: dict[str, Any] = {
        "renames": {"name": "Title"},
        "casts": {"tiny": "int"},
        "vectors": {"vector": 2},
    }
    with scene.converting(database, **options) as run:
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        for level in LEVELS:
            checks = checks_of(run, level)
            left_out = {"tiny", *(_NOT_IN_ORC if format == "orc" else ())}
            assert not_compared(checks) == left_out
        compared = {each.column for each in checks_of(run, Level.CHECKSUMS)} - left_out
        assert compared == {*TYPES, "Title", ""} - {"name", *left_out}


def test_times_of_96_bits_and_of_old_releases_are_found_equal(scene: Scene) -> None:
    database, conf = scene.database(), "spark.sql.parquet"
    old = "DATE'1400-02-03' AS day, TIMESTAMP'1400-02-03 04:05:06' AS at"
    with setting(scene.spark, f"{conf}.outputTimestampType", "INT96"):
        scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id, "
                  f"TIMESTAMP'9999-01-01 00:00:00' AS at FROM range(5)")  # fmt: skip
        with (
            setting(scene.spark, f"{conf}.datetimeRebaseModeInWrite", "LEGACY"),
            setting(scene.spark, f"{conf}.int96RebaseModeInWrite", "LEGACY"),
        ):
            scene.sql(
                f"CREATE TABLE {database}.old USING parquet AS SELECT id, {old} FROM range(5)"
            )
    with scene.converting(database) as run:
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        assert not_compared(checks_of(run, Level.CHECKSUMS)) == set()


def test_columns_of_some_files_are_found_equal(scene: Scene) -> None:
    tables = [
        pa.table({"id": [1, 2], "m": [{"a": 1}, None]}),
        pa.table({"more": ["x"], "id": [7], "m": [{"b": "y", "a": 2}]}),
    ]
    place, parts = scene.directory / "t", scene.directory / "parts"
    for number, table in enumerate(tables):
        write(place / str(number), [table], "parquet")
        write(parts / f"day=2024-01-0{number + 1}" / f"k=a%3A{number}", [table], "parquet")
    options = {"mergeSchema": "true"}
    flat = {**options, "recursiveFileLookup": "true"}
    with scene.run("convert") as run:
        plan(run, scene, {"t": (place, "parquet", flat), "p": (parts, "parquet", options)})
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        checks = checks_of(run, Level.CHECKSUMS)
    assert not_compared(checks) == set()
    assert {"day", "k", "more", "m"} <= {each.column for each in checks}


def _change(place: Path, change: Mapping[str, list[Any]]) -> None:
    """Write other values to columns of the file in a directory."""
    [path] = place.iterdir()
    is_orc = path.suffix == ".orc"
    table = orc.read_table(path) if is_orc else pq.read_table(path)
    for name, values in change.items():
        number = table.schema.get_field_index(name)
        table = table.set_column(number, name, pa.array(values, table.schema.field(number).type))
    orc.write_table(table, path) if is_orc else pq.write_table(table, path)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_values_that_differ_are_found_by_the_second_reader(scene: Scene, format: str) -> None:
    rows = pa.table({"id": [*range(50)], "t": [f"t{n}" for n in range(50)]})
    places = {
        name: write(scene.directory / name, [rows], format) for name in ("changed", "swapped")
    }
    with scene.run("convert") as run:
        plan(run, scene, {name: (path, format, {}) for name, path in places.items()})
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        _change(places["changed"], {"t": ["other", *[f"t{n}" for n in range(1, 50)]]})
        # Each column has its values still, but not in the same rows.
        _change(places["swapped"], {"t": [f"t{n}" for n in reversed(range(50))]})
        for level, columns in zip(LEVELS, ({""}, {"", "t"}), strict=True):
            record = verify(run.type, run.endpoints, run.migration, level)
            assert record.state is State.DIFFERS
            for state in record.items.values():
                if len(state.item.target) > 1:
                    found = {c.column for c in state.checks if not c.ok and c.name == VALUES}
                    is_changed = state.item.target[-1] == "changed"
                    assert found == (columns if is_changed else {""}), (level, state.checks)


def test_a_file_with_other_rows_than_spark_reads_is_found(scene: Scene) -> None:
    place = write(scene.directory / "t", [pa.table({"id": [1]})], "parquet")
    with scene.run("convert") as run:
        plan(run, scene, {"t": (place, "parquet", {})})
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        pq.write_table(pa.table({"id": [2, 3]}), place / "more.parquet")
        record = verify(run.type, run.endpoints, run.migration, Level.SAMPLE)
        differing = [c for each in record.items.values() for c in each.checks if not c.ok]
    assert ("rows in the files", 3, 1) in [(c.name, c.expected, c.found) for c in differing]


# -- CSV and JSON ----------------------------------------------------------------------------------

CSV = 'id,t,d,flag,day\n1,"a\n""b""",1.5,true,2024-01-02\n2,,,,\n-3,caf\u00e9, -2e3 ,false,\n'
JSON = (
    '{"id": 1, "t": "x", "m": {"l": [1.5, null], "s": "y"}}\n'
    '{"id": null, "t": "caf\u00e9", "any": "text", "m": {"l": []}}\n'
    '[{"id": 3, "any": {"a": 1}}, {"id": 4}]\n'
)


def test_all_rows_of_texts_are_compared_at_the_level_of_checksums(scene: Scene) -> None:
    options = {"header": "true", "inferSchema": "true", "multiLine": "true", "escape": '"'}
    csv = scene.directory / "csv"
    for number in range(2):
        write_text(csv / f"part={number}" / "t.csv", CSV)
    json = write_text(scene.directory / "json" / "t.json", JSON)
    with scene.run("convert") as run:
        plan(run, scene, {"csv": (csv, "csv", options), "json": (json, "json", {})})
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        checks = checks_of(run, Level.CHECKSUMS)
        assert not_compared(checks) == {"any", "day"}
        compared = {each.column for each in checks}
        assert compared == {"id", "t", "d", "flag", "day", "part", "m", "any", ""}
        write_text(csv / "part=1" / "t.csv", CSV.replace("b", "c"))
        write_text(json / "t.json", JSON.replace("1.5", "1.25"))
        differing = {each.column for each in checks_of(run, Level.CHECKSUMS) if not each.ok}
    assert differing == {"t", "m", ""}
