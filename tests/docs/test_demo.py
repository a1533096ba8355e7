"""The demo does what it says, and leaves nothing behind, with real Spark and a real metastore."""

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

DEMO = Path(__file__).parents[2] / "demo" / "hive.py"
SECONDS = 240

pytestmark = [pytest.mark.server, pytest.mark.spark]


@contextmanager
def running_demo(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in ``directory`` with its temporary files there too, as its own group."""
    temporary = directory / "tmp"
    temporary.mkdir()
    demo = subprocess.Popen(
        [sys.executable, str(DEMO)],
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


def metastore_answers(output: str) -> bool:
    """Whether something still listens where the demo's metastore was."""
    found = re.search(r"thrift://127\.0\.0\.1:(\d+)", output)
    assert found is not None, output
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", int(found[1]))) == 0


def test_demo_ends_well_and_says_what_it_does(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        output, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output
    steps = re.findall(r"^(\d+)\. (.+)$", output, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    titles = " / ".join(title for _, title in steps)
    for word in ("Metastore", "Parquet", "Connect", "Create", "List", "Describe", "Search"):
        assert word in titles
    for word in ("Append", "Read it back in Spark", "out of the catalog", "Rename", "Drop"):
        assert word in titles
    assert re.search(rf"^Done: {len(steps)} steps, \d+ checks", output.splitlines()[-1])
    assert "Traceback" not in output
    assert leftovers(tmp_path) == []
    assert not metastore_answers(output)


def test_interrupted_demo_cleans_up(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        assert demo.stdout is not None
        output = ""
        for line in demo.stdout:
            output += line
            if line.startswith("6. "):
                # As a terminal does: to the demo and to all that it started.
                os.killpg(demo.pid, signal.SIGINT)
                break
        rest, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 128 + signal.SIGINT, output + rest
    assert rest.splitlines()[-1].startswith("Interrupted.")
    assert leftovers(tmp_path) == []
    assert not metastore_answers(output)
