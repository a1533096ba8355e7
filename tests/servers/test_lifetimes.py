"""What a test run has started ends with it, however it ends: by Ctrl-C, or by ``kill -9``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .processes import wait_until

_TESTS = Path(__file__).parents[1]
_SUITE = Path(__file__).with_name("lifetimes_suite.py")
_START_SECONDS = 300.0
_END_SECONDS = 120.0
_SERVERS = {
    "python": ("servers.moto_app", "servers.unity", "lance-bridge serve", "spawn_main"),
    "java": ("HiveMetaStore", "servers.sparks", "SparkSubmit"),
}
"""Parts of the command lines of what a test of the suite starts."""
_OWNER = """
import os, subprocess, sys, time
from servers.processes import end_children_with_this_process
end_children_with_this_process()
if os.fork() == 0:  # what it inherits stays open
    print(os.getpid(), file=open("fork", "w"), flush=True)
    time.sleep(600)
    os._exit(0)
subprocess.run(["sh", "-c", sys.argv[1]], start_new_session=True)
"""
_STUBBORN = "trap '' TERM; sleep 600 & touch ready; wait"


@dataclass(frozen=True)
class Process:
    """A process, which stays the same when its number is given to another."""

    pid: int
    parent: int
    started: str
    command: str

    @property
    def is_running(self) -> bool:
        found = _find(self.pid)
        return found is not None and found.started == self.started


def _find(pid: int) -> Process | None:
    """Return a process; None if it has ended, although its parent does not know yet."""
    directory = Path(f"/proc/{pid}")
    try:
        fields = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
        command = (directory / "cmdline").read_bytes().replace(b"\0", b" ")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, started = fields[0], int(fields[1]), fields[19]
    return None if state == "Z" else Process(pid, parent, started, command.decode(errors="replace"))


def _descendants(pid: int) -> list[Process]:
    """Return a process with all below it."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    running = [each for number in numbers if (each := _find(number)) is not None]
    found = [each for each in running if each.pid == pid]
    for parent in found:
        found += [each for each in running if each.parent == parent.pid]
    return found


def _names(processes: list[Process]) -> set[str]:
    """Return which of the servers are among processes."""
    known = {name for names in _SERVERS.values() for name in names}
    return {name for name in known for each in processes if name in each.command}


@contextmanager
def _all_end(processes: list[Process]) -> Iterator[None]:
    """Check that all processes end after what the block does; nothing is left in any case."""
    try:
        yield
        deadline = time.monotonic() + _END_SECONDS
        while left := [each for each in processes if each.is_running]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        for each in processes:
            if each.is_running:
                os.kill(each.pid, signal.SIGKILL)


@contextmanager
def _running(
    command: list[str], cwd: Path | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(_TESTS), *filter(None, sys.path)])
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _suite(directory: Path, tests: list[str], workers: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run tests of the suite, and wait until their servers run."""
    ready = directory / "ready"
    ready.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--import-mode=importlib"]
    command += ["--tier", "slow", "-p", "no:cacheprovider", "--rootdir", str(_TESTS.parent)]
    command += ["--basetemp", str(directory / "tmp"), "-k", " or ".join(tests), str(_SUITE)]
    if workers:
        command += ["-n", str(workers), "--max-worker-restart", "0"]
    with _running(command, LIFETIMES_READY=str(ready)) as run:
        wait_until(
            lambda: run.poll() is not None or len([*ready.iterdir()]) == len(tests), _START_SECONDS
        )
        assert run.poll() is None
        yield run


def _kill(run: subprocess.Popen[bytes], _: list[Process]) -> None:
    run.kill()


def _kill_workers(run: subprocess.Popen[bytes], processes: list[Process]) -> None:
    """Kill what pytest itself has started, but for its guardian."""
    for each in processes:
        if each.parent == run.pid and "guardian" not in each.command:
            os.kill(each.pid, signal.SIGKILL)


def _press_ctrl_c(run: subprocess.Popen[bytes], _: list[Process]) -> None:
    os.killpg(run.pid, signal.SIGINT)


def _press_ctrl_c_twice(run: subprocess.Popen[bytes], _: list[Process]) -> None:
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(0.5)  # as a user who has waited long enough
    os.killpg(run.pid, signal.SIGINT)


@pytest.mark.quick
def test_what_a_process_has_started_ends_with_it_and_nothing_else(tmp_path: Path) -> None:
    with (
        _running(["sleep", "600"]) as other,
        _running([sys.executable, "-c", _OWNER, _STUBBORN], cwd=tmp_path) as owner,
    ):
        wait_until((tmp_path / "ready").exists)
        wait_until(lambda: (tmp_path / "fork").exists() and (tmp_path / "fork").read_text())
        fork = int((tmp_path / "fork").read_text())
        started = [each for each in _descendants(owner.pid)[1:] if each.pid != fork]
        commands = "".join(each.command for each in started)
        assert all(name in commands for name in ("guardian.py", "sh ", "sleep 600"))
        with _all_end(started):
            owner.kill()
            owner.wait()
        os.kill(fork, signal.SIGKILL)
        assert other.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "tests", "end"),
    [
        pytest.param(2, ["python", "java"], _kill, id="pytest-killed"),
        pytest.param(2, ["python", "java"], _kill_workers, id="workers-killed"),
        pytest.param(2, ["python", "java"], _press_ctrl_c, id="ctrl-c"),
        pytest.param(2, ["python", "java"], _press_ctrl_c_twice, id="ctrl-c-twice"),
        pytest.param(0, ["python"], _kill, id="pytest-without-workers-killed"),
        pytest.param(0, ["java"], _press_ctrl_c, id="ctrl-c-without-workers"),
    ],
)
def test_all_servers_end_with_the_run(
    tmp_path: Path, workers: int, tests: list[str], end: Callable[..., None]
) -> None:
    with _suite(tmp_path, tests, workers) as run:
        names = {name for test in tests for name in _SERVERS[test]}
        wait_until(lambda: names <= _names(_descendants(run.pid)))
        processes = _descendants(run.pid)
        with _all_end(processes):
            end(run, processes)
            run.wait(_END_SECONDS)
