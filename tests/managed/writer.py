"""A program that commits rows to one table, for tests that run many of them at once, or kill them.

``python -m managed.writer`` reads jobs from its standard input, one in JSON on each line, and
writes a report on its standard output when a job is done. It first says that it is ready.

It does what every user of a table that others write to has to do. After ConcurrentModification (14)
nothing was committed, and it repeats; after any other failure of a commit it looks for its row,
and repeats only if the row is missing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import lance
import lance_namespace as api
import pyarrow as pa
from lance_namespace import errors

import lance_bridge
from lance_bridge.testing.calls import ipc

from . import death

SCHEMA = pa.schema([pa.field("writer", pa.int64()), pa.field("sequence", pa.int64())])
_PAUSE = 0.05


@dataclass(frozen=True)
class Job:
    """What one writer is to commit: rows ``first`` to ``last``, one after the other.

    ``last`` is included. Where ``step`` is given, the process kills itself at that step of the
    commit of row ``dies_at``. Who ``resumes`` the job of one that died looks for its first row
    before it writes that. With ``rename_to`` it renames the table, too, after its commits, and dies
    at the step of that. All is given up after so many seconds. ``clock`` is how many seconds the
    process's clock is ahead.
    """

    impl: str
    properties: Mapping[str, str]
    table_id: list[str]
    writer: int
    first: int
    last: int
    step: str = ""
    dies_at: int = -1
    resumes: bool = False
    rename_to: str = ""
    seconds: float = 120.0
    clock: float = 0.0


@dataclass
class Report:
    """The outcome of a job.

    ``versions`` has the version of each row, and null where only the row tells that its commit
    succeeded. ``beaten`` counts the commits that were refused with 14, ``unsure`` the failures that
    say nothing of their outcome, by message. ``false`` are rows that were there although their
    commits were refused.
    """

    writer: int
    versions: dict[int, int | None] = field(default_factory=dict)
    beaten: int = 0
    unsure: dict[str, int] = field(default_factory=dict)
    false: list[int] = field(default_factory=list)
    seconds: float = 0.0


def row(writer: int, sequence: int) -> pa.Table:
    """Return the row that says who wrote it."""
    return pa.table({"writer": [writer], "sequence": [sequence]}, schema=SCHEMA)


class Writer:
    """One job while it is done."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._namespace = lance_bridge.connect(job.impl, dict(job.properties))
        self._ends = time.monotonic() + job.seconds
        self.report = Report(job.writer)

    def run(self) -> Report:
        """Commit all rows, each once."""
        started = time.monotonic()
        job = self._job
        for sequence in range(job.first, job.last + 1):
            if sequence == job.dies_at:
                death.at(job.step)
            is_there = job.resumes and sequence == job.first and self._exists(sequence)
            self.report.versions[sequence] = None if is_there else self._commit(sequence)
        if job.rename_to:
            death.at(job.step)
            request = api.RenameTableRequest(id=job.table_id, new_table_name=job.rename_to)
            self._namespace.rename_table(request)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _commit(self, sequence: int) -> int | None:
        write = self._insert if sequence % 2 else self._append
        while True:
            try:
                return write(row(self._job.writer, sequence))
            except errors.ConcurrentModificationError:
                self.report.beaten += 1
                if self._exists(sequence):
                    self.report.false.append(sequence)
                    return None
            except (errors.ServiceUnavailableError, OSError) as error:
                kind = f"{type(error).__name__}: {str(error)[:160]}"
                self.report.unsure[kind] = self.report.unsure.get(kind, 0) + 1
                if self._exists(sequence):
                    return None
            if time.monotonic() > self._ends:
                raise TimeoutError(f"row {sequence} of writer {self._job.writer}: {self.report}")

    def _insert(self, rows: pa.Table) -> int:
        request = api.InsertIntoTableRequest(id=self._job.table_id)
        version = self._namespace.insert_into_table(request, ipc(rows)).version
        assert version is not None
        return version

    def _append(self, rows: pa.Table) -> int:
        dataset = lance.write_dataset(
            rows, namespace_client=self._namespace, table_id=self._job.table_id, mode="append"
        )
        return int(dataset.version)

    def _exists(self, sequence: int) -> bool:
        predicate = f"writer = {self._job.writer} AND sequence = {sequence}"
        request = api.CountTableRowsRequest(id=self._job.table_id, predicate=predicate)
        while True:
            try:
                return bool(self._namespace.count_table_rows(request).count)
            except errors.ServiceUnavailableError:
                if time.monotonic() > self._ends:
                    raise
                time.sleep(_PAUSE)


def main() -> None:
    """Do jobs until there are no more."""
    answers = _own_output()
    _say(answers, {"ready": os.getpid()})
    for line in sys.stdin:
        _say(answers, asdict(Writer(Job(**json.loads(line))).run()))


def _own_output() -> TextIO:
    """Return standard output, and have what libraries print go elsewhere."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _say(output: TextIO, what: Mapping[str, Any]) -> None:
    print(json.dumps(what), file=output, flush=True)


if __name__ == "__main__":
    main()
