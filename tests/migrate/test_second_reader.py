"""What a plan of a conversion says where Spark reads other rows than a second reader does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from migrate.sessions import Scene, failed, replaced, rows_of
from pyarrow import orc
from spark.sql_helpers import set_conf

from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.plan import Item, ItemType, Severity
from lance_bridge_migrate.record import Check
from lance_bridge_migrate.second_reader.storage import Storage, UnreachableError

from .places import avro_file

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#the-second-reader")]

HEADER = {"header": "true"}
MERGED = {"mergeSchema": "true"}
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


def write(directory: Path, tables: Sequence[pa.Table], format: str) -> Path:
    """Write each table to a file of its own, named as shards of a data set are."""
    directory.mkdir(parents=True)
    for number, table in enumerate(tables):
        name = directory / f"train-{number:05d}-of-{len(tables):05d}.{format}"
        pq.write_table(table, name) if format == "parquet" else orc.write_table(table, name)
    return directory


def write_text(path: Path, text: str | bytes) -> Path:
    """Write a file; return its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path.parent


def plan(run: Any, scene: Scene, sources: Mapping[str, Any], **options: Any) -> dict[str, Item]:
    """Plan paths with their formats and read options; return the items by the new name."""
    paths = [
        {"path": str(path), "format": format, "table": name, "read_options": dict(given)}
        for name, (path, format, given) in sources.items()
    ]
    made = run.plan(paths=paths, namespace=[scene.target], **options)
    return {item.target[-1]: item for item in made.items if item.type is ItemType.TABLE}


def blockers(item: Item) -> list[tuple[str, str]]:
    return [(each.column, each.text) for each in item.blockers]


DIFFERING: dict[str, list[pa.Table]] = {
    "column": [pa.table({"id": [1], "a": ["x"]}), pa.table({"id": [2], "lang": ["en"]})],
    "field": [pa.table({"id": [1], "m": [{"a": 1}]}), pa.table({"id": [2], "m": [{"b": "x"}]})],
    "in_list": [
        pa.table({"id": [1], "m": [[{"a": 1}]]}),
        pa.table({"id": [2], "m": [[{"b": {"c": "x"}}]]}),
    ],
}


LOST = {"column": {"a", "lang"}, "field": {"m.a", "m.b"}, "in_list": {"m[].a", "m[].b"}}


@pytest.mark.parametrize("format", ["parquet", pytest.param("orc", marks=pytest.mark.slow)])
def test_columns_and_fields_of_other_files_block_until_schemas_are_merged(
    scene: Scene, format: str
) -> None:
    places = {n: write(scene.directory / n, t, format) for n, t in DIFFERING.items()}
    with scene.run("convert") as run:
        items = plan(run, scene, {name: (path, format, {}) for name, path in places.items()})
        for name, item in items.items():
            [(column, text)] = blockers(item)
            assert column in LOST[name]
            assert str(places[name] / "train-0000") in text
            assert "--read-option mergeSchema=true" in text
        items = plan(run, scene, {name: (path, format, MERGED) for name, path in places.items()})
        assert [item.problems for item in items.values()] == [()] * len(items)
        assert failed(run.execute(verify="checksums")) == []
    for name, tables in DIFFERING.items():
        union = pa.unify_schemas([each.schema for each in tables[:1]]).names
        found = scene.dataset(name).to_table()
        assert {*union, *tables[1].schema.names} == {*found.schema.names}
        assert found.num_rows == 2
    assert "'b': {'c': 'x'}" in str(scene.dataset("in_list").to_table().to_pylist())


def test_differences_are_accepted_by_one_option(scene: Scene) -> None:
    place = write(scene.directory / "t", DIFFERING["column"], "parquet")
    with scene.run("convert") as run:
        sources: dict[str, Any] = {"t": (place, "parquet", {})}
        item = plan(run, scene, sources, accept_differences=True)["t"]
        assert [(each.severity, each.column) for each in item.problems] == [
            (Severity.WARNING, "lang")
        ]
        assert failed(run.execute(verify="checksums")) == []
        only = {"t": {"accept_differences": True}}
        assert plan(run, scene, sources, tables=only, name="{table}_2")["t_2"].blockers == []
    assert scene.dataset("t").schema.names == ["id", "a"]


