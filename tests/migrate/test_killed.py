"""A conversion whose process is killed while Spark's tasks write continues in another process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from migrate.killing import FILES, ROWS
from migrate.sessions import beside
from servers.metastores import Metastores
from servers.sparks import Running

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_SECONDS = 120.0
_ENOUGH = 3
"""Files of tasks, so that some of them are whole."""


def _written(directory: Path) -> list[Path]:
    return list(directory.glob("*/lance/*/*/data/*.lance"))


def _killed_while_writing(running: Running, directory: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while len(_written(directory)) < _ENOUGH:
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.01)
    running.kill()


def test_killed_while_tasks_write_it_continues_in_another_process(
    metastores: Metastores, tmp_path: Path
) -> None:
    uri = metastores.get("2.3").uri
    scenes, spark = tmp_path / "scenes", beside(uri)
    arguments = {"uri": uri, "directory": str(scenes)}
    with spark.start("migrate.killing:begin", tmp_path / "first", **arguments) as running:
        _killed_while_writing(running, scenes)
    assert _ENOUGH <= len(_written(scenes)) < FILES
    [versions] = scenes.glob("*/lance/*/*/_versions")
    assert len(list(versions.glob("*.manifest"))) == 1, "nothing was committed"
    [state] = scenes.glob("*/state")
    found = spark.run(
        "migrate.killing:resume", tmp_path / "second", seconds=_SECONDS, state=str(state)
    )
    expected = {"wrong": [], "ids": list(range(ROWS)), "versions": 2, "orphans": 0}
    assert found == {**expected, "undone": "undone"}
    assert _written(scenes) == [], "also those of the tasks that died"
