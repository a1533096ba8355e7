"""Processes that run migrations, and die at a given moment: see `migrate.runner`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from migrate.places import Place
from migrate.runner import Job
from servers.processes import end

from lance_bridge_migrate import Migration

_TESTS = Path(__file__).parents[1]
_LOOKS_EVERY = 0.02
_SECONDS = 60.0


def secrets_of(place: Place) -> dict[str, str]:
    """Return the properties that a plan does not keep."""
    return {key: value for key, value in place.properties.items() if "secret" in key}


def job_of(migration: Migration, action: str = "execute", **more: Any) -> Job:
    """Return the job to run or undo a migration; ``more`` are fields of it."""
    directory = migration.directory
    return Job(str(directory.parents[1]), directory.name, action, **more)


class Runner:
    """One process that does jobs in child processes; what it prints on errors is in a file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "migrate.runner"],
                cwd=_TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def moments_of(self, job: Job) -> int:
        """Do a job to its end, and return how many moments it has."""
        self._send(job)
        found = self._answer()
        assert found["killed_by"] == 0, self._log.read_text()
        assert found["moments"], self._log.read_text()
        return int(str(found["moments"]))

    def kill(self, job: Job) -> None:
        """Do a job that dies."""
        self._send(job)
        assert self._answer()["killed_by"] == signal.SIGKILL, self._log.read_text()

    @contextmanager
    def paused(self, job: Job) -> Iterator[None]:
        """Begin a job that waits at its moment; it is killed at the end."""
        child = self._send(job)
        deadline = time.monotonic() + _SECONDS
        try:
            while not Path(job.reached).exists():
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(_LOOKS_EVERY)
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            self._answer()

    def _send(self, job: Job) -> int:
        """Begin a job; return the identifier of the process that does it."""
        assert self._process.stdin is not None
        self._process.stdin.write(job.to_text() + "\n")
        self._process.stdin.flush()
        return int(self._line().removeprefix("started "))

    def _answer(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        return line

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
