"""Processes commit to one table at once, or are killed: each commit is a version, or nothing.

So it is where a proxy loses the replies of the catalog. Many writers are on real metastores of all
releases, and on moto's Glue, which compares VersionId as AWS's does: see `servers.moto_app`.

Killed ones are on Glue, and slowly on Hive 2.3: after the entry is set, nothing depends on how it
was compared. The adapter's tests show the commit record of Hive 3.1 whose writer died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from multiprocessing.process import BaseProcess
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from managed.conftest import GLUE, GLUE_S3, NewTable
from managed.tables import (
    FIRST,
    Rows,
    Table,
    all_rows,
    described,
    location_of,
    require_exactly,
    require_nothing_left,
    require_true_reports,
    rows_of,
    staged_in,
)
from managed.writer import BatchJob, acknowledged, read_all, recoveries, resumed, row, run_batches
from managed.writers import RowWriterGroup, WriterGroup, Writers, start
from servers.glue_server import GlueServer
from servers.http_proxy import Delay, HttpProxy
from servers.http_proxy import Fault as HttpFault
from servers.metastores import Metastores
from servers.proxy import Fault as ThriftFault
from servers.proxy import Hold, ThriftProxy

from lance_bridge import managed_state as state
from lance_bridge.dataset import Action, plan_maintenance, run_maintenance
from lance_bridge.managed.lease import leased
from lance_bridge.records import GUARD, LEASE
from lance_bridge.testing.calls import ipc

from . import crashes

pytestmark = pytest.mark.servers

FAULTS = 6
LOST = ["LOSE_REPLY", "RESET", "TRUNCATE_REPLY", "DROP_REQUEST"]
"""The faults that both proxies have."""
_BETWEEN_FAULTS = 0.1
CATALOGS = [GLUE, pytest.param("2.3", marks=pytest.mark.slow)]
DEAD, NEXT = 7, 8
"""Writers."""
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
LONGEST_BATCH_PAUSE, LONGEST_RECOVERY = 20.0, 10.0
"""In seconds. A recovery begins when a writer meets the batch of another client. A pause is longer:
the next client can be killed in the same way before it commits."""
CALLS = 10
"""How many calls may come on top, as slow as the slowest read of an entry: on a machine that has no
time for its processes, these take seconds each, and a recovery has about a dozen."""


@pytest.mark.parametrize(
    ("catalog", "processes", "commits"),
    [
        (GLUE, 4, 5),
        (GLUE_S3, 4, 3),
        ("2.3", 4, 5),
        ("3.1", 4, 3),
        pytest.param(GLUE, 8, 25, marks=pytest.mark.slow),
        pytest.param("2.3", 8, 25, marks=pytest.mark.slow),
        pytest.param("4.2", 8, 25, marks=pytest.mark.slow),
        # They compare as 2.3 does.
        pytest.param("4.0", 4, 10, marks=pytest.mark.slow),
        pytest.param("4.1", 4, 10, marks=pytest.mark.slow),
    ],
)
def test_no_commit_of_many_writers_is_lost_or_made_twice(
    catalog: str, processes: int, commits: int, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    reports = writers.run(table.jobs(processes, commits))
    print(catalog, described(reports))
    rows = require_exactly(table, all_rows(processes, commits))
    require_true_reports(rows, reports)
    require_nothing_left(table)


def test_no_commit_is_lost_or_made_twice_though_replies_of_glue_are_lost(
    new_table: NewTable, glue_server: GlueServer, writers: Writers
) -> None:
    table = new_table(GLUE)
    kinds = cycle([*(HttpFault[name] for name in LOST), HttpFault.MALFORMED_REPLY])
    with HttpProxy(glue_server.endpoint) as proxy:
        reached = table.at(endpoint=proxy.endpoint, max_retries="0")
        require_all_in_spite_of(
            reached,
            writers,
            lambda: proxy.fail_next("UpdateTable", next(kinds)),
            lambda: proxy.fired,
        )


def test_no_commit_is_lost_or_made_twice_though_replies_of_a_metastore_are_lost(
    new_table: NewTable, metastores: Metastores, writers: Writers
) -> None:
    table, port = new_table("2.3"), metastores.get("2.3").port
    kinds = cycle(ThriftFault[name] for name in LOST)
    with ThriftProxy("127.0.0.1", port) as proxy:
        require_all_in_spite_of(
            table.at(uri=proxy.uri),
            writers,
            lambda: proxy.fail_next("alter_table*", next(kinds)),
            lambda: proxy.fired,
        )


def require_all_in_spite_of(
    table: Table,
    writers: Writers,
    fail: Callable[[], None],
    fired: Callable[[], Sequence[object]],
) -> None:
    """Have four processes commit while something fails again and again."""
    failed = 0
    with writers.running(table.jobs(4, 5)) as work:
        while not work.is_done:
            # One at a time, and not for ever: new connections would meet nothing but faults.
            if len(fired()) == failed < FAULTS:
                fail()
                failed += 1
            time.sleep(_BETWEEN_FAULTS)
        reports = work.reports()
    print(table.impl, described(reports))
    require_true_reports(require_exactly(table, all_rows(4, 5)), reports)
    require_nothing_left(table)
    assert len(fired()) > 3


# -- writers that are killed at each step of the protocol ------------------------------------------


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("step", crashes.STEPS)
def test_a_commit_whose_writer_was_killed_is_made_whole_or_not_at_all(
    catalog: str, step: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    # Even rows are appended by pylance, odd ones inserted by the namespace.
    number = (crashes.STEPS.index(step) + (catalog != GLUE)) % 2
    assert writers.run([table.job(DEAD, number, number, step=step, dies_at=number)]) == []
    committed = [] if step == crashes.STAGED else [(DEAD, number)]
    assert table.state().version == 1 + len(committed)
    with table.connect() as namespace:
        assert list(staged_in(namespace, table).values()) == [step == crashes.NAMED]
        assert rows_of(namespace, table) == [FIRST, *committed]
    [report] = writers.run([table.job(NEXT, 0, 2)])
    assert (report.beaten, report.unsure) == (0, {})
    require_exactly(table, [*committed, *((NEXT, each) for each in range(3))])
    with table.connect() as namespace:
        # What was never committed stays: that its writer is dead cannot be known.
        assert len(staged_in(namespace, table)) == 1 - len(committed)


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_table_whose_holder_was_killed_is_written_to_after_a_while(
    catalog: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        lance.write_dataset(row(666, 0), location_of(namespace, table), mode="append")
        assert writers.run([table.job(DEAD, 0, 0, step=crashes.SETTING_ASIDE, dies_at=0)]) == []
        held = table.state()
        assert held.is_held
        assert held.brief
        assert rows_of(namespace, table) == [FIRST]
        require_refused(table)
        assert table.state() == held
        end_holds(monkeypatch)
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 0)))
        assert len(namespace.list_out_of_band_versions(table.id).quarantined) == 1
        [version] = namespace.list_out_of_band_versions(table.id).quarantined_versions
        namespace.discard_out_of_band_versions(table.id, [version or 0])
    require_exactly(table, [(NEXT, 0)])


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_rename_whose_process_was_killed_before_it_has_not_happened(
    catalog: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog)
    job = table.job(DEAD, 0, -1, step=crashes.RENAMING, rename_to="other")
    assert writers.run([job]) == []
    assert table.state().is_held
    require_refused(table)
    end_holds(monkeypatch)
    with table.connect() as namespace:
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 0)))
    require_exactly(table, [(NEXT, 0)])


@pytest.mark.parametrize("kept", ["t", pytest.param("other", marks=pytest.mark.slow)])
def test_a_rename_by_copy_whose_process_was_killed_half_way_loses_no_commit(
    kept: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(GLUE)
    assert writers.run([table.job(DEAD, 0, -1, step=crashes.COPIED, rename_to="other")]) == []
    end_holds(monkeypatch)
    names = {name: replace(table, id=[*table.id[:-1], name]) for name in ("t", "other")}
    with table.connect() as namespace:
        for each in names.values():
            # Under one name, nothing would be seen of a commit under the other.
            with pytest.raises(InvalidTableStateError, match="deregister"):
                namespace.insert_into_table(
                    api.InsertIntoTableRequest(id=each.id), ipc(row(NEXT, 0))
                )
            assert rows_of(namespace, each) == [FIRST]
        left = names.pop(kept)
        [dropped] = names.values()
        namespace.deregister_table(api.DeregisterTableRequest(id=dropped.id))
        namespace.insert_into_table(api.InsertIntoTableRequest(id=left.id), ipc(row(NEXT, 0)))
    require_exactly(left, [(NEXT, 0)])


def require_refused(table: Table) -> None:
    """Check that no writer can commit."""
    with table.connect() as namespace, pytest.raises(ConcurrentModificationError, match="renamed"):
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 9)))


def end_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take holds for over at once, in this process, instead of after minutes."""
    monkeypatch.setattr(state, "HOLD_SECONDS", 0)
    monkeypatch.setattr(state, "BRIEF_SECONDS", 0)


