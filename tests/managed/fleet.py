"""Processes that commit until all is there, however often they are killed.

They are forked from a process that has imported everything, because one is killed each second.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from managed.building import Table
from managed.writer import Job, Writer
from typing_extensions import Self

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["managed.writer", "managed.batch_writer", "lance_bridge_hive", "lance_bridge_glue"]
)


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


class Fleet(ABC):
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


class RowFleet(Fleet):
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
