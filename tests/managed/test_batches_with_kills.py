"""Eight processes commit batches to three tables and are killed, while four read all of them.

No batch is seen by half at any moment, none is lost, and none is there twice. A table whose batch
was left by a client that died is written to within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import lance_namespace as api
import pytest
from managed import batch_writer, death
from managed.batch_writer import BatchJob, acknowledged, read_all, resumed
from managed.building import FIRST, Table, all_rows, require_exactly, rows_of
from managed.conftest import GLUE, NewTable
from managed.fleet import Fleet, start
from managed.writer import row

from lance_bridge.testing.build import ipc

pytestmark = pytest.mark.spec("managed.md#invariants-of-batches")


WRITERS, BATCHES, READERS, TABLES = 8, 10, 4, 3
PACE = 0.5
"""Seconds between two kills."""
DEAD, NEXT = 7, 8
LONGEST_PAUSE, LONGEST_RECOVERY = 20.0, 10.0
"""In seconds. A recovery begins when a writer meets the batch of another client. A pause is longer:
the next client can be killed in the same way before it commits."""
CALLS = 10
"""How many calls may come on top, as slow as the slowest read of an entry: on a machine that has no
time for its processes, these take seconds each, and a recovery has about a dozen."""
_SECONDS = 3000.0


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["2.3", GLUE])
def test_no_batch_is_seen_by_half(catalog: str, new_table: NewTable, tmp_path: Path) -> None:
    require_whole_batches(new_table(catalog), tmp_path, WRITERS, BATCHES)


def with_more_tables(table: Table) -> tuple[Table, ...]:
    """Return a table and new ones beside it, each with one row."""
    tables = [table, *(replace(table, id=[table.id[0], f"t{n}"]) for n in range(1, TABLES))]
    with table.connect() as namespace:
        for each in tables[1:]:
            request = api.CreateTableRequest(id=each.id, properties={"managed_by": "impl"})
            namespace.create_table(request, ipc(row(*FIRST)))
    return tuple(tables)


def job(
    tables: Sequence[Table], record: Path, writer: int = 0, batches: int = 1, step: str = ""
) -> BatchJob:
    """Return so many batches over tables of one catalog."""
    ids, properties = [each.id for each in tables], tables[0].properties
    return BatchJob(tables[0].impl, properties, ids, writer, 0, batches - 1, record, _SECONDS, step)


class BatchFleet(Fleet):
    """Each process commits batches."""

    def __init__(self, jobs: Sequence[BatchJob]) -> None:
        super().__init__(len(jobs))
        self.jobs = jobs

    def _start(self, writer: int) -> BaseProcess:
        return start(batch_writer.run, resumed(self.jobs[writer]))

    def _moments(self, writer: int) -> list[float]:
        return [at for _, at in acknowledged(self.jobs[writer])]

    def recoveries(self) -> list[tuple[float, float]]:
        """Return how long it took to end each batch of another client; as the writers do."""
        return [each for job in self.jobs for each in batch_writer.recoveries(job)]


@contextmanager
def readers(tables: Sequence[Table], directory: Path) -> Iterator[list[Path]]:
    """Read all tables meanwhile; yields the files that say how often."""
    stop = directory / "stop"
    records = [directory / f"reads-{number}" for number in range(READERS)]
    running = [start(read_all, job(tables, record), stop) for record in records]
    yield records
    stop.touch()
    for each in running:
        each.join(60)
        each.kill()
    assert [each.exitcode for each in running] == [0] * READERS, "see the traceback of a reader"


def require_whole_batches(table: Table, directory: Path, writers: int, batches: int) -> None:
    """Have all batches committed in spite of kills, while others read, and check the tables."""
    tables = with_more_tables(table)
    jobs = [
        job(tables, directory / f"batches-{writer}.txt", writer, batches)
        for writer in range(writers)
    ]
    with readers(tables, directory) as records, BatchFleet(jobs) as fleet:
        while not fleet.is_done:
            time.sleep(PACE)
            fleet.kill_one()
    for each in tables:
        require_exactly(each, all_rows(writers, batches))
    reads = sum(int(record.read_text()) for record in records)
    recoveries, pause = fleet.recoveries(), fleet.longest_pause()
    slowest = max(read for _, read in recoveries)
    print(
        f"{fleet.kills} kills, {reads} reads, {len(recoveries)} recoveries of at most "
        f"{max(recoveries)[0]:.1f} s, longest pause {pause:.1f} s, slowest read of an entry in a "
        f"recovery {slowest:.2f} s"
    )
    assert fleet.kills > writers
    assert reads > READERS
    for seconds, read in recoveries:
        assert seconds < LONGEST_RECOVERY + CALLS * read
    assert pause < LONGEST_PAUSE + CALLS * slowest


@pytest.mark.servers
@pytest.mark.parametrize("catalog", [GLUE, pytest.param("2.3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [death.UNDECIDED, death.DECIDED])
def test_a_table_whose_batch_was_left_is_written_to_within_seconds(
    catalog: str, step: str, new_table: NewTable, tmp_path: Path
) -> None:
    tables = with_more_tables(new_table(catalog))
    process = start(batch_writer.run, job(tables, tmp_path / "batches", DEAD, step=step))
    process.join()
    assert process.exitcode == -9
    assert all(each.state().prepared for each in tables)
    left = [FIRST] if step == death.UNDECIDED else [FIRST, (DEAD, 0)]
    with tables[0].connect() as namespace:
        began = time.monotonic()
        assert [rows_of(namespace, each) for each in tables] == [left] * TABLES
        read = time.monotonic() - began
        request = api.InsertIntoTableRequest(id=tables[1].id)
        namespace.insert_into_table(request, ipc(row(NEXT, 0)))
        recovery = time.monotonic() - began
        print(f"{catalog}, {step}: read in {read:.1f} s, written to in {recovery:.1f} s")
        assert recovery < LONGEST_RECOVERY
        assert rows_of(namespace, tables[1]) == [*left, (NEXT, 0)]
        assert [each.state().prepared for each in tables] == [None] * TABLES
