"""Processes that are killed while they commit: no commit is lost, and none is there twice.

Six commit rows, one of them killed each second, and a server goes away twice. Their clocks are
twenty minutes apart, and more. Every acknowledged commit is in the version that was answered.

Eight commit batches to three tables, while four read all of them. No batch is seen by half at any
moment. A table whose batch was left by a client that died is written to within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import lance_namespace as api
import pytest
from managed import batch_writer, death
from managed.batch_writer import BatchJob, acknowledged, read_all, resumed
from managed.building import FIRST, Rows, Table, all_rows, require_exactly, rows_of
from managed.conftest import GLUE, NewTable
from managed.fleet import Fleet, RowFleet, start
from managed.writer import row
from servers.glue_server import GlueServer
from servers.http_proxy import Delay, HttpProxy
from servers.metastores import Metastores
from servers.proxy import Hold, ThriftProxy

from lance_bridge.testing.build import ipc

WRITERS, COMMITS = 6, 75
GOES_AWAY_AT = (100, 300)
"""The versions after which the server goes away."""
STALLED_WRITERS, STALLED_COMMITS = 4, 100
CLOCKS = (0.0, 1200.0, -1200.0)
"""How many seconds ahead the clocks of writers are."""
_SECONDS = 3000.0
_POLL_SECONDS = 0.1
_LONGEST_PAUSE = 120.0
"""In seconds. The hold of a killed writer ends after `BRIEF_SECONDS`, 20, and others after 300."""
_FEWEST_HOLDS = 2
_HELD_SECONDS = 5.0
"""More than twice as long as the clients wait for an answer."""
BATCH_WRITERS, BATCHES, READERS, TABLES = 8, 10, 4, 3
PACE = 0.5
"""Seconds between two kills."""
DEAD, NEXT = 7, 8
LONGEST_BATCH_PAUSE, LONGEST_RECOVERY = 20.0, 10.0
"""In seconds. A recovery begins when a writer meets the batch of another client. A pause is longer:
the next client can be killed in the same way before it commits."""
CALLS = 10
"""How many calls may come on top, as slow as the slowest read of an entry: on a machine that has no
time for its processes, these take seconds each, and a recovery has about a dozen."""


@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.3", "3.1", "4.2"])
def test_a_metastore_loses_no_commit_of_writers_that_are_killed(
    release: str, new_table: NewTable, metastores: Metastores, tmp_path: Path
) -> None:
    table, metastore = new_table(release), metastores.get(release)

    def go_away() -> None:
        metastore.kill()
        metastore.start()

    require_all_commits(table, tmp_path, go_away)


@pytest.mark.slow
def test_glue_loses_no_commit_of_writers_that_are_killed(
    new_table: NewTable, glue_server: GlueServer, tmp_path: Path
) -> None:
    table = new_table(GLUE)
    with HttpProxy(glue_server.endpoint) as proxy:

        def go_away() -> None:
            proxy.stop()
            time.sleep(1)  # the server is away for so long
            proxy.start()

        require_all_commits(table.at(endpoint=proxy.endpoint), tmp_path, go_away)


def require_all_commits(table: Table, directory: Path, go_away: Callable[[], None]) -> None:
    """Have all rows committed in spite of everything, and check them."""
    absences = list(GOES_AWAY_AT)
    with RowFleet(table, directory, WRITERS, COMMITS, _SECONDS, clocks=CLOCKS) as fleet:
        while not fleet.is_done:
            time.sleep(1)  # the pace of the kills
            fleet.kill_one()
            if absences and table.state().version >= absences[0]:
                absences.pop(0)
                go_away()
    assert absences == []
    assert fleet.kills > WRITERS
    require_acknowledged(fleet, require_exactly(table, all_rows(WRITERS, COMMITS)))
    pause = fleet.longest_pause()
    print(table.impl, f"{fleet.kills} kills, longest pause {pause:.1f} s")
    assert pause < _LONGEST_PAUSE


def require_acknowledged(fleet: RowFleet, rows: Rows) -> None:
    """Check that each version that was answered has the row it was answered for."""
    for writer in range(fleet.writers):
        for sequence, version, _ in fleet.acknowledged(writer):
            assert not version or rows[version - 1] == (writer, sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "change"), [("2.3", "alter_table*"), ("3.1", "add_partition*"), ("4.2", "alter_*")]
)
def test_changes_that_arrive_after_their_client_gave_up_take_nothing_back(
    release: str,
    change: str,
    new_table: NewTable,
    metastores: Metastores,
    tmp_path: Path,
) -> None:
    table = new_table(release)
    with ThriftProxy("127.0.0.1", metastores.get(release).port) as proxy:
        reached = table.at(uri=proxy.uri, **{"client.timeout": "2"})

        def hold_next() -> Held:
            hold = Hold()
            proxy.fail_next(change, hold)
            return hold.arrived.is_set, hold.release.set

        require_all_in_spite_of_stalls(table, reached, tmp_path, hold_next)


@pytest.mark.slow
def test_changes_of_glue_that_arrive_after_their_client_gave_up_take_nothing_back(
    new_table: NewTable, glue_server: GlueServer, tmp_path: Path
) -> None:
    table = new_table(GLUE)
    with HttpProxy(glue_server.endpoint) as proxy:
        # Without repetitions of botocore's own, which would mostly succeed before it arrives.
        reached = table.at(endpoint=proxy.endpoint, max_retries="0", **{"client.read-timeout": "2"})

        def hold_next() -> Held:
            delay, fired = Delay(arrives_late=True), len(proxy.fired)
            proxy.fail_next("UpdateTable", delay)
            return lambda: len(proxy.fired) > fired, delay.release.set

        require_all_in_spite_of_stalls(table, reached, tmp_path, hold_next)


Held = tuple[Callable[[], bool], Callable[[], None]]
"""Whether a change has come and is held, and what lets it go on."""


def require_all_in_spite_of_stalls(
    table: Table, reached: Table, directory: Path, hold_next: Callable[[], Held]
) -> None:
    """Have all rows committed while one change after the other is held, and check them."""
    held = 0
    with RowFleet(reached, directory, STALLED_WRITERS, STALLED_COMMITS, _SECONDS) as fleet:
        while not fleet.is_done:
            has_come, let_go = hold_next()
            while not (has_come() or fleet.is_done):
                time.sleep(_POLL_SECONDS)
            time.sleep(_HELD_SECONDS)
            let_go()
            held += has_come()
    print(table.impl, f"{held} changes held, longest pause {fleet.longest_pause():.1f} s")
    assert held > _FEWEST_HOLDS
    require_acknowledged(fleet, require_exactly(table, all_rows(STALLED_WRITERS, STALLED_COMMITS)))


# -- batches of several tables ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("managed.md#invariants-of-batches")
@pytest.mark.parametrize("catalog", ["2.3", GLUE])
def test_no_batch_is_seen_by_half(catalog: str, new_table: NewTable, tmp_path: Path) -> None:
    require_whole_batches(new_table(catalog), tmp_path, BATCH_WRITERS, BATCHES)


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
    assert pause < LONGEST_BATCH_PAUSE + CALLS * slowest


@pytest.mark.servers
@pytest.mark.spec("managed.md#invariants-of-batches")
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
