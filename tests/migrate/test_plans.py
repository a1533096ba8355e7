"""What a plan of a conversion finds out, of tables, files and paths, and by how many calls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.program import program
from lance_namespace.errors import InvalidInputError
from migrate.sessions import Scene, failed, only_item, plan_next, replaced, rows_of
from servers.hive_entries import raw_client
from servers.proxy import ThriftProxy
from spark.sql_helpers import set_conf

from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.arrow_files import ArrowFiles
from lance_bridge_migrate.migrations.convert import ConvertOptions, arrow_candidate
from lance_bridge_migrate.migrations.loading import LoadFacts
from lance_bridge_migrate.plan import Severity
from lance_bridge_migrate.spark import changes, listing
from lance_bridge_migrate.targets import Candidate

from .places import Place, Run, external_table, make_many_tables

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#convert")]

TABLES = 150
quick = pytest.mark.quick
ROWS_OF_NAMES_ALIKE = pa.table(
    {
        "id": [2, 1],
        "Id": [10, 20],
        "v": [[1.0, 2.0], [3.0, 4.0]],
        "V": [[5.0, 6.0], [7.0, 8.0]],
        "n": [5, 6],
    }
)
IDS = "'ID' may mean 'id' and 'Id', which differ only in letter case"


@pytest.mark.slow
def test_a_plan_asks_the_metastore_for_each_table_once(hive: Place, tmp_path: Path) -> None:
    port = hive.port
    make_many_tables(port, hive.prefix, tmp_path / "raw", TABLES)
    with ThriftProxy("127.0.0.1", port) as proxy:
        where = ["-p", f"uri={proxy.uri}", "-p", f"root={tmp_path / 'lance'}"]
        what = ["--include", f"{hive.prefix}.*", "--namespace", f"{hive.prefix}_lance"]
        how = ["--state", str(tmp_path / "state"), "--output", "json"]
        done = program("migrate", "convert", "hive", *what, *where, *how, seconds=280)
        assert done.returncode == 0, done.stderr[-3000:]
        calls = proxy.calls
    items = json.loads(done.stdout)["items"]
    assert [item["rows"] for item in items[1:]] == [10] * TABLES
    assert not any(item["problems"] for item in items)
    assert calls["get_table"] <= TABLES, calls
    assert sum(calls.values()) <= TABLES + 60, calls


@pytest.mark.spec("migration.md#plan")
def test_the_zone_of_the_session_is_in_the_plan(scene: Scene) -> None:
    database, key = scene.database(), "spark.sql.session.timeZone"
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT 1 AS id")
    before = scene.spark.conf.get(key)
    scene.spark.conf.unset(key)
    try:
        zone = scene.spark.conf.get(key)
        with scene.converting(database) as run:
            assert run.migration.plan().source.properties[key] == zone
    finally:
        scene.spark.conf.set(key, before)


def test_types_of_later_files_are_in_the_plan(scene: Scene) -> None:
    database, raw = scene.database(), scene.directory / "raw"
    for form in ("parquet", "orc"):
        name = f"later_{form}"
        scene.sql(f"CREATE TABLE {database}.{name} (id STRING, n BIGINT) USING {form}")
        scene.sql(f"INSERT INTO {database}.{name} VALUES ('a', 1)")
        other = scene.sql("SELECT id, CAST(id AS INT) AS n FROM range(3)").coalesce(1)
        other.write.format(form).save(str(scene.directory / form))
        for number, file in enumerate((scene.directory / form).glob(f"part-*.{form}")):
            shutil.copy(file, raw / name / f"zzz-{number}.{form}")
    # Spark reads INT32 as BIGINT.
    scene.sql(f"CREATE TABLE {database}.wider (n BIGINT) USING parquet")
    scene.sql("SELECT CAST(id AS INT) AS n FROM range(3)").write.mode("append").parquet(
        str(raw / "wider")
    )
    with scene.run("convert") as run:
        options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
        for count_rows in (True, False):
            plan = run.plan(**options, count_rows=count_rows)
            texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
            assert "types of its columns" in texts["later_parquet"]
            assert "zzz-0.parquet" in texts["later_parquet"]
        [wider] = [item for item in plan.to_do if item.source[-1:] == ("wider",)]
        assert wider.problems == ()


def test_rows_and_types_of_many_files_are_read_from_their_footers(scene: Scene) -> None:
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.many USING parquet AS SELECT id FROM range(0, 360, 1, 120)")
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        [_, many] = plan.items
        assert (many.rows, many.problems) == (360, ())


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def _always(usage: _Usage, _: Any) -> Any:
    return lambda _: usage


def test_space_that_is_not_free_is_in_the_plan(scene: Scene) -> None:
    database = scene.database()
    scene.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id FROM range(100)")
    options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
    with scene.run("convert") as run:
        [size] = [item.bytes for item in run.plan(**options).items if item.bytes]
        for free, notes in ((size, []), (size - 1, [f"{size:,} bytes, and {size - 1:,} are free"])):
            usage = _Usage(9, 9, free)
            with replaced(shutil, "disk_usage", partial(_always, usage)):
                found = run.plan(**options).notes
            assert len(found) == len(notes)
            assert all(part in note for part, note in zip(notes, found, strict=True))


def test_a_session_without_a_package_names_it(scene: Scene) -> None:
    """Entries as Delta and Iceberg make them, in a session that has neither."""
    database = scene.database()
    kinds = {
        "a_delta": {"spark.sql.sources.provider": "delta"},
        "an_iceberg": {"table_type": "ICEBERG", "metadata_location": "file:/nowhere/v1.json"},
    }
    with raw_client(scene.place.port) as client:
        for name, parameters in kinds.items():
            place = scene.directory / "raw" / name
            client.create_table(external_table(database, name, place, **parameters))
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
    assert "io.delta:delta-spark" in texts["a_delta"], texts
    assert "org.apache.iceberg:iceberg-spark-runtime" in texts["an_iceberg"], texts


# -- files that are gone ---------------------------------------------------------------------------


def test_a_table_without_rows_whose_files_cannot_be_seen_is_blocked() -> None:
    hidden = listing.Inventory(is_hidden=True)
    [problem] = listing.file_problems(None, None, hidden, 0)
    assert problem.severity is Severity.BLOCKER
    assert listing.file_problems(None, None, hidden, 3) == []
    assert listing.file_problems(None, None, hidden, 0, ignore_statistics=True) == []


ROWS = "SELECT /*+ REPARTITION(2) */ id, id % 2 AS part FROM range(40)"


def make_tables(scene: Scene, *names: str) -> tuple[str, Path]:
    """Make tables of two files each, ``parts…`` with two partitions; return where they are."""
    database = scene.database()
    for name in names:
        by = "PARTITIONED BY (part)" if name.startswith("parts") else ""
        scene.sql(f"CREATE TABLE {database}.{name} USING parquet {by} AS {ROWS}")
    return database, scene.directory / "raw"


def remove_one_file(place: Path) -> None:
    next(place.rglob("part-*.parquet")).unlink()


def remove_files(place: Path) -> None:
    for file in place.rglob("part-*.parquet"):
        file.unlink()


def test_missing_files_block_the_plan(scene: Scene) -> None:
    names = ("whole", "gone", "emptied", "less", "parts", "parts_gone", "parts_less")
    database, raw = make_tables(scene, *names)
    scene.sql(f"CREATE TABLE {database}.empty (id BIGINT) USING parquet")
    scene.sql(
        f"CREATE TABLE {database}.unregistered (id BIGINT) PARTITIONED BY (part BIGINT) "
        f"STORED AS PARQUET LOCATION '{raw / 'parts'}'"
    )
    shutil.rmtree(raw / "gone")
    shutil.rmtree(raw / "parts_gone" / "part=1")
    remove_files(raw / "emptied")
    remove_one_file(raw / "less")
    remove_one_file(raw / "parts_less")
    options = {"include": [f"{database}.*"], "namespace": [scene.target]}
    with scene.run("convert") as run:
        plan = run.plan(**options)
        texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
        assert set(texts) == {
            "gone", "emptied", "less", "parts_gone", "parts_less", "unregistered",
        }  # fmt: skip
        assert "1 of its 1 directories do not exist" in texts["gone"]
        assert f"{raw}/parts_gone/part=1" in texts["parts_gone"]
        assert "its files are gone" in texts["emptied"]
        assert "no file is newer than the statistics" in texts["less"]
        assert f"{raw}/parts_less/part=" in texts["parts_less"]
        assert "MSCK REPAIR TABLE" in texts["unregistered"]
        todo = {item.source[-1]: item for item in plan.to_do[1:]}
        assert set(todo) == {"whole", "parts", "empty"}
        assert todo["whole"].problems == todo["parts"].problems == ()
        assert "It has no files" in todo["empty"].problems[0].text
        plan = run.plan(**options, ignore_statistics=True)
        assert {item.source[-1] for item in plan.blocked} == set(texts) - {"less", "parts_less"}
        # Without counting rows, there is nothing that says so later.
        plan = run.plan(**options, count_rows=False)
        assert {item.source[-1] for item in plan.blocked} == set(texts)
        key = "spark.sql.files.ignoreMissingFiles"
        refused = pytest.raises(InvalidInputError, match=f"{key}=true")
        with set_conf(scene.spark, key, "true"), refused:
            run.plan(**options)


@pytest.mark.parametrize(
    "key", ["spark.files.ignoreCorruptFiles", "spark.files.ignoreMissingFiles"]
)
def test_sessions_that_skip_files_of_hive_are_refused(key: str) -> None:
    """They cannot be set while a session runs."""
    settings = {key: "true"}
    session = SimpleNamespace(conf=settings)
    with pytest.raises(InvalidInputError, match=f"{key}=true"):
        listing.require_no_skipped_files(session)
    settings[key] = "false"
    listing.require_no_skipped_files(session)


def test_options_that_skip_files_are_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="IgnoreCorruptFiles"):
        listing.at_path(scene.spark, "/data/t", "parquet", {"IgnoreCorruptFiles": "true"})
    database = scene.database()
    for name, value in (("skips", "true"), ("fails", "false")):
        scene.sql(
            f"CREATE TABLE {database}.{name} USING parquet OPTIONS (ignoreMissingFiles = {value}) "
            "AS SELECT 1 AS id"
        )
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        [item] = plan.blocked
        assert item.source[-1] == "skips"
        assert "ignoremissingfiles=true" in item.blockers[0].text


@pytest.mark.slow
def test_files_that_vanish_before_the_run_fail_their_tables(scene: Scene) -> None:
    database, raw = make_tables(scene, "whole", "gone", "less", "parts", "added")
    with scene.converting(database) as run:
        for name in ("gone", "less", "parts"):
            shutil.copytree(raw / name, scene.directory / "kept" / name)
        shutil.rmtree(raw / "gone")
        remove_one_file(raw / "less")
        shutil.rmtree(raw / "parts" / "part=0")
        scene.sql(f"INSERT INTO {database}.added SELECT 100, 1")
        record = run.execute(verify="checksums")
        errors = {k.split("/")[1]: e.error.message for k, e in record.items.items() if e.error}
        assert set(errors) == {"gone", "less", "parts"}
        assert "do not exist" in errors["gone"]
        assert "part=0" in errors["parts"]
        assert "missing" in errors["less"]
        assert scene.dataset("whole").count_rows() == 40
        assert scene.dataset("added").count_rows() == 41
        for name in ("gone", "less", "parts"):
            shutil.rmtree(raw / name, ignore_errors=True)
            shutil.copytree(scene.directory / "kept" / name, raw / name)
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, failed(record)
        assert scene.dataset("less").count_rows() == 40
        shutil.rmtree(raw / "gone")
        record = verify(run.type, run.endpoints, run.migration, Level.COUNTS)
        checks = record.items[f"{database}/gone"].checks
        assert {c.name for c in checks if not c.ok} == {"missing files", "rows"}


# -- paths -----------------------------------------------------------------------------------------

HEADER = {"header": "true", "inferSchema": "true"}


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def plan_csv(run: Run, scene: Scene, path: Path, **options: Any) -> Any:
    """Plan one directory of CSV, and return its item."""
    read_options = {**HEADER, **options.pop("read_options", {})}
    source = {"path": str(path), "format": "csv", "table": "t", "read_options": read_options}
    plan = run.plan(paths=[source], namespace=[scene.target], **options)
    return plan.items[-1]


def blocked(item: Any) -> str:
    [found] = item.blockers
    return str(found.text)


def test_directories_of_other_formats_are_not_read_as_plain_files(scene: Scene) -> None:
    names = {
        "delta": "_delta_log/00000000000000000000.json",
        "hudi": ".hoodie/hoodie.properties",
        "iceberg": "metadata/v1.metadata.json",
        "plain": "metadata/notes.txt",
    }
    paths: dict[str, Path] = {}
    for name, sign in names.items():
        paths[name] = scene.directory / "files" / name
        scene.spark.range(3).write.parquet(str(paths[name]))
        write(paths[name] / sign, "{}")
    paths["partition"] = paths["delta"] / "part=1"
    scene.spark.range(3).write.parquet(str(paths["partition"]))
    paths["pattern"] = scene.directory / "files" / "h*di"
    paths["files"] = paths["iceberg"] / "data"
    scene.spark.range(3).write.parquet(str(paths["files"]))
    given = [
        {"path": str(path), "format": "parquet", "table": name} for name, path in paths.items()
    ]
    with scene.run("convert") as run:
        plan = run.plan(paths=given, namespace=[scene.target])
    texts = {item.target[-1]: blocked(item) for item in plan.blocked}
    assert set(texts) == set(paths) - {"plain"}
    assert "format delta" in texts["delta"]
    assert "format delta" in texts["partition"]
    assert "Hudi" in texts["hudi"]
    assert "Hudi" in texts["pattern"]
    assert "Iceberg" in texts["iceberg"]
    assert "Iceberg" in texts["files"]


def test_files_beside_partition_directories_are_blocked(scene: Scene) -> None:
    place = scene.directory / "events"
    write(place / "day=2024-01-01" / "new.csv", "id", "1")
    write(place / "old.csv", "id", "2")
    with scene.run("convert") as run:
        text = blocked(plan_csv(run, scene, place))
        assert f"{place}/old.csv" in text
        assert "pathGlobFilter" in text
        for options in ({"pathGlobFilter": "new*"}, {"recursiveFileLookup": "true"}):
            assert plan_csv(run, scene, place, read_options=options).blockers == []
        (place / "old.csv").rename(place / "_old.csv")
        assert "skips 1 files because of their names" in blocked(plan_csv(run, scene, place))
        item = plan_csv(run, scene, place, accept_differences=True)
        assert (item.rows, item.blockers) == (1, [])
        assert failed(run.execute()) == []
        (place / "_old.csv").rename(place / "late.csv")
        item = only_item(plan_next(run, by="column", column="id"))
        assert f"{place}/late.csv" in blocked(item)


def test_texts_of_partition_directories_that_spark_would_change_are_blocked(scene: Scene) -> None:
    place, key = scene.directory / "shops", "spark.sql.sources.partitionColumnTypeInference.enabled"
    for name in ("01234", "98765", "__HIVE_DEFAULT_PARTITION__"):
        write(place / "day=2024-01-01" / f"zip={name}" / "a.csv", "id", "1")
    with scene.run("convert") as run:
        for casts in ({}, {"zip": "string"}):
            item = plan_csv(run, scene, place, casts=casts)
            assert f"'zip=01234' would become 1234: set {key}=false" in blocked(item)
            assert item.blockers[0].column == "zip"
        assert plan_csv(run, scene, place, casts={"zip": "int"}).problems == ()
        with set_conf(scene.spark, key, "false"):
            assert plan_csv(run, scene, place).problems == ()
            assert failed(run.execute(verify="checksums")) == []
    found = {row["zip"] for row in rows_of(scene.dataset("t").to_table())}
    assert found == {"01234", "98765", None}


@pytest.mark.parametrize(
    ("format", "option"),
    [
        ("delta", "versionAsOf"),
        ("delta", "TIMESTAMPASOF"),
        ("delta", "readChangeFeed"),
        ("iceberg", "snapshot-id"),
        ("iceberg", "as-of-timestamp"),
        ("iceberg", "branch"),
        ("iceberg", "tag"),
    ],
)
def test_options_that_select_a_snapshot_are_refused(format: str, option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{option}.*latest snapshot"):
        listing.at_path(None, "/data/t", format, {option: "3"})


def test_csv_files_with_other_headers_are_blocked(scene: Scene) -> None:
    place = scene.directory / "people"
    write(place / "a.csv", "first,last", "Ada,Lovelace")
    write(place / "b.csv", "last,first", "Turing,Alan")
    with scene.run("convert") as run:
        for options in ({"count_rows": True}, {"count_rows": False}):
            assert "enforceSchema" in blocked(plan_csv(run, scene, place, **options))
        given: Mapping[str, str] = {"enforceSchema": "true"}
        assert plan_csv(run, scene, place, read_options=given).rows == 2
        write(place / "b.csv", "first,last", "Alan,Turing")
        assert plan_csv(run, scene, place).problems == ()
        assert failed(run.execute(verify="checksums")) == []
    assert scene.dataset("t").count_rows() == 2


# -- names that differ in letter case only ---------------------------------------------------------


def candidate(directory: Path, **options: Any) -> Candidate:
    """Return what a conversion with pyarrow plans."""
    pq.write_table(ROWS_OF_NAMES_ALIKE, directory / "a.parquet")
    files = ArrowFiles.at_path(str(directory), "parquet", {})
    return arrow_candidate(files, ("db", "t"), ConvertOptions(**options))


def facts(directory: Path, **options: Any) -> LoadFacts:
    found = candidate(directory, **options).facts
    assert isinstance(found, LoadFacts)
    return found


@quick
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renames": {"ID": "key"}}, IDS),
        ({"indices": [{"column": "ID", "kind": "BTREE"}]}, IDS),
        ({"renames": {"n": "ID"}}, "'n' would have the name of column 'id'"),
        ({"renames": {"n": "a", "N": "b"}}, "'n' is named twice"),
    ],
)
def test_an_option_that_may_mean_two_columns_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _ = facts(tmp_path, **options).schema_of_table


@quick
def test_an_option_means_the_column_of_its_name(tmp_path: Path) -> None:
    options = {
        "renames": {"Id": "key", "N": "number"},
        "vectors": {"V": 2},
        "indices": [{"column": "id", "kind": "BTREE"}, {"column": "NUMBER", "kind": "BITMAP"}],
    }
    found = facts(tmp_path, **options)
    columns = found.schema_of_table
    assert columns.names == ["id", "key", "v", "V", "number"]
    assert columns.field("v").type == pa.list_(pa.float64())
    assert columns.field("V").type == pa.list_(pa.float64(), 2)
    assert [each.column for each in found.indices] == ["id", "number"]


def test_options_of_spark_mean_one_column(scene: Scene) -> None:
    place = scene.directory / "files"
    place.mkdir()
    pq.write_table(ROWS_OF_NAMES_ALIKE, place / "a.parquet")
    paths = [{"path": str(place), "format": "parquet", "table": "t"}]
    with set_conf(scene.spark, "spark.sql.caseSensitive", "true"), scene.run("convert") as run:
        for options, message in (
            ({"casts": {"ID": "string"}}, IDS),
            ({"renames": {"ID": "key"}}, IDS),
            ({"sort_by": ["ID"]}, IDS),
            ({"indices": [{"column": "ID", "kind": "BTREE"}]}, IDS),
            ({"vectors": {"V": 2}}, "Option 'vector.V' may mean each of 'v', 'V'"),
        ):
            plan = run.plan(paths=paths, namespace=[scene.target], **options)
            assert message in plan.blocked[0].blockers[0].text, options
        run.plan(
            paths=paths,
            namespace=[scene.target],
            casts={"Id": "string"},
            renames={"N": "number"},
            sort_by=["id"],
            indices=[{"column": "id", "kind": "BTREE"}],
        )
        assert failed(run.execute(verify="checksums")) == []
    found = scene.dataset("t")
    assert found.schema.names == ["id", "Id", "v", "V", "number"]
    assert found.to_table(["id", "Id", "number"]).to_pylist() == [
        {"id": 1, "Id": "20", "number": 6},
        {"id": 2, "Id": "10", "number": 5},
    ]
    assert [each.field_names for each in found.describe_indices()] == [["id"]]


def test_the_column_of_a_catch_up_means_one(scene: Scene) -> None:
    with set_conf(scene.spark, "spark.sql.caseSensitive", "true"):
        frame = scene.sql("SELECT 1L AS id, 'x' AS Id")
        assert changes.column_type(frame, "Id").typeName() == "string"
        assert changes.column_type(frame, "id").typeName() == "long"
        with pytest.raises(InvalidInputError, match=IDS):
            changes.column_type(frame, "ID")
