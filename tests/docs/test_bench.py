"""The benchmarks run, in small, and their answers are right. Their times are nobody's test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SMALL = ("--databases", "5", "--rounds", "3", "--each", "10", "--threads", "4")

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Expected:
    """What the benchmark of one catalog says of itself."""

    script: str
    title: str
    raw_client: str
    tables: int
    calls: tuple[int, int]
    """Of one listing: how many there are, and how many there may be."""


CATALOGS = [
    Expected("hive.py", "Hive Metastore 2.3", "hmsclient", 20, (1, 2)),
    # Two pages, of which the second is not full.
    Expected("glue.py", "AWS Glue (moto)", "boto3", 102, (2, 3)),
    Expected("unity.py", "Unity Catalog, open source (double", "databricks-sdk", 102, (2, 3)),
]


def run_bench(
    catalog: Expected, directory: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in small, with its temporary files in ``directory``."""
    script = str(BENCH / catalog.script)
    return subprocess.run(
        [sys.executable, script, *SMALL, "--tables", str(catalog.tables), *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module", params=CATALOGS, ids=lambda each: each.script)
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Expected, dict[str, Any]]:
    expected: Expected = request.param
    directory = tmp_path_factory.mktemp("bench")
    result = run_bench(expected, directory, "--output", "json")
    assert result.returncode == 0, result.stderr
    assert list(directory.iterdir()) == []
    return expected, json.loads(result.stdout)


@pytest.fixture
def found(measured: tuple[Expected, dict[str, Any]]) -> dict[str, Any]:
    return measured[1]


def test_what_was_measured_is_said(measured: tuple[Expected, dict[str, Any]]) -> None:
    expected, found = measured
    about = {key: found[key] for key in ("tables", "lance_tables", "databases", "rounds")}
    tables = {"tables": expected.tables, "lance_tables": expected.tables // 2}
    assert about == {**tables, "databases": 5, "rounds": 3}
    assert found["catalog"].startswith(expected.title)
    assert found["raw_client"] == expected.raw_client


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


def test_calls_on_the_wire_stay_within_their_bars(
    measured: tuple[Expected, dict[str, Any]],
) -> None:
    expected, found = measured
    missed = [each["operation"] for each in found["operations"] if each["calls_passed"] is False]
    assert missed == []
    calls = {each["operation"]: (each["calls"], each["calls_bar"]) for each in found["operations"]}
    assert calls["list_tables"] == calls["list_tables limit 10"] == expected.calls
    assert calls["describe_table"] == (1, 1)


def test_no_operation_opens_a_connection(found: dict[str, Any]) -> None:
    assert {each["connections_opened"] for each in found["operations"]} == {0}


def test_credentials_that_run_out_are_asked_for_once(
    measured: tuple[Expected, dict[str, Any]],
) -> None:
    expected, found = measured
    refresh = found["refresh"]
    if expected.raw_client != "boto3":
        assert refresh is None
        return
    assert refresh["refreshes"] == 1
    assert refresh["wrong"] == 0
    assert refresh["threads"] == 4
    assert refresh["operations"] >= 40


def test_the_table_for_people_has_verdicts(tmp_path: Path) -> None:
    result = run_bench(CATALOGS[2], tmp_path, "--tables", "2", "--databases", "2")
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^list_tables +[\d.]+ +[\d.]+ +[\d.]+ +<= 1.5 (pass|MISS) ", result.stdout, re.M
    )
    assert re.search(r"^describe_table .* 1 +<= 1 pass +1 GET /tables/NAME$", result.stdout, re.M)
    assert "wrong answers: 0" in result.stdout


def test_too_small_a_catalog_is_refused_before_it_is_started(tmp_path: Path) -> None:
    result = run_bench(CATALOGS[1], tmp_path, "--databases", "1")
    assert result.returncode == 2
    assert "at least 2 tables, 2 databases" in result.stderr
    assert "starting" not in result.stderr
