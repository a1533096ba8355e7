"""Processes that run `managed.writer`, kept between jobs because they take seconds to start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from managed.writer import Job, Report
from servers.processes import end

_TESTS = Path(__file__).parents[1]
_READY_SECONDS = 120.0
_SPARE_SECONDS = 30.0
"""How much longer than a job may last a process may take before it is given up."""


class Writers:
    """Starts processes when they are needed, and ends them; ``directory`` keeps what they print."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._idle: list[_Process] = []
        self._started = 0

    def start(self, count: int) -> None:
        """Have so many processes ready."""
        missing = count - len(self._idle)
        new = [self._new() for _ in range(missing)]
        self._idle += new
        for each in new:
            each.await_ready()

    def run(self, jobs: Sequence[Job]) -> list[Report]:
        """Do all jobs at once, each in a process of its own; return their reports.

        Raises:
            AssertionError: a process died that was not to, or lived on that was to die.
        """
        with self.running(jobs) as work:
            return work.reports()

    def running(self, jobs: Sequence[Job]) -> Work:
        """Begin all jobs at once; the context manager waits for their ends."""
        self.start(len(jobs))
        chosen = [self._idle.pop() for _ in jobs]
        return Work(chosen, jobs, self._idle)

    def _new(self) -> _Process:
        self._started += 1
        return _Process(self._directory / f"writer-{self._started}.log")

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._idle:
            each.end()


class Work:
    """Jobs that are being done."""

    def __init__(
        self, processes: Sequence[_Process], jobs: Sequence[Job], idle: list[_Process]
    ) -> None:
        self._processes, self._idle = processes, idle
        self._threads = ThreadPoolExecutor(len(jobs))
        pairs = zip(processes, jobs, strict=True)
        self._answers = [self._threads.submit(process.do, job) for process, job in pairs]

    def reports(self) -> list[Report]:
        """Wait for all, and return the reports of those that were not to die."""
        found = [answer.result() for answer in self._answers]
        return [report for report in found if report is not None]

    @property
    def is_done(self) -> bool:
        """Whether all have ended."""
        return all(answer.done() for answer in self._answers)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        for process in self._processes:
            if process.is_running and process.is_idle:
                self._idle.append(process)
            else:
                process.end()


class _Process:
    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "managed.writer"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_TESTS), *sys.path])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                encoding="utf-8",
            )
        self.is_idle = False

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def await_ready(self) -> None:
        self._read(_READY_SECONDS)
        self.is_idle = True

    def do(self, job: Job) -> Report | None:
        """Return the report, or None where the process has died as it was to."""
        assert self._process.stdin is not None
        self.is_idle = False
        print(json.dumps(asdict(job)), file=self._process.stdin, flush=True)
        line = self._read(job.seconds + _SPARE_SECONDS, may_die=bool(job.step))
        if line is None:
            return None
        assert not job.step, f"writer {job.writer} did not reach the step: {job.step}"
        versions = {int(key): value for key, value in line.pop("versions").items()}
        self.is_idle = True
        return Report(versions=versions, **line)

    def _read(self, seconds: float, *, may_die: bool = False) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        too_late = threading.Timer(seconds, self._process.kill)
        too_late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            too_late.cancel()
            too_late.join()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = self._process.wait()
        if may_die and code == -signal.SIGKILL:
            return None
        raise AssertionError(f"a writer ended with {code}:\n{self._log.read_text()[-4000:]}")

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        end(self._process)