def test_types_in_which_values_would_change_are_blocked(scene: Scene) -> None:
    days = [pa.table({"id": [date(2024, 1, 1)]}), pa.table({"id": [1]})]
    numbers = [pa.table({"id": pa.array([1], pa.int32())}), pa.table({"id": [2**40]})]
    places: dict[str, Any] = {
        name: (write(scene.directory / name, tables, format), format, {})
        for name, tables, format in (
            ("days", days, "orc"),
            ("parquet", numbers, "parquet"),
        )
    }
    merged = {"merged": (places["parquet"][0], "parquet", MERGED)}
    with scene.run("convert") as run:
        items = {**plan(run, scene, places), **plan(run, scene, merged)}
        for name in ("days", "parquet", "merged"):
            column, text = blockers(items[name])[-1]
            assert column == "id", items[name].problems
            assert "/train-0000" in text


def test_all_footers_are_read_however_many_files_there_are(scene: Scene) -> None:
    tables = [pa.table({"id": [number]}) for number in range(150)]
    tables[77] = pa.table({"id": [77], "rare": [True]})
    place = write(scene.directory / "many", tables, "parquet")
    with scene.run("convert") as run:
        item = plan(run, scene, {"many": (place, "parquet", {})})["many"]
        [(column, text)] = blockers(item)
        assert (column, "train-00077-of-00150.parquet" in text) == ("rare", True)
        item = plan(run, scene, {"many": (place, "parquet", MERGED)})["many"]
        assert (item.rows, item.problems) == (150, ())


def test_files_that_spark_skips_because_of_their_names_are_blocked(scene: Scene) -> None:
    place = write(scene.directory / "t", [pa.table({"id": [1]})], "parquet")
    [file] = place.iterdir()
    hidden = ["_extra.parquet", ".x.parquet", ".hidden/part.bin"]
    for name in (*hidden, "_SUCCESS", "_temporary/0/part.parquet", ".part.parquet.crc"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place / name)
    with scene.run("convert") as run:
        [(_, text)] = blockers(plan(run, scene, {"t": (place, "parquet", {})})["t"])
        assert "skips 3 files" in text
        assert all(f"{place}/{name}" in text for name in hidden)
        assert "--accept-differences" in text
        filtered = {"t": (place, "parquet", {"pathGlobFilter": "train*"})}
        assert plan(run, scene, filtered)["t"].problems == ()
        items = plan(run, scene, {"t": (place, "parquet", {})}, accept_differences=True)
        assert (items["t"].rows, items["t"].blockers) == (1, [])


def test_columns_of_files_that_a_table_lacks_are_blocked(scene: Scene) -> None:
    database = scene.database()
    place = write(scene.directory / "t", DIFFERING["column"], "parquet")
    scene.sql(f"CREATE TABLE {database}.inferred USING parquet LOCATION '{place}'")
    scene.sql(f"CREATE EXTERNAL TABLE {database}.declared (id BIGINT, a STRING) "
              f"STORED AS PARQUET LOCATION '{place}'")  # fmt: skip
    with scene.converting(database) as run:
        items = run.migration.plan().blocked
        assert [item.source[-1] for item in items] == ["declared", "inferred"]
        for item in items:
            [(column, text)] = blockers(item)
            assert (column, "ALTER TABLE" in text) == ("lang", True)
        scene.sql(f"ALTER TABLE {database}.declared ADD COLUMNS (lang STRING)")
        made = run.plan(include=[f"{database}.declared"], namespace=[scene.target])
        assert made.blocked == []


def test_columns_of_avro_files_that_a_table_lacks_are_blocked(scene: Scene) -> None:
    database, place = scene.database(), scene.directory / "t"
    for name, row in (("a", {"id": 1, "a": "x"}), ("b", {"id": 2, "lang": "en"})):
        write_text(place / f"{name}.avro", avro_file([row]))
    scene.sql(f"CREATE EXTERNAL TABLE {database}.t (id BIGINT, a STRING) "
              f"STORED AS AVRO LOCATION '{place}'")  # fmt: skip
    with scene.converting(database) as run:
        [item] = run.migration.plan().blocked
        [(column, text)] = blockers(item)
        assert (column, "ALTER TABLE" in text) == ("lang", True)
        assert str(place / "b.avro") in text
        scene.sql(f"ALTER TABLE {database}.t ADD COLUMNS (lang STRING)")
        assert run.plan(include=[f"{database}.*"], namespace=[scene.target]).blocked == []
        record = run.execute(verify="sample")
        assert failed(record) == []
        checks = {c.name: c.found for each in record.items.values() for c in each.checks}
        assert checks["rows in the files"] == 2


