"""Directories and files that are given as paths, of which Spark would read other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from migrate.sparking import Scene

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(300)]


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


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
