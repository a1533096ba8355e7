"""Processes that run `managed.writer`, kept between jobs because they take seconds to start."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from managed.tables import Table
from managed.writer import Job, Report, Writer
from servers.processes import end
from typing_extensions import Self

_TESTS = Path(__file__).parents[1]
_READY_SECONDS = 120.0
_SPARE_SECONDS = 30.0
"""How much longer than a job may last a process may take before it is given up."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["managed.writer", "lance_bridge_hive", "lance_bridge_glue"])


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


# -- processes that are killed until all is there --------------------------------------------------


class _RecordingWriter(Writer):
    """Writes down each commit that was acknowledged: its row, version and time."""

    def __init__(self, job: Job, record: int) -> None:
        super().__init__(job)
        self._record = record

    def _commit(self, sequence: int) -> int | None:
        version = super()._commit(sequence)
        os.write(self._record, f"{sequence} {version or 0} {time.monotonic()}\n".encode())
        return version


def _put_clock_ahead(seconds: float) -> None:
    """Have this process see a time that many seconds from now, from now on.

    Not what Lance writes into a manifest, and not what AWS's requests are signed with: neither
    decides about a commit.
    """
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


def _run(job: Job, record: str) -> None:
    _put_clock_ahead(job.clock)
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    _RecordingWriter(job, file).run()


class WriterGroup(ABC):
    """So many processes, each of which is started again when it was killed."""

    def __init__(self, writers: int) -> None:
        self.writers = writers
        self.kills = 0
        self._processes: list[BaseProcess] = []
        self._done = [0] * writers
        self._random = random.Random(13)

    @abstractmethod
    def _start(self, writer: int) -> BaseProcess:
        """Start a process that goes on where this writer was."""

    @abstractmethod
    def _moments(self, writer: int) -> list[float]:
        """Return when each commit of a writer was acknowledged."""

    def __enter__(self) -> Self:
        self._processes = [self._start(writer) for writer in range(self.writers)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    @property
    def is_done(self) -> bool:
        """Whether all was acknowledged, or found after its process was killed."""
        codes = [process.exitcode for process in self._processes]
        assert set(codes) <= {None, 0}, "a writer failed: see its traceback"
        return set(codes) == {0}

    def kill_one(self) -> None:
        """Kill a process (-9), and start another that goes on where it was.

        One that has committed since it was started: on a slow machine none would come to that.
        """
        running = [w for w, process in enumerate(self._processes) if process.exitcode is None]
        running = [w for w in running if len(self._moments(w)) > self._done[w]]
        if not running:
            return
        writer = self._random.choice(running)
        self._processes[writer].kill()
        self._processes[writer].join()
        if self._processes[writer].exitcode != 0:
            self.kills += 1
            self._done[writer] = len(self._moments(writer))
            self._processes[writer] = self._start(writer)

    def longest_pause(self) -> float:
        """Return the longest time in seconds without an acknowledged commit."""
        times = sorted(at for writer in range(self.writers) for at in self._moments(writer))
        return max(later - earlier for earlier, later in itertools.pairwise(times))


class RowWriterGroup(WriterGroup):
    """Each process commits rows to one table; the directory keeps what they wrote down.

    ``clocks`` are how many seconds ahead the processes' clocks are, in turn.
    """

    def __init__(
        self,
        table: Table,
        directory: Path,
        writers: int,
        commits: int,
        seconds: float,
        *,
        clocks: Sequence[float] = (0.0,),
    ) -> None:
        super().__init__(writers)
        self._directory = directory
        jobs = zip(table.jobs(writers, commits), itertools.cycle(clocks), strict=False)
        self._jobs = [replace(job, seconds=seconds, clock=clock) for job, clock in jobs]

    def acknowledged(self, writer: int) -> list[tuple[int, int, float]]:
        """Return row, version and moment of each commit; version 0 where only the row was found."""
        record = self._record(writer)
        lines = record.read_text().splitlines() if record.exists() else []
        return [(int(row), int(version), float(at)) for row, version, at in map(str.split, lines)]

    def _moments(self, writer: int) -> list[float]:
        return [at for _, _, at in self.acknowledged(writer)]

    def _record(self, writer: int) -> Path:
        return self._directory / f"writer-{writer}.txt"

    def _start(self, writer: int) -> BaseProcess:
        job = replace(self._jobs[writer], resumes=True)
        if done := self.acknowledged(writer):
            job = replace(job, first=done[-1][0] + 1)
        return start(_run, job, str(self._record(writer)))


def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Start a process."""
    process = _CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process
