"""The benchmarks take their options, judge what they find, and run. Their times are not tested."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SUITES = ["hive", "glue", "unity", "operations", "memory", "spark", "migrate"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    return importlib.import_module("bench.__main__")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY))
    return importlib.import_module("bench.runner")


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_explains_its_options(
    bench: Any, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([suite, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m bench {suite}" in capsys.readouterr().out


def test_options_out_of_range_are_refused(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["hive", "--tables", "1"])
    assert ended.value.code == 2
    assert "argument --tables: must be at least 2" in capsys.readouterr().err


def test_ways_take_turns_and_are_compared(runner: Any) -> None:
    order: list[str] = []

    def way(name: str, seconds: float) -> Any:
        def do(turn: int) -> Any:
            order.append(f"{name}{turn}")
            return runner.Timed(seconds, seconds)

        return do

    operation = runner.Operation(
        "copy",
        {"ours": way("o", 3.0), "raw": way("r", 2.0)},
        lambda answers, turn: answers == {"ours": 3.0, "raw": 2.0} and turn < 2,
        [runner.Bar("ratio", "<=", 1.2)],
    )
    found = runner.take_turns([operation], 2, rehearsals=1)["copy"]
    assert order == ["o0", "r0", "r1", "o1", "o2", "r2"]
    assert (found.seconds, found.wrong) == ({"ours": [3.0] * 2, "raw": [2.0] * 2}, 1)
    report = runner.make_report({}, {"operations": [runner.operation_row(operation, found)]})
    assert report["missed"] == ["copy: ratio 1.5, bar <= 1.2"]
    assert report["wrong_answers"] == 1
    lines = runner.to_text(report).splitlines()
    (row,) = (line.split() for line in lines if line.startswith("copy "))
    assert row == ["copy", "3000.00", "2000.00", "1.50", "<=", "1.2", "MISS", "1"]


@pytest.mark.slow
@pytest.mark.server
def test_a_small_catalog_is_measured_without_wrong_answers(tmp_path: Path) -> None:
    sizes = ("--tables", "102", "--databases", "5", "--rounds", "2", "--each", "5")
    result = subprocess.run(
        [sys.executable, "-m", "bench", "unity", *sizes, "--output", "json"],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.iterdir()) == []
    found = json.loads(result.stdout)
    assert (found["wrong_answers"], found["lance_tables"]) == (0, 51)
    calls = {each["operation"]: each["calls"] for each in found["operations"]}
    # Of two pages, the second one is not full.
    assert calls["list_tables"] == calls["list_tables limit 10"] == 2
    assert calls["describe_table"] == 1
    assert {each["connections_opened"] for each in found["operations"]} == {0}
