"""Table maintenance in this process and in Spark, and the conformance kit as a command."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from lance_bridge import kit_options
from lance_bridge.dataset import maintenance
from lance_bridge.testing.concurrency import THREADS

from .conftest import Lake
from .program import answer_of, program, run

pytestmark = [pytest.mark.servers, pytest.mark.spec("cli.md#check", "cli.md#maintain")]


def in_fragments(lake: Lake, count: int = 4, **properties: str) -> str:
    name = lake.create("orders", **properties)
    for _ in range(count - 1):
        lake.append("orders")
    return name


def fragments(lake: Lake) -> int:
    return len(lance.dataset(str(lake.place("orders"))).get_fragments())


def test_compact_plans_and_compacts(lake: Lake) -> None:
    name = in_fragments(lake)
    planned = answer_of("maintain", "compact", "prod", name, "--dry-run")
    assert (planned["fragments_removed"], planned["version"]) == (4, 4)
    assert fragments(lake) == 4
    done = answer_of("maintain", "compact", "prod", name)
    assert (done["fragments_removed"], done["fragments_added"]) == (4, 1)
    assert (fragments(lake), run("table", "count", "prod", name).stdout) == (1, "20\n")
    again = answer_of("maintain", "compact", "prod", name)
    assert (again["tasks"], again["version"]) == (0, done["version"])


def test_a_managed_table_is_compacted_through_its_catalog(lake: Lake) -> None:
    name = lake.create("orders", managed_by="impl")
    for _ in range(2):
        lance.write_dataset(
            lance.dataset(str(lake.place("orders"))).to_table(),
            namespace_client=lake.namespace,
            table_id=name.split("."),
            mode="append",
        )
    done = answer_of("maintain", "compact", "prod", name)
    assert done["fragments_added"] == 1
    assert answer_of("table", "describe", "prod", name)["version"] == done["version"]
    assert answer_of("managed", "check", "prod", name)["versions"] == []


def test_index_builds_an_index_or_refuses(lake: Lake) -> None:
    name = lake.create("orders")
    result = answer_of(
        "maintain", "index", "prod", name, "id", "--kind", "BITMAP", "--name", "by_id"
    )
    assert result["index"] == "by_id"
    [index] = answer_of("table", "indices", "prod", name)["indices"]
    assert (index["index"], index["kind"]) == ("by_id", "BITMAP")
    again = run("maintain", "index", "prod", name, "id", "--name", "by_id", code=1)
    assert "already has an index 'by_id'" in again.stderr
    assert "'nope'" in run("maintain", "index", "prod", name, "nope", code=1).stderr


def test_index_prints_the_name_of_the_index_that_was_built(lake: Lake) -> None:
    name = lake.create("orders")
    assert answer_of("maintain", "index", "prod", name, "`id`")["index"] == "id_idx"
    [index] = answer_of("table", "indices", "prod", name)["indices"]
    assert index["index"] == "id_idx"


def test_clean_up_plans_and_deletes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEAST_AGE", timedelta())
    name = in_fragments(lake)
    command = ["maintain", "clean-up", "prod", name, "--older-than", "0m"]
    assert answer_of(*command, "--dry-run")["versions"] == 3
    assert len(answer_of("table", "versions", "prod", name)["versions"]) == 4
    assert answer_of(*command, "--keep", "2")["versions"] == 2
    assert answer_of(*command)["versions"] == 1
    assert run("table", "count", "prod", name).stdout == "20\n"


def test_an_unsafe_or_malformed_age_is_refused(lake: Lake) -> None:
    name = in_fragments(lake, 2)
    refused = run("maintain", "clean-up", "prod", name, "--older-than", "59m", code=1)
    assert "1:00:00 or more" in refused.stderr
    for bad in ("soon", "3", "-1d", "1w", ""):
        run("maintain", "clean-up", "prod", name, "--older-than", bad, code=2)
    kept = answer_of("maintain", "clean-up", "prod", name, "--older-than", "1h")
    assert kept["versions"] == 0


# -- plans -----------------------------------------------------------------------------------------


@pytest.mark.spec("common.md#planning-maintenance")
def test_plan_lists_what_is_due_and_names_what_cannot_be_read(lake: Lake) -> None:
    run("ns", "properties", "set", "prod", lake.database, "maintenance.min_fragments=3")
    name = in_fragments(lake)
    lake.create("small")
    gone = lake.create("gone")
    shutil.rmtree(lake.place("gone"))
    found = answer_of("maintain", "plan", "prod", "--namespace", lake.database)
    [due] = found["due"]
    assert (due["table"], due["actions"], due["small_fragments"]) == (name, ["compact"], 4)
    assert [each["name"] for each in found["unplanned"]] == [gone]
    assert found["tables"] == 3
    run("maintain", "compact", "prod", name)
    after = run("maintain", "plan", "prod", "-n", lake.database)
    assert after.stdout == "prod: 0 of 3 tables need maintenance\n"
    assert f"not planned: {gone}" in after.stderr


@pytest.mark.spec("common.md#running-maintenance")
def test_run_does_what_is_due_and_has_exit_code_1_for_what_cannot_be_read(lake: Lake) -> None:
    run("ns", "properties", "set", "prod", lake.database, "maintenance.min_fragments=3")
    name = in_fragments(lake)
    where = ("--namespace", lake.database)
    left = answer_of("maintain", "run", "prod", *where, "--budget", "0m")
    assert [each["result"] for each in left["tables"]] == ["left"]
    done = answer_of("maintain", "run", "prod", *where)
    [table] = done["tables"]
    assert (table["table"], table["result"], table["actions"]) == (name, "done", ["compact"])
    assert (table["before"]["small_fragments"], table["after"]["small_fragments"]) == (4, 0)
    assert fragments(lake) == 1
    shutil.rmtree(lake.place("orders"))
    after = run("maintain", "run", "prod", *where, code=1)
    assert after.stdout == "prod: nothing is due\n"
    assert f"not planned: {name}" in after.stderr


# -- the conformance kit ---------------------------------------------------------------------------


def test_a_failed_case_has_exit_code_3(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    done = program(
        "check",
        "conformance.broken_suite.ForgetsTheToken",
        *("-p", f"root={tmp_path}", "-k", "tables_page_by_page", "--output", "json"),
        environment={"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 3, done.stderr
    assert any("page" in each for each in json.loads(done.stdout)["failed"])


def test_cases_are_selected_by_group_and_counted_with_the_reasons_of_what_is_skipped(
    tmp_path: Path,
) -> None:
    # No case has "declarations" in its own name.
    chosen = ("-k", "declarations or (tables and its_old_name)", "--without", "rename")
    done = program("check", "dir", "-p", f"root={tmp_path}", *chosen, "--output", "json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["passed"], outcome["failed"]) == (1, [])
    reasons = outcome["skipped_by_reason"]
    assert set(reasons) == {"--without rename"}
    assert sum(reasons.values()) == outcome["skipped"]


STOPPED_IN_A_CASE = """
import sys, time
from pathlib import Path
from lance_bridge.testing import command, concurrency

