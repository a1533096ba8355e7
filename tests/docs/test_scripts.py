"""Scripts of ``bench/`` and ``demo/`` take their options; benchmarks judge what they measure."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers.processes import run_command

pytestmark = pytest.mark.checks

REPOSITORY = Path(__file__).parents[2]
SUITES = [
    *("hive", "glue", "unity", "operations", "memory", "start", "spark", "pictures", "migrate"),
    "server",
]
SCRIPTS = [("demo.run",), *(("bench.__main__", suite) for suite in SUITES)]
DEMO = Path(__file__).parents[2] / "demo" / "run.py"
SECONDS = 480


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))


def test_a_script_explains_its_options_and_refuses_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module, *suite in SCRIPTS:
        main = importlib.import_module(module).main
        for option, code in (("--help", 0), ("--no-such-option", 2)):
            with pytest.raises(SystemExit) as ended:
                main([*suite, option])
            assert ended.value.code == code, (module, suite, option)
        usage = " ".join(("usage: python -m bench", *suite)) if suite else "usage: "
        assert usage in capsys.readouterr().out
    with pytest.raises(SystemExit):
        importlib.import_module("bench.__main__").main(["hive", "--tables", "1"])
    assert "argument --tables: must be at least 2" in capsys.readouterr().err


def test_ways_take_turns_and_are_compared() -> None:
    runner = importlib.import_module("bench.runner")
    order: list[str] = []

    def way(name: str, seconds: float) -> Any:
        def do(turn: int) -> Any:
            order.append(f"{name}{turn}")
            return runner.Timed(seconds, seconds, cpu=seconds / 4)

        return do

    operation = runner.Operation(
        "copy",
        {"ours": way("o", 3.0), "raw": way("r", 2.0)},
        lambda answers, turn: answers == {"ours": 3.0, "raw": 2.0} and turn < 2,
        {"ratio": "<= 1.2"},
    )
    found = runner.take_turns([operation], 2, rehearsals=1)["copy"]
    assert order == ["o0", "r0", "r1", "o1", "o2", "r2"]
    assert (found.seconds, found.wrong) == ({"ours": [3.0] * 2, "raw": [2.0] * 2}, 1)
    rows = runner.operation_rows([operation], {"copy": found})
    report = runner.make_report({"operations": rows})
    assert report["missed"] == ["copy: ratio 1.5, bar <= 1.2"]
    assert report["wrong_answers"] == 1
    lines = runner.to_text(report).splitlines()
    (row,) = (line.split() for line in lines if line.startswith("copy "))
    assert " ".join(row) == "copy 3000.00 2000.00 1.50 <= 1.2 MISS 750.00 500.00 1.50 1"


def measured(directory: Path, *arguments: str, seconds: float, code: int | None = 0) -> Any:
    """Return the report of a benchmark."""
    words = [sys.executable, "-m", "bench", *arguments, "--output", "json"]
    environment = {**os.environ, "TMPDIR": str(directory)}
    done = run_command(*words, code=code, seconds=seconds, cwd=REPOSITORY, env=environment)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_small_catalog_is_measured_without_wrong_answers(tmp_path: Path) -> None:
    sizes = ("--tables", "102", "--databases", "5", "--rounds", "2")
    found = measured(tmp_path, "unity", *sizes, seconds=240)
    assert list(tmp_path.iterdir()) == []
    assert (found["wrong_answers"], found["lance_tables"]) == (0, 51)
    calls = {each["operation"]: each["calls"] for each in found["operations"]}
    # Of two pages, the second one is not full.
    assert calls["list_tables"] == calls["list_tables limit 10"] == 2
    assert calls["describe_table"] == 1
    assert {each["connections_opened"] for each in found["operations"]} == {0}


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
@pytest.mark.slow
def test_operations_inside_a_table_make_the_calls_that_are_allowed(tmp_path: Path) -> None:
    found = measured(tmp_path, "operations", "--rounds", "1", seconds=250)
    assert found["wrong_answers"] == 0
    rows = found["operations"][1:] + found["operations_on_a_managed_table"][1:]
    assert [each["operation"] for each in rows if not each["calls_passed"]] == []
    assert len(rows) == 41


@pytest.mark.spec("spark.md#speed")
@pytest.mark.slow
def test_statements_and_queries_of_spark_give_the_answers_of_parquet(tmp_path: Path) -> None:
    sizes = ["--rows", "6000", "--scale", "0.01", "--rounds", "1", "--no-jobs"]
    sizes += ["--fragments", "30", "--versions", "10"]
    found = measured(tmp_path, "spark", *sizes, seconds=1500)
    assert found["wrong_answers"] == 0
    queries = {each["operation"]: each["rows"] for each in found["queries"]}
    assert list(queries) == [f"Q{number}" for number in range(1, 23)]
    assert [name for name, rows in queries.items() if rows == 0] == []
    [mean] = found["all_queries"]
    assert (mean["ratio_bar"], mean["cpu_ratio_bar"]) == ("<= 1.3", "<= 1.3")
    statements = {each["operation"]: each for each in found["statements"]}
    assert len(statements) == 14
    lookup = statements["point lookup, in order"]
    assert (lookup["ratio_bar"], lookup["ours_cpu_s_bar"]) == ("<= 0.5", "<= 0.06")
    assert lookup["parquet_cpu_s"] >= 0
    [plan] = found["plans"]
    assert (plan["operation"], plan["ours_s_bar"]) == ("plan of 30 fragments", "<= 2")
    [start] = found["first_statement"]
    assert start["ours_cpu_s_bar"] == "<= 3"


def test_the_cpu_time_of_a_tree_has_that_of_children_that_ended(tmp_path: Path) -> None:
    processes = importlib.import_module("bench.processes")
    program = tmp_path / "burn.py"
    program.write_text("import time\nwhile time.process_time() < 0.5:\n    pass\n")
    before = processes.cpu_seconds(os.getpid())
    subprocess.run([sys.executable, str(program)], check=True, timeout=240)
    assert processes.cpu_seconds(os.getpid()) - before >= 0.45


@pytest.mark.slow
def test_start_up_is_measured_against_python_and_lance_namespace(tmp_path: Path) -> None:
    report = measured(tmp_path, "start", "--rounds", "1", seconds=250, code=None)
    rows = {each["name"]: each for each in report["starts"]}
    assert rows["python -c pass"]["to_pass"] == 1
    assert rows["import lance_bridge"]["to_interface"] < 1
    assert {"lance-bridge --help", "lance-bridge migrate --help", "a worker of Spark"} <= set(rows)


# -- the demo --------------------------------------------------------------------------------------


@contextmanager
def start_demo(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in ``directory`` with its temporary files there too, as its own group."""
    temporary = directory / "tmp"
    temporary.mkdir()
    demo = subprocess.Popen(
        [sys.executable, str(DEMO), *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield demo
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()


def leftovers(directory: Path) -> list[str]:
    """The files below ``directory``, relative to it."""
    found = (path.relative_to(directory) for path in directory.rglob("*"))
    return sorted(str(path) for path in found if str(path) != "tmp")


def servers(output: str) -> list[int]:
    """The ports on which the demo says that its servers answer."""
    found = re.findall(r"^ +[A-Z].* at (?:thrift|http)://127\.0\.0\.1:(\d+)$", output, re.MULTILINE)
    return [int(port) for port in found]


def still_answering(ports: list[int]) -> list[int]:
    """Those of the ports on which something listens."""

    def answers(port: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    return [port for port in ports if answers(port)]


def interrupted(demo: subprocess.Popen[str], at: str, how: signal.Signals) -> tuple[str, str]:
    """Signal the demo at a line that begins so; return what it said until then, and after."""
    assert demo.stdout is not None
    output = ""
    for line in demo.stdout:
        output += line
        if line.startswith(at):
            # Ctrl-C goes to the demo and to all that it started; other signals to the demo alone.
            (os.killpg if how is signal.SIGINT else os.kill)(demo.pid, how)
            break
    return output, demo.communicate(timeout=SECONDS)[0]


@pytest.mark.slow
def test_demo_ends_well_and_says_what_it_does(tmp_path: Path) -> None:
    with start_demo(tmp_path) as demo:
        output, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output
    steps = re.findall(r"^(\d+)\. (.+)$", output, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    titles = " / ".join(title for _, title in steps)
    words = (
        *("Metastore", "Parquet", "Connect", "Create", "List", "Describe", "Search", "Append"),
        *("Merge", "Tag", "branch", "Read it back in Spark", "from the catalog"),
        *("Rename", "Drop", "on all three"),
        *("Spark SQL", "gateway for two", "curl", "pylance, as bob", "LanceDB, as bob"),
    )
    assert [word for word in words if word not in titles] == []
    assert re.search(rf"^Done: {len(steps)} steps, \d+ checks", output.splitlines()[-1])
    assert "Traceback" not in output
    assert leftovers(tmp_path) == []
    assert len(servers(output)) == 4
    assert still_answering(servers(output)) == []
    assert "ok  tables for bob: ['paintings']" in output
    assert "ok  what bob gets: HTTP 403" in output
    assert "lbk_" not in output
    assert_all_three_did_the_same(output)


def assert_all_three_did_the_same(output: str) -> None:
    """What stands in for a service is called that, and what a catalog cannot do is said."""
    assert output.count("def same_calls(name: str)") == 1
    assert "moto" in output
    assert "This project's double" in output
    same = re.findall(r"^     ok  (.+), on all three: (.+)$", output, re.MULTILINE)
    assert ("rows after the append", "6") in same
    assert ("tables after the rename", "['planets']") in same
    assert ("tables after the drop", "[]") in same
    assert len(same) == 11
    for name, root in (("hive", "/"), ("glue", "s3://"), ("unity", "/")):
        assert re.search(rf"^ +on-{name} +{root}.*/worlds\.lance$", output, re.MULTILINE)
    assert "changed property, on-glue: astronomers" in output
    assert "changed property, on-unity: it cannot" in output
    assert "no call that changes a table" in " ".join(output.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "line", "how", "running"),
    [
        ("spark", "6. ", signal.SIGINT, 1),
        ("gateway", "7. ", signal.SIGTERM, 2),
        ("catalogs", "5. ", signal.SIGTERM, 3),
    ],
)
def test_interrupted_demo_cleans_up(
    tmp_path: Path, part: str, line: str, how: signal.Signals, running: int
) -> None:
    with start_demo(tmp_path, "--part", part) as demo:
        output, rest = interrupted(demo, line, how)
    assert demo.returncode == 128 + how, output + rest
    if how is signal.SIGINT:
        assert rest.splitlines()[-1].startswith("Interrupted.")
    assert leftovers(tmp_path) == []
    assert len(servers(output)) == running
    assert still_answering(servers(output)) == []
