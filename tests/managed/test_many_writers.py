"""Processes commit to one table at once: every commit is a version of its own, and is there.

So it is where a proxy loses the replies of the catalog.

On real metastores of all releases, and on moto's Glue, which compares VersionId as AWS's does: see
`servers.glue_moto`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle

import pytest
from managed.building import (
    Table,
    all_rows,
    described,
    require_exactly,
    require_nothing_left,
    require_true_reports,
)
from managed.conftest import GLUE, GLUE_S3, NewTable
from managed.writers import Writers
from servers.glue_server import GlueServer
from servers.http_faults import Fault as HttpFault
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.proxy import Fault as ThriftFault
from servers.proxy import ThriftProxy

pytestmark = pytest.mark.servers

FAULTS = 6
LOST = ["LOSE_REPLY", "RESET", "TRUNCATE_REPLY", "DROP_REQUEST"]
"""The faults that both proxies have."""
_BETWEEN_FAULTS = 0.1


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
