"""Six writers, one of them killed each second, and a server that goes away twice.

Their clocks are twenty minutes apart, and more.

Every acknowledged commit is there, in the version that was answered, and none is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from managed.building import Rows, Table, all_rows, require_exactly
from managed.conftest import GLUE, NewTable
from managed.fleet import RowFleet
from servers.glue_server import GlueServer
from servers.http_faults import Delay
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.proxy import ThriftProxy
from servers.thrift_faults import Hold

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("release", ["2.3", "3.1", "4.2"])
def test_a_metastore_loses_no_commit_of_writers_that_are_killed(
    release: str, new_table: NewTable, metastores: Metastores, tmp_path: Path
) -> None:
    table, metastore = new_table(release), metastores.get(release)

    def go_away() -> None:
        metastore.kill()
        metastore.start()

    require_all_commits(table, tmp_path, go_away)


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