def test_partitions_that_are_not_in_the_catalog_get_a_warning(scene: Scene) -> None:
    database = scene.database()
    name = f"{database}.t"
    scene.sql(f"CREATE TABLE {name} (id BIGINT) PARTITIONED BY (part BIGINT) STORED AS PARQUET")
    scene.sql(f"INSERT INTO {name} SELECT id, id % 2 AS part FROM range(4)")
    place = scene.directory / "raw" / "t"
    shutil.copytree(place / "part=0", place / "part=7")
    with scene.converting(database) as run:
        item = run.migration.plan().items[-1]
        [problem] = item.problems
        assert (problem.severity, item.rows) == (Severity.WARNING, 4)
        assert f"{place}/part=7" in problem.text
        assert "MSCK REPAIR TABLE" in problem.text
        scene.sql(f"MSCK REPAIR TABLE {name}")
        item = run.plan(include=[f"{database}.*"], namespace=[scene.target]).items[-1]
        assert (item.rows, item.problems) == (6, ())


# -- CSV and JSON ----------------------------------------------------------------------------------

CSV: dict[str, tuple[str | bytes, str, list[tuple[str | None, ...]]]] = {
    "line": ('id,t\n1,"one\ntwo"\n2,x\n', "multiLine=true", [("1", "one\ntwo"), ("2", "x")]),
    "quote": ('id,t\n1,"a ""b"", c"\n2,x\n', 'escape="', [("1", 'a "b", c'), ("2", "x")]),
    "latin": ("id,t\n1,café\n".encode("latin-1"), "encoding=ISO-8859-1", [("1", "café")]),
    "empty": ('id,t\n1,""\n2,\n', "nullValue=\\N", [("1", ""), ("2", None)]),
    "slash": ('id,t\n1,"C:\\"\n2,"x"\n', 'escape="', [("1", "C:\\"), ("2", "x")]),
    "deep": (
        "id,t\n" + "0,x\n" * 3000 + '1,"a\nb"\n' + "0,x\n" * 3000,
        "multiLine=true",
        [*[("0", "x")] * 6000, ("1", "a\nb")],
    ),
}


def test_rows_of_csv_that_spark_would_change_are_blocked_with_options_that_help(
    scene: Scene,
) -> None:
    places = {n: write_text(scene.directory / n / "t.csv", text) for n, (text, *_) in CSV.items()}
    with scene.run("convert") as run:
        items = plan(run, scene, {name: (path, "csv", HEADER) for name, path in places.items()})
        for name, item in items.items():
            [(column, text)] = blockers(item)
            assert (column, f"{places[name]}/t.csv has " in text) == ("t", True)
            assert text.endswith(f"(--read-option '{CSV[name][1]}')"), text
        given = {n: {**HEADER, **dict([CSV[n][1].split("=", 1)])} for n in CSV}
        items = plan(run, scene, {n: (path, "csv", given[n]) for n, path in places.items()})
        assert {name: item.problems for name, item in items.items()} == dict.fromkeys(CSV, ())


def test_rows_of_csv_are_converted_with_the_options_that_the_plan_names(scene: Scene) -> None:
    text, option, rows = CSV["deep"]
    place = write_text(scene.directory / "deep" / "t.csv", text)
    given = {**HEADER, **dict([option.split("=", 1)])}
    with scene.run("convert") as run:
        plan(run, scene, {"deep": (place, "csv", given)})
        assert failed(run.execute(verify="sample")) == []
    found = scene.dataset("deep").to_table().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(rows)


