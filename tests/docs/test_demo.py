"""The demo does what it says, and leaves nothing behind: no file, and no server of the five."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "demo" / "run.py"
SECONDS = 480

pytestmark = pytest.mark.slow


@contextmanager
def running_demo(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
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


def test_demo_ends_well_and_says_what_it_does(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
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
    with running_demo(tmp_path, "--part", part) as demo:
        output, rest = interrupted(demo, line, how)
    assert demo.returncode == 128 + how, output + rest
    if how is signal.SIGINT:
        assert rest.splitlines()[-1].startswith("Interrupted.")
    assert leftovers(tmp_path) == []
    assert len(servers(output)) == running
    assert still_answering(servers(output)) == []
