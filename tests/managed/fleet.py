"""Processes that commit to one table until all rows are there, however often they are killed.

They are forked from a process that has imported everything, because one is killed each second.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from managed.building import Table
from managed.clock import put_ahead
from managed.writer import Job, Writer

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["managed.writer", "lance_bridge_hive", "lance_bridge_glue"])


class _RecordingWriter(Writer):
    """Writes down each commit that was acknowledged: its row, version and time."""

    def __init__(self, job: Job, record: int) -> None:
        super().__init__(job)
        self._record = record

    def _commit(self, sequence: int) -> int | None:
        version = super()._commit(sequence)
        os.write(self._record, f"{sequence} {version or 0} {time.monotonic()}\n".encode())
        return version


def _run(job: Job, record: str) -> None:
    put_ahead(job.clock)
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    _RecordingWriter(job, file).run()


class Fleet:
    """One process for each of so many writers; the directory keeps what they wrote down.

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
        self._directory = directory
        jobs = zip(table.jobs(writers, commits), itertools.cycle(clocks), strict=False)
        self._jobs = [replace(job, seconds=seconds, clock=clock) for job, clock in jobs]
        self._processes: dict[int, BaseProcess] = {}
        self._done: dict[int, int] = {}
        self._random = random.Random(13)
        self.writers = writers
        self.kills = 0

    def __enter__(self) -> Fleet:
        for writer in range(len(self._jobs)):
            self._start(writer)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()

    @property
    def is_done(self) -> bool:
        """Whether all rows were acknowledged, or found after their process was killed."""
        for writer, process in self._processes.items():
            assert process.exitcode in (None, 0), f"writer {writer} failed: see its traceback"
        return all(process.exitcode == 0 for process in self._processes.values())

    def kill_one(self) -> None:
        """Kill a process (-9), and start another that goes on where it was.

        One that has committed since it was started: on a slow machine none would come to that.
        """
        running = [w for w, process in self._processes.items() if process.exitcode is None]
        running = [w for w in running if len(self.acknowledged(w)) > self._done[w]]
        if not running:
            return
        writer = self._random.choice(running)
        self._processes[writer].kill()
        self._processes[writer].join()
        if self._processes[writer].exitcode != 0:
            self.kills += 1
            self._start(writer)

    def acknowledged(self, writer: int) -> list[tuple[int, int, float]]:
        """Return row, version and moment of each commit; version 0 where only the row was found."""
        record = self._record(writer)
        lines = record.read_text().splitlines() if record.exists() else []
        return [(int(row), int(version), float(at)) for row, version, at in map(str.split, lines)]

    def longest_pause(self) -> float:
        """Return the longest time in seconds without an acknowledged commit."""
        times = sorted(at for w in range(len(self._jobs)) for _, _, at in self.acknowledged(w))
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def _record(self, writer: int) -> Path:
        return self._directory / f"writer-{writer}.txt"

    def _start(self, writer: int) -> None:
        job = self._jobs[writer]
        done = self.acknowledged(writer)
        self._done[writer] = len(done)
        if done:
            job = replace(job, first=done[-1][0] + 1)
        process = _CONTEXT.Process(
            target=_run, args=(replace(job, resumes=True), str(self._record(writer)))
        )
        process.start()
        self._processes[writer] = process