def test_records_of_csv_with_other_numbers_of_values_are_named(scene: Scene) -> None:
    texts = {
        "longer": "id,t\n1,a\n2,b,EXTRA\n",
        "shorter": "id,t\n1\n2,b\n",
        "foreign": "id,t\n1,a\n",
        "first": "1,a\n2,b\n",
        "escaped": 'id,t\n1,"a \\"b\\", c"\n2,"x"\n',
        "tabs": "id;t\n1;a\n",
    }
    options = {**dict.fromkeys(texts, HEADER), "first": {}}
    places = {n: write_text(scene.directory / n / "t.csv", text) for n, text in texts.items()}
    write_text(places["foreign"] / "README.md", "nothing to see\n")
    write_text(places["first"] / "t.csv", "id,t\n" + texts["first"])
    with scene.run("convert") as run:
        sources = {name: (path, "csv", options[name]) for name, path in places.items()}
        items = plan(run, scene, sources)
    texts_of = {name: [each.text for each in item.problems] for name, item in items.items()}
    assert "Record 3 of" in texts_of["longer"][0]
    assert "2,b,EXTRA" in texts_of["longer"][0]
    assert "README.md" in texts_of["foreign"][0]
    assert "1 records" in texts_of["shorter"][0]
    assert "header=true" in texts_of["first"][0]
    assert "sep=;" in texts_of["tabs"][0]
    assert texts_of["escaped"] == []
    is_blocked = {name for name, item in items.items() if item.blockers}
    assert is_blocked == {"longer", "foreign"}


def test_lines_that_are_no_json_are_blocked(scene: Scene) -> None:
    texts: dict[str, str | bytes] = {
        "broken": '{"a": 1}\n' * 600 + '{"a": 2, "b"\n',
        "list": '[\n{"a": 1},\n{"a": 2}]\n',
        "latin": '{"a": "café"}\n'.encode("latin-1"),
        "large": '{"a": 9007199254740993}\n{"a": 0.5}\n',
        "fields": '{"a": 1, "m": {"x": 1}}\n{"b": [{"y": [1]}], "e": {}}\n',
    }
    places = {n: write_text(scene.directory / n / "t.json", text) for n, text in texts.items()}
    with scene.run("convert") as run:
        items = plan(run, scene, {name: (path, "json", {}) for name, path in places.items()})
        found = {name: item.blockers[0].text for name, item in items.items() if item.blockers}
        assert set(found) == {"broken", "list", "latin", "large"}
        assert "Line 601 of" in found["broken"]
        assert found["list"].endswith("(--read-option 'multiLine=true')")
        assert "encoding=ISO-8859-1" in found["latin"]
        assert "9007199254740993" in found["large"]
        options = {"list": {"multiLine": "true"}, "fields": {}}
        options["latin"] = {"encoding": "ISO-8859-1", "lineSep": "\n"}
        items = plan(run, scene, {n: (places[n], "json", given) for n, given in options.items()})
        assert [item.problems for item in items.values()] == [()] * 3
        assert failed(run.execute(verify="checksums")) == []
    assert rows_of(scene.dataset("list").to_table(), "a") == [{"a": 1}, {"a": 2}]
    assert scene.dataset("latin").to_table()["a"].to_pylist() == ["café"]


def test_tables_of_csv_are_compared_with_their_options(scene: Scene) -> None:
    database = scene.database()
    place = write_text(scene.directory / "t" / "t.csv", 'id,t\n1,"one\ntwo"\n')
    for name, more in (("t", ""), ("lines", ", multiLine 'true'")):
        scene.sql(f"CREATE TABLE {database}.{name} (id INT, t STRING) USING csv "
                  f"OPTIONS (header 'true'{more}) LOCATION '{place}'")  # fmt: skip
    with scene.converting(database) as run:
        [item] = run.migration.plan().blocked
        assert (item.source[-1], item.blockers[0].column) == ("t", "t")


# -- what cannot be read, and what came later ------------------------------------------------------


def test_a_storage_that_the_second_reader_cannot_reach_is_a_warning(scene: Scene) -> None:
    place = write(scene.directory / "t", DIFFERING["column"], "parquet")

    def unreachable(_: Any) -> Any:
        def fail(*_: Any) -> Any:
            raise UnreachableError("the host does not respond")

        return fail

    with scene.run("convert") as run, replaced(Storage, "open", unreachable):
        item = plan(run, scene, {"t": (place, "parquet", {})})["t"]
        assert item.blockers == []
        assert item.rows == 2
        assert ["the host does not respond" in each.text for each in item.problems] == [True]


