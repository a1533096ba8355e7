"""The benchmarks of what is inside a table run, in small, and find what they are to find."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.server


def run_bench(script: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark with its temporary files in ``directory``."""
    return subprocess.run(
        [sys.executable, str(BENCH / script), *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def measured(script: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """Return what a benchmark found, which leaves no file behind."""
    result = run_bench(script, directory, *arguments, "--output", "json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(directory.iterdir()) == []
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured("operations.py", tmp_path_factory.mktemp("operations"), "--rounds", "1")


def test_no_operation_inside_a_table_was_answered_wrong(operations: dict[str, Any]) -> None:
    assert (operations["wrong_answers"], operations["unlike_tables"]) == (0, 0)
    names = [each["operation"] for each in operations["operations"]]
    assert len(names) == len(set(names)) == 40
    for group in ("insert", "merge", "query", "columns", "index", "version", "tag", "branch"):
        assert any(group in name for name in names), group


def test_an_operation_inside_a_table_is_one_call_to_the_catalog(operations: dict[str, Any]) -> None:
    inside = [each for each in operations["operations"] if each["operation"] != "create_table"]
    assert {each["operation"]: each["calls"] for each in inside if each["calls"] != 1} == {}
    assert all(each["calls_passed"] for each in inside)
    assert {name for each in inside for name in each["calls_by_name"]} == {"get_table_req"}


def test_what_is_our_own_is_what_pylance_and_the_catalog_do_not_take(
    operations: dict[str, Any],
) -> None:
    for each in operations["operations"]:
        assert min(each["ours_ms"], each["pylance_ms"], each["call_ms"]) > 0
        own = each["ours_ms"] - each["pylance_ms"] - each["call_ms"]
        assert each["own_ms"] == pytest.approx(own, abs=0.01)
        if each["operation"] != "create_table":
            assert each["own_ms_passed"] == (each["own_ms"] < each["own_ms_bar"] == 3)
    missed = [each for each in operations["operations"] if each["own_ms_passed"] is False]
    told = [f"{each['operation']}: own_ms {each['own_ms']:g}, bar 3" for each in missed]
    assert told == operations["missed"]


def test_memory_is_measured_in_a_process_for_each_case(tmp_path: Path) -> None:
    chosen = ["create iterator", "merge file", "query"]
    cases = [argument for name in chosen for argument in ("--case", name)]
    found = measured("memory.py", tmp_path, "--megabytes", "1", *cases)
    assert [each["case"] for each in found["cases"]] == chosen
    assert found["wrong_answers"] == 0
    assert found["rows"] == 2 * 8192
    assert 0 < found["megabytes"] < 15
    for each in found["cases"]:
        assert 0 < each["grown_mb"] < each["bar_mb"] == 500
        assert each["pylance_grown_mb"] > 0
        assert each["passed"] is True
    assert found["missed"] == []


def test_the_table_for_people_says_which_bars_are_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH.parent))
    pairs = importlib.import_module("bench.pairs")
    report = importlib.import_module("bench.pairs_report")
    figures = {
        "slow": pairs.Pair([0.009], [0.002], [0.001], {"get_table": 2.0}),
        "quick": pairs.Pair([0.004], [0.002], [0.001], {"get_table": 1.0}),
    }
    steps = [pairs.Step(name, None, None, None) for name in figures]
    about = {"catalog": "C", "rows": 1, "rounds": 1, "raw_client": "r", "load_average": 0}
    shown = report.as_text(report.collect(about, steps, figures, 0))
    assert "bars missed: 2\n  slow: own_ms 6, bar 3\n  slow: calls 2, bar 1\n" in shown
    text = " ".join(shown.split())
    assert "slow 9.00 2.00 1.00 6.00 6.00..6.00 6.00 < 3 MISS 2 = 1 MISS 2 get_table" in text
    assert "quick 4.00 2.00 1.00 1.00 1.00..1.00 1.00 < 3 pass 1 = 1 pass 1 get_table" in text