def race(call):
    Path(sys.argv[1]).touch()
    time.sleep(60)

concurrency.race = race
sys.exit(command.main(sys.argv[2:]))
"""


def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path: Path) -> None:
    temporary, root, reached = (tmp_path / name for name in ("temporary", "root", "reached"))
    temporary.mkdir()
    # The case has made tables when it starts threads.
    case = ("-k", "answered_about_its_own_table")
    running = subprocess.Popen(
        [sys.executable, "-c", STOPPED_IN_A_CASE, str(reached), "dir", "-p", f"root={root}", *case],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while not reached.exists():
        assert running.poll() is None
        time.sleep(0.01)
    assert len(list(root.rglob("*lbkit_*"))) >= THREADS
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 130, rest
    assert b"KeyboardInterrupt" in rest
    assert list(temporary.iterdir()) == []
    assert [path.name for path in root.rglob("*lbkit_*")] == []


def test_check_and_the_module_have_the_same_options() -> None:
    shown = run("check", "--help").stdout
    module = io.StringIO()
    with redirect_stdout(module), pytest.raises(SystemExit):
        kit_options.parse(["--help"])
    words = shown.replace("lance-bridge check", kit_options.MODULE).split()
    assert words == module.getvalue().split()
    assert "--deviation" in words


# -- in Spark --------------------------------------------------------------------------------------


def in_spark(*arguments: str) -> dict[str, object]:
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DRIVER_MEMORY": "1g", **os.environ}
    done = program(*arguments, "--spark", "--output", "json", environment=environment, seconds=250)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_spark_compacts(lake: Lake) -> None:
    name = in_fragments(lake)
    compacted = in_spark("maintain", "compact", "prod", name)
    assert (compacted["fragments_removed"], fragments(lake)) == (4, 1)
    assert run("maintain", "compact", "prod", name, "--spark", "--dry-run", code=2)


@pytest.mark.slow
def test_spark_without_java_is_reported(lake: Lake, tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    command = ["maintain", "compact", "prod", in_fragments(lake), "--spark"]
    done = program(*command, environment=environment)
    assert done.returncode == 1
    assert "Spark cannot start" in done.stderr
    assert "JAVA_HOME" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_spark_cleans_up_and_builds_an_index_of_a_catalog_that_is_not_configured(
    lake: Lake,
) -> None:
    name = in_fragments(lake)
    assert in_spark("maintain", "clean-up", "prod", name, "--older-than", "1h")["versions"] == 0
    in_spark("maintain", "index", "hive", name, "id", "-p", f"uri={lake.metastore.uri}")
    [index] = answer_of("table", "indices", "prod", name)["indices"]
    assert index["indexed_rows"] == 20
