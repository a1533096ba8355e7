"""A program that runs or undoes migrations, and may die at a given moment.

``python -m migrate.runner`` reads jobs from its standard input, one in JSON on each line, does each
in a child of its own, and writes how that ended. A child dies by SIGKILL, as a crash would: nothing
is cleaned up. What is counted are *moments*: before each event of the journal, and before each
change of the catalog. Between two of them nothing lasting happens, so that no kill leaves another
state than one of these.

Children are forked before anything is connected, because starting Python takes seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import databricks.sdk  # noqa: F401 - imported before children are forked
from servers.processes import end

import lance_bridge_glue.catalog  # noqa: F401 - the same
import lance_bridge_hive.catalog  # noqa: F401 - the same
import lance_bridge_unity.catalog  # noqa: F401 - the same
from lance_bridge_migrate import Migration, Migrations, RunOptions, execute, undo
from lance_bridge_migrate.commands.running import reconnected
from lance_bridge_migrate.record import Event, Journal

from .places import Place

_CHANGES = (
    "create_namespace", "drop_namespace", "create_table", "alter_table", "alter_ownership",
    "drop_table",
)  # fmt: skip
_TESTS = Path(__file__).parents[1]
_LOOKS_EVERY = 0.02
_SECONDS = 60.0


@dataclass(frozen=True)
class Job:
    """What to do.

    Attributes:
        state: The state directory.
        action: ``execute`` or ``undo``.
        dies_at: The moment, from 0 on, or -1 to live.
        waits_at: The moment at which it makes the file ``reached`` and waits for its end.
        source: Properties for the source, beside those of the plan; target alike.
    """

    state: str
    id: str
    action: str = "execute"
    dies_at: int = -1
    waits_at: int = -1
    reached: str = ""
    parallelism: int = 1
    source: dict[str, str] = field(default_factory=dict)
    target: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(asdict(self))


class Moments:
    """Counts moments, and dies or waits at the one of the job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.passed = 0

    def __call__(self) -> None:
        moment, self.passed = self.passed, self.passed + 1
        if moment == self._job.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if moment == self._job.waits_at:
            Path(self._job.reached).touch()
            while True:
                time.sleep(60)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self()
            return call(*arguments, **more)

        return counted


def do(job: Job) -> int:
    """Do the job; return how many moments were passed."""
    moments = Moments(job)
    append: Any = Journal.append

    def counted(journal: Journal, event: Event) -> None:
        moments()
        append(journal, event)

    setattr(Journal, "append", counted)  # noqa: B010 - a method in the place of another
    migration = Migrations(job.state).get(job.id)
    source = [f"{key}={value}" for key, value in job.source.items()]
    target = [f"{key}={value}" for key, value in job.target.items()]
    with reconnected(migration, source, target) as (migration_type, endpoints):
        catalog = endpoints.target.catalog
        for name in _CHANGES:
            setattr(catalog, name, moments.before(getattr(catalog, name)))
        if job.action == "undo":
            undo(migration_type, endpoints, migration)
        else:
            execute(migration_type, endpoints, migration, RunOptions(parallelism=job.parallelism))
    return moments.passed


def serve() -> None:
    """Do jobs until there are no more; print the signal that killed each, and its moments."""
    for line in sys.stdin:
        job = Job(**json.loads(line))
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            os.write(writer, str(do(job)).encode())
            os._exit(0)
        os.close(writer)
        sys.stdout.write(f"started {child}\n")
        sys.stdout.flush()
        with os.fdopen(reader) as pipe:
            moments = pipe.read()
        _, status = os.waitpid(child, 0)
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        sys.stdout.write(json.dumps({"killed_by": killed_by, "moments": moments}) + "\n")
        sys.stdout.flush()


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


if __name__ == "__main__":
    serve()
