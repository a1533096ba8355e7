"""Processes that commit rows, to one table or to several at once, and may be killed meanwhile.

``python -m managed.writer`` reads jobs of one table from its standard input, one in JSON on each
line, and writes a report on its standard output when a job is done. It first says that it is ready.
It does what every user of a table that others write to has to do. After ConcurrentModification (14)
nothing was committed, and it repeats; after any other failure of a commit it looks for its row,
and repeats only if the row is missing.

`run_batches` and `read_all` are what other processes of tests do.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import lance
import lance_namespace as api
import pyarrow as pa
from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import ConcurrentModificationError, ServiceUnavailableError

import lance_bridge
from lance_bridge.entry import TableEntry
from lance_bridge.managed import batches
from lance_bridge.managed_state import PreparedVersion
from lance_bridge.storage.manifests import Scheme, name_of
from lance_bridge.testing.calls import ipc

from . import crashes

# -- to one table ----------------------------------------------------------------------------------


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
                crashes.at(job.step)
            is_there = job.resumes and sequence == job.first and self._exists(sequence)
            self.report.versions[sequence] = None if is_there else self._commit(sequence)
        if job.rename_to:
            crashes.at(job.step)
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


# -- to several tables at once, and readers of them ------------------------------------------------


_ROWS_EACH = 10
"""After how many reads a reader also compares the rows."""


@dataclass(frozen=True)
class BatchJob:
    """Batches ``first`` to ``last`` of one writer over some tables, written down in ``record``.

    ``tables`` are their identifiers. With ``step`` the process kills itself there, in its first
    batch.
    """

    impl: str
    properties: Mapping[str, str]
    tables: Sequence[list[str]]
    writer: int
    first: int
    last: int
    record: Path
    seconds: float = 600.0
    step: str = ""


def stage(ns: LanceNamespace, table: list[str], content: tuple[int, int]) -> dict[str, object]:
    """Write what the next version would be, with one more row; return it as in a request.

    Lance appends to a copy that has nothing but the latest manifest: an append reads no data.
    """
    described = ns.describe_table(api.DescribeTableRequest(id=table))
    latest = ns.describe_table_version(api.DescribeTableVersionRequest(id=table)).version
    location = Path(described.location or "")
    copy = location.with_name(f"copy-{uuid.uuid4().hex}")
    (copy / "_versions").mkdir(parents=True)
    name = name_of(latest.version, Scheme.V2)
    manifest = location / "_versions" / Path(latest.manifest_path).name
    if not manifest.exists():  # it has got its final name meanwhile
        manifest = manifest.with_name(name)
    shutil.copy(manifest, copy / "_versions" / name)
    version = latest.version + 1
    assert lance.write_dataset(row(*content), str(copy), mode="append").version == version
    staged = location / "_versions" / f"{name_of(version, Scheme.V2)}-{uuid.uuid4()}"
    for inside in ("data", "_transactions"):
        for file in (copy / inside).iterdir():
            shutil.move(file, location / inside / file.name)
    shutil.move(copy / "_versions" / name_of(version, Scheme.V2), staged)
    shutil.rmtree(copy)
    return {"id": table, "version": version, "manifest_path": str(staged).lstrip("/")}


class BatchWriter:
    """One job while it is done."""

    def __init__(self, job: BatchJob) -> None:
        self._job = job
        self._namespace = lance_bridge.connect(job.impl, dict(job.properties))
        self._ends = time.monotonic() + job.seconds

    def run(self) -> None:
        """Commit all batches, each once, and write each down with its moment."""
        job = self._job
        record = os.open(job.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for sequence in range(job.first, job.last + 1):
            if sequence > job.first or not self._exists(sequence):
                self._commit(sequence)
            os.write(record, f"{sequence} {time.monotonic()}\n".encode())

    def _commit(self, sequence: int) -> None:
        while True:
            content = (self._job.writer, sequence)
            entries = [stage(self._namespace, each, content) for each in self._job.tables]
            if self._job.step:
                crashes.at(self._job.step)
            try:
                return self._send(entries, as_operations=bool(sequence % 2))
            except ConcurrentModificationError:
                pass  # nothing is committed
            except ServiceUnavailableError:
                if self._exists(sequence):
                    return None
            if time.monotonic() > self._ends:
                raise TimeoutError(f"batch {content} was not committed")

    def _send(self, entries: Sequence[dict[str, object]], *, as_operations: bool) -> None:
        entries = random.sample(entries, len(entries))
        if as_operations:
            operations = [{"create_table_version": each} for each in entries]
            batch = api.BatchCommitTablesRequest.model_validate({"operations": operations})
            self._namespace.batch_commit_tables(batch)
        else:
            request = api.BatchCreateTableVersionsRequest.model_validate({"entries": entries})
            self._namespace.batch_create_table_versions(request)

    def _exists(self, sequence: int) -> bool:
        predicate = f"writer = {self._job.writer} AND sequence = {sequence}"
        counts = {
            self._namespace.count_table_rows(
                api.CountTableRowsRequest(id=each, predicate=predicate)
            ).count
            for each in self._job.tables
        }
        assert counts in ({0}, {1}), f"{predicate}: {counts}"
        return counts == {1}


def run_batches(job: BatchJob) -> None:
    """Do one job, and write down how long it takes to end each batch of another client."""
    end_batch, reload = batches._end_batch, TableEntry.reloaded
    reads: list[float] = []

    def timed_reload(table: TableEntry) -> TableEntry:
        began = time.monotonic()
        found = reload(table)
        reads.append(time.monotonic() - began)
        return found

    def timed(table: TableEntry, prepared: PreparedVersion) -> None:
        reads.clear()
        began = time.monotonic()
        end_batch(table, prepared)
        with _recoveries(job).open("a") as record:
            record.write(f"{time.monotonic() - began} {max(reads, default=0.0)}\n")

    batches._end_batch = timed
    TableEntry.reloaded = timed_reload  # type: ignore[method-assign,assignment]  # in this process
    BatchWriter(job).run()


def recoveries(job: BatchJob) -> list[tuple[float, float]]:
    """Return the seconds from meeting another client's batch to its end, for each that it ended.

    And those of the slowest read of an entry meanwhile: how slow the machine is.
    """
    record = _recoveries(job)
    lines = record.read_text().splitlines() if record.exists() else []
    return [(float(seconds), float(read)) for seconds, read in map(str.split, lines)]


def _recoveries(job: BatchJob) -> Path:
    return job.record.with_suffix(".recoveries")


def resumed(job: BatchJob) -> BatchJob:
    """Return what is left of a job by what is written down."""
    done = [sequence for sequence, _ in acknowledged(job)]
    return replace(job, first=max(done) + 1) if done else job


def acknowledged(job: BatchJob) -> list[tuple[int, float]]:
    """Return the sequence and the moment of each batch that is written down."""
    lines = job.record.read_text().splitlines() if job.record.exists() else []
    return [(int(sequence), float(at)) for sequence, at in map(str.split, lines)]


def read_all(job: BatchJob, stop: Path) -> None:
    """Read all tables in changing orders until a file exists; write down how often.

    All batches are over all tables, so that a table that is read later has no lower version, and
    tables of one version have the same rows.

    Raises:
        AssertionError: half of a batch was seen.
    """
    namespace = lance_bridge.connect(job.impl, dict(job.properties))
    order, reads = list(job.tables), 0
    while not stop.exists():
        random.shuffle(order)
        opened = [lance.dataset(namespace_client=namespace, table_id=each) for each in order]
        versions = [int(each.version) for each in opened]
        assert versions == sorted(versions), f"half of a batch was seen: {versions}"
        if reads % _ROWS_EACH == 0:
            lowest = min(versions)
            rows = {tuple(sorted(_pairs(each.checkout_version(lowest)))) for each in opened}
            assert len(rows) == 1, f"version {lowest} has different rows"
        reads += 1
        job.record.write_text(str(reads))


def _pairs(dataset: lance.LanceDataset) -> list[tuple[int, int]]:
    found = dataset.to_table()
    return list(zip(found["writer"].to_pylist(), found["sequence"].to_pylist(), strict=True))


if __name__ == "__main__":
    main()
