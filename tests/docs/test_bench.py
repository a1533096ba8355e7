"""The benchmark runs, in small, and its answers are right. Its times are nobody's test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "hive.py"
SMALL = ("--tables", "20", "--databases", "5", "--rounds", "3", "--each", "10", "--threads", "4")

pytestmark = pytest.mark.server


def run_bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark in small, with its temporary files in ``directory``."""
    return subprocess.run(
        [sys.executable, str(BENCH), *SMALL, *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("bench")
    result = run_bench(directory, "--output", "json")
    assert result.returncode == 0, result.stderr
    assert list(directory.iterdir()) == []
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_what_was_measured_is_said(found: dict[str, Any]) -> None:
    about = {key: found[key] for key in ("tables", "lance_tables", "databases", "rounds")}
    assert about == {"tables": 20, "lance_tables": 10, "databases": 5, "rounds": 3}
    assert found["metastore"].startswith("2.3")


def test_no_answer_was_wrong(found: dict[str, Any]) -> None:
    assert found["wrong_answers"] == 0
    assert found["threads"]["operations"] == 4 * 10 * 5


def test_every_operation_has_its_figures(found: dict[str, Any]) -> None:
    operations = {each["operation"]: each for each in found["operations"]}
    assert list(operations) == [
        "list_tables",
        "list_tables limit 10",
        "list_namespaces",
        "describe_table",
        "declare_table",
        "deregister_table",
    ]
    for each in operations.values():
        assert each["ours_ms"] > 0
        assert each["raw_ms"] > 0
        assert each["calls"] == sum(each["calls_by_name"].values()) > 0


def test_calls_on_the_wire_stay_within_their_bars(found: dict[str, Any]) -> None:
    missed = [each["operation"] for each in found["operations"] if each["calls_passed"] is False]
    assert missed == []


def test_no_operation_opens_a_connection(found: dict[str, Any]) -> None:
    assert {each["connections_opened"] for each in found["operations"]} == {0}


def test_the_table_for_people_has_verdicts(tmp_path: Path) -> None:
    result = run_bench(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "<= 1.5" in result.stdout
    assert "wrong answers: 0" in result.stdout
