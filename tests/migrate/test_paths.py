"""Directories and files that are given as paths, of which Spark would read other rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError
from migrate.building import Run
from migrate.increments import only_item, plan_next
from migrate.sparking import Scene, failed, rows_of
from spark.sql_helpers import setting

from lance_bridge_migrate.spark import sources

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.spec("migration.md#convert"),
]

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
        item = plan_csv(run, scene, place)
        assert (item.rows, item.problems) == (1, ())
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
        with setting(scene.spark, key, "false"):
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
        sources.at_path(None, "/data/t", format, {option: "3"})


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
