"""Catalogs that go away and writers that are killed, while processes commit to one table.

Metastores are killed and started again, with their state. What moto's Glue holds is gone when it
ends, so that there, and for lost replies, a proxy stands between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle

import pytest
from managed import death
from managed.building import (
    Table,
    described,
    require_exactly,
    require_nothing_left,
    require_true_reports,
)
from managed.conftest import GLUE, NewTable
from managed.writer import Job
from managed.writers import Work, Writers
from servers.glue_server import GlueServer
from servers.http_faults import Fault as HttpFault
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.proxy import Fault as ThriftFault
from servers.proxy import ThriftProxy

from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

PROCESSES, COMMITS, DIES_AT = 4, 6, 3
GOES_AWAY_AT = 10
"""The version after which the server goes away."""
FAULTS = 6
_POLL = 0.05
_BETWEEN_FAULTS = 0.1
_SECONDS = 240.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", ["2.3", "4.2"])
def test_no_commit_is_lost_or_made_twice_though_metastore_and_writers_die(
    release: str, new_table: NewTable, metastores: Metastores, writers: Writers
) -> None:
    table, metastore = new_table(release), metastores.get(release)
    steps = death.STEPS if release == "2.3" else []
    require_all_commits(table, writers, lambda: _kill_and_start(metastore), steps)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_commit_is_lost_or_made_twice_though_a_metastore_with_records_dies(
    new_table: NewTable, metastores: Metastores, writers: Writers
) -> None:
    table, metastore = new_table("3.1"), metastores.get("3.1")
    require_all_commits(table, writers, lambda: _kill_and_start(metastore), [])


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_no_commit_is_lost_or_made_twice_though_glue_is_cut_off_and_writers_die(
    new_table: NewTable, glue_server: GlueServer, writers: Writers
) -> None:
    table = new_table(GLUE)
    with HttpProxy(glue_server.endpoint) as proxy:

        def cut_off() -> None:
            proxy.stop()
            time.sleep(1)  # the server is away for so long
            proxy.start()

        require_all_commits(table.at(endpoint=proxy.endpoint), writers, cut_off, death.STEPS)


def require_all_commits(
    table: Table, writers: Writers, go_away: Callable[[], None], steps: Sequence[str]
) -> None:
    """Have processes commit while the server goes away and one of them dies at each step."""
    doomed = dict(enumerate(steps))
    jobs = [_job(table, writer, doomed.get(writer, "")) for writer in range(PROCESSES)]
    with writers.running(jobs) as work:
        _await_version(table, GOES_AWAY_AT, work)
        go_away()
        reports = work.reports()
    assert len(reports) == PROCESSES - len(doomed)
    if doomed:
        last = COMMITS - 1
        again = [table.job(w, DIES_AT, last, resumes=True, seconds=_SECONDS) for w in doomed]
        reports += writers.run(again)
    print(table.impl, described(reports))
    expected = [(writer, number) for writer in range(PROCESSES) for number in range(COMMITS)]
    require_true_reports(require_exactly(table, expected), reports)


def _job(table: Table, writer: int, step: str) -> Job:
    dies_at = DIES_AT if step else -1
    return table.job(writer, 0, COMMITS - 1, step=step, dies_at=dies_at, seconds=_SECONDS)


def _await_version(table: Table, version: int, work: Work) -> None:
    while table.state().version < version:
        assert not work.is_done
        time.sleep(_POLL)


def _kill_and_start(metastore: Metastore) -> None:
    metastore.kill()
    metastore.start()


@pytest.mark.timeout(600)
def test_no_commit_is_lost_or_made_twice_though_replies_of_glue_are_lost(
    new_table: NewTable, glue_server: GlueServer, writers: Writers
) -> None:
    table = new_table(GLUE)
    kinds = cycle(
        [
            HttpFault.LOSE_REPLY,
            HttpFault.RESET,
            HttpFault.TRUNCATE_REPLY,
            HttpFault.DROP_REQUEST,
            HttpFault.MALFORMED_REPLY,
        ]
    )
    with HttpProxy(glue_server.endpoint) as proxy:
        reached = table.at(endpoint=proxy.endpoint, max_retries="0")
        require_all_in_spite_of(
            reached,
            writers,
            lambda: proxy.fail_next("UpdateTable", next(kinds)),
            lambda: proxy.fired,
        )


@pytest.mark.timeout(600)
def test_no_commit_is_lost_or_made_twice_though_replies_of_a_metastore_are_lost(
    new_table: NewTable, metastores: Metastores, writers: Writers
) -> None:
    table, port = new_table("2.3"), metastores.get("2.3").port
    kinds = cycle(
        [
            ThriftFault.LOSE_REPLY,
            ThriftFault.RESET,
            ThriftFault.TRUNCATE_REPLY,
            ThriftFault.DROP_REQUEST,
        ]
    )
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
    expected = [(writer, number) for writer in range(4) for number in range(5)]
    require_true_reports(require_exactly(table, expected), reports)
    require_nothing_left(table)
    assert len(fired()) > 3