@contextmanager
def _no_storage_is_local() -> Iterator[None]:
    before = Storage.local_schemes
    Storage.local_schemes = ()
    try:
        yield
    finally:
        Storage.local_schemes = before


def test_files_of_other_storages_are_read_through_spark(scene: Scene) -> None:
    place = write(scene.directory / "t", DIFFERING["column"], "parquet")
    shutil.copy(place / "train-00000-of-00002.parquet", place / "_old.parquet")
    text = write_text(scene.directory / "csv" / "t.csv", CSV["line"][0])
    with scene.run("convert") as run, _no_storage_is_local():
        items = plan(run, scene, {"t": (place, "parquet", {}), "csv": (text, "csv", HEADER)})
    assert {each.column for each in items["t"].blockers} == {"", "lang"}
    assert any("not on this machine" in each.text for each in items["csv"].problems)
    assert any("multiLine=true" in each.text for each in items["csv"].blockers)


def test_files_that_come_after_the_plan_are_found_by_the_verification(scene: Scene) -> None:
    place = write(scene.directory / "t", [pa.table({"id": [1]})], "parquet")
    with scene.run("convert") as run:
        assert plan(run, scene, {"t": (place, "parquet", {})})["t"].problems == ()
        pq.write_table(pa.table({"id": [2], "late": ["x"]}), place / "z.parquet")
        [difference] = failed(run.execute())
    assert "differences from the files" in difference
    assert "late" in difference
    assert json.dumps(str(place / "z.parquet"))[1:-1] in difference


# -- comparison of rows ----------------------------------------------------------------------------


def checks_of(run: Any, level: Level) -> list[Check]:
    """Verify a migration; return its checks of values in files."""
    record = verify(run.type, run.endpoints, run.migration, level)
    return [c for each in record.items.values() for c in each.checks if c.name == VALUES]


def not_compared(checks: list[Check]) -> set[str]:
    return {each.column for each in checks if "not compared" in str(each.found)}


@pytest.mark.parametrize("format", ["parquet", pytest.param("orc", marks=pytest.mark.slow)])
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
    with set_conf(scene.spark, f"{conf}.outputTimestampType", "INT96"):
        scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id, "
                  f"TIMESTAMP'9999-01-01 00:00:00' AS at FROM range(5)")  # fmt: skip
        with (
            set_conf(scene.spark, f"{conf}.datetimeRebaseModeInWrite", "LEGACY"),
            set_conf(scene.spark, f"{conf}.int96RebaseModeInWrite", "LEGACY"),
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

CSV_TEXT = 'id,t,d,flag,day\n1,"a\n""b""",1.5,true,2024-01-02\n2,,,,\n-3,caf\u00e9, -2e3 ,false,\n'


JSON = (
    '{"id": 1, "t": "x", "m": {"l": [1.5, null], "s": "y"}}\n'
    '{"id": null, "t": "caf\u00e9", "any": "text", "m": {"l": []}}\n'
    '[{"id": 3, "any": {"a": 1}}, {"id": 4}]\n'
)


def test_all_rows_of_texts_are_compared_at_the_level_of_checksums(scene: Scene) -> None:
    options = {"header": "true", "inferSchema": "true", "multiLine": "true", "escape": '"'}
    csv = scene.directory / "csv"
    for number in range(2):
        write_text(csv / f"part={number}" / "t.csv", CSV_TEXT)
    json = write_text(scene.directory / "json" / "t.json", JSON)
    with scene.run("convert") as run:
        plan(run, scene, {"csv": (csv, "csv", options), "json": (json, "json", {})})
        problems = failed(run.execute(verify="checksums"))
        assert problems == [], problems
        checks = checks_of(run, Level.CHECKSUMS)
        assert not_compared(checks) == {"any", "day"}
        compared = {each.column for each in checks}
        assert compared == {"id", "t", "d", "flag", "day", "part", "m", "any", ""}
        write_text(csv / "part=1" / "t.csv", CSV_TEXT.replace("b", "c"))
        write_text(json / "t.json", JSON.replace("1.5", "1.25"))
        differing = {each.column for each in checks_of(run, Level.CHECKSUMS) if not each.ok}
    assert differing == {"t", "m", ""}
