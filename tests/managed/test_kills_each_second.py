"""Six writers, one of them killed each second, and a server that goes away twice.

Every acknowledged commit is there, in the version that was answered, and none is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from managed.building import Rows, Table, require_exactly
from managed.conftest import GLUE, NewTable
from managed.fleet import Fleet
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.proxy import ThriftProxy
from servers.thrift_faults import Hold

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(3600)]

WRITERS, COMMITS = 6, 200
GOES_AWAY_AT = (300, 800)
"""The versions after which the server goes away."""
_SECONDS = 3000.0
_LONGEST_PAUSE = 30.0
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
            time.sleep(1)  # for so long, nobody is there
            proxy.start()

        require_all_commits(table.at(endpoint=proxy.endpoint), tmp_path, go_away)


def require_all_commits(table: Table, directory: Path, go_away: Callable[[], None]) -> None:
    """Have all rows committed in spite of everything, and check them."""
    absences = list(GOES_AWAY_AT)
    with Fleet(table, directory, WRITERS, COMMITS, _SECONDS) as fleet:
        while not fleet.is_done:
            time.sleep(1)  # the pace of the kills
            fleet.kill_one()
            if absences and table.state().version >= absences[0]:
                absences.pop(0)
                go_away()
    assert absences == []
    assert fleet.kills > WRITERS
    expected = [(writer, number) for writer in range(WRITERS) for number in range(COMMITS)]
    rows = require_exactly(table, expected)
    require_acknowledged(fleet, rows)
    pause = fleet.longest_pause()
    print(table.impl, f"{fleet.kills} kills, longest pause {pause:.1f} s")
    assert pause < _LONGEST_PAUSE


def require_acknowledged(fleet: Fleet, rows: Rows) -> None:
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
        with Fleet(reached, tmp_path, 4, 100, _SECONDS) as fleet:
            while not fleet.is_done:
                hold = Hold()
                proxy.fail_next(change, hold)
                while not (hold.arrived.wait(1) or fleet.is_done):
                    continue
                time.sleep(_HELD_SECONDS)
                hold.release.set()
    assert len(proxy.fired) > _FEWEST_HOLDS
    expected = [(writer, number) for writer in range(4) for number in range(100)]
    rows = require_exactly(table, expected)
    require_acknowledged(fleet, rows)