# -- kills -----------------------------------------------------------------------------------------


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
    with RowWriterGroup(table, directory, WRITERS, COMMITS, _SECONDS, clocks=CLOCKS) as group:
        while not group.is_done:
            time.sleep(1)  # the pace of the kills
            group.kill_one()
            if absences and table.state().version >= absences[0]:
                absences.pop(0)
                go_away()
    assert absences == []
    assert group.kills > WRITERS
    require_acknowledged(group, require_exactly(table, all_rows(WRITERS, COMMITS)))
    pause = group.longest_pause()
    print(table.impl, f"{group.kills} kills, longest pause {pause:.1f} s")
    assert pause < _LONGEST_PAUSE


def require_acknowledged(group: RowWriterGroup, rows: Rows) -> None:
    """Check that each version that was answered has the row it was answered for."""
    for writer in range(group.writers):
        for sequence, version, _ in group.acknowledged(writer):
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
    with RowWriterGroup(reached, directory, STALLED_WRITERS, STALLED_COMMITS, _SECONDS) as group:
        while not group.is_done:
            has_come, let_go = hold_next()
            while not (has_come() or group.is_done):
                time.sleep(_POLL_SECONDS)
            time.sleep(_HELD_SECONDS)
            let_go()
            held += has_come()
    print(table.impl, f"{held} changes held, longest pause {group.longest_pause():.1f} s")
    assert held > _FEWEST_HOLDS
    require_acknowledged(group, require_exactly(table, all_rows(STALLED_WRITERS, STALLED_COMMITS)))


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


