"""Tables whose files are gone are never converted to fewer rows without a word."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from lance_namespace.errors import InvalidInputError
from migrate.sparking import Scene, failed
from spark.sql_helpers import setting

from lance_bridge_migrate import Level, State, verify
from lance_bridge_migrate.plan import Severity
from lance_bridge_migrate.spark import completeness, sources

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.spec("migration.md#convert")]


@pytest.mark.servers
def test_a_table_without_rows_whose_files_cannot_be_seen_is_blocked() -> None:
    hidden = completeness.Inventory(is_hidden=True)
    [problem] = completeness.problems_of(None, None, hidden, 0)
    assert problem.severity is Severity.BLOCKER
    assert completeness.problems_of(None, None, hidden, 3) == []
    assert completeness.problems_of(None, None, hidden, 0, ignore_statistics=True) == []


ROWS = "SELECT /*+ REPARTITION(2) */ id, id % 2 AS part FROM range(40)"


def make_tables(scene: Scene, *names: str) -> tuple[str, Path]:
    """Make tables of two files each, ``parts…`` with two partitions; return where they are."""
    database = scene.database()
    for name in names:
        by = "PARTITIONED BY (part)" if name.startswith("parts") else ""
        scene.spark.sql(f"CREATE TABLE {database}.{name} USING parquet {by} AS {ROWS}")
    return database, scene.directory / "raw"


def remove_one_file(place: Path) -> None:
    next(place.rglob("part-*.parquet")).unlink()


def remove_files(place: Path) -> None:
    for file in place.rglob("part-*.parquet"):
        file.unlink()


@pytest.mark.servers
def test_missing_files_block_the_plan(scene: Scene) -> None:
    names = ("whole", "gone", "emptied", "less", "parts", "parts_gone", "parts_less")
    database, raw = make_tables(scene, *names)
    scene.spark.sql(f"CREATE TABLE {database}.empty (id BIGINT) USING parquet")
    scene.spark.sql(
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
        with setting(scene.spark, key, "true"), refused:
            run.plan(**options)


@pytest.mark.servers
@pytest.mark.parametrize(
    "key", ["spark.files.ignoreCorruptFiles", "spark.files.ignoreMissingFiles"]
)
def test_sessions_that_skip_files_of_hive_are_refused(key: str) -> None:
    """They cannot be set while a session runs."""
    settings = {key: "true"}
    session = SimpleNamespace(conf=settings)
    with pytest.raises(InvalidInputError, match=f"{key}=true"):
        completeness.require_no_skipped_files(session)
    settings[key] = "false"
    completeness.require_no_skipped_files(session)


@pytest.mark.servers
def test_options_that_skip_files_are_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="IgnoreCorruptFiles"):
        sources.at_path(scene.spark, "/data/t", "parquet", {"IgnoreCorruptFiles": "true"})
    database = scene.database()
    for name, value in (("skips", "true"), ("fails", "false")):
        scene.spark.sql(
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
        scene.spark.sql(f"INSERT INTO {database}.added SELECT 100, 1")
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