class BatchWriterGroup(WriterGroup):
    """Each process commits batches."""

    def __init__(self, jobs: Sequence[BatchJob]) -> None:
        super().__init__(len(jobs))
        self.jobs = jobs

    def _start(self, writer: int) -> BaseProcess:
        return start(run_batches, resumed(self.jobs[writer]))

    def _moments(self, writer: int) -> list[float]:
        return [at for _, at in acknowledged(self.jobs[writer])]

    def recoveries(self) -> list[tuple[float, float]]:
        """Return how long it took to end each batch of another client; as the writers do."""
        return [each for job in self.jobs for each in recoveries(job)]


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
    with readers(tables, directory) as records, BatchWriterGroup(jobs) as group:
        while not group.is_done:
            time.sleep(PACE)
            group.kill_one()
    for each in tables:
        require_exactly(each, all_rows(writers, batches))
    reads = sum(int(record.read_text()) for record in records)
    recoveries, pause = group.recoveries(), group.longest_pause()
    slowest = max(read for _, read in recoveries)
    print(
        f"{group.kills} kills, {reads} reads, {len(recoveries)} recoveries of at most "
        f"{max(recoveries)[0]:.1f} s, longest pause {pause:.1f} s, slowest read of an entry in a "
        f"recovery {slowest:.2f} s"
    )
    assert group.kills > writers
    assert reads > READERS
    for seconds, read in recoveries:
        assert seconds < LONGEST_RECOVERY + CALLS * read
    assert pause < LONGEST_BATCH_PAUSE + CALLS * slowest


@pytest.mark.servers
@pytest.mark.spec("managed.md#invariants-of-batches")
@pytest.mark.parametrize("catalog", [GLUE, pytest.param("2.3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", [crashes.UNDECIDED, crashes.DECIDED])
def test_a_table_whose_batch_was_left_is_written_to_within_seconds(
    catalog: str, step: str, new_table: NewTable, tmp_path: Path
) -> None:
    tables = with_more_tables(new_table(catalog))
    process = start(run_batches, job(tables, tmp_path / "batches", DEAD, step=step))
    process.join()
    assert process.exitcode == -9
    assert all(each.state().prepared for each in tables)
    left = [FIRST] if step == crashes.UNDECIDED else [FIRST, (DEAD, 0)]
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


# -- runs of maintenance ---------------------------------------------------------------------------


@pytest.mark.spec("common.md#running-maintenance")
@pytest.mark.parametrize("is_managed", [True, False], ids=["managed", "in storage"])
@pytest.mark.parametrize("catalog", ["2.3", "4.2", GLUE])
def test_one_worker_at_a_time_maintains_a_table(
    catalog: str, new_table: NewTable, *, is_managed: bool
) -> None:
    made = new_table(catalog)
    with made.connect() as namespace:
        table = namespace.tables.load_by_id(made.id)
        rows: pa.Table = table.open().to_table()
        if not is_managed:
            table.release()
        for _ in range(3):
            lance.write_dataset(rows, namespace_client=namespace, table_id=made.id, mode="append")
        table = namespace.tables.load_by_id(made.id)
        table.change_properties({"maintenance.min_fragments": "3"}, ())
        table = namespace.tables.load_by_id(made.id)
        with leased(table) as lease:
            assert LEASE in made.entry(made.id)
            with pytest.raises(ConcurrentModificationError), leased(table):
                pass
            lease.check()
        plan = plan_maintenance(namespace.tables, tuple(made.id[:-1]))
        [done] = run_maintenance(namespace.tables, plan)
        assert (done.reason, done.actions) == ("", (Action.COMPACT,))
        parameters = made.entry(made.id)
        assert LEASE not in parameters
        assert (GUARD in parameters) is is_managed
        after = namespace.tables.load_by_id(made.id).open()
        assert (after.count_rows(), len(after.get_fragments())) == (4, 1)
