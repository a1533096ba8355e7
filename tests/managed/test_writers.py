"""Processes commit to one table at once, or are killed: each commit is a version, or nothing.

So it is where a proxy loses the replies of the catalog. Many writers are on real metastores of all
releases, and on moto's Glue, which compares VersionId as AWS's does: see `servers.glue_moto`.

Killed ones are on Glue, and slowly on Hive 2.3: after the entry is set, nothing depends on how it
was compared. The adapter's tests show the commit record of Hive 3.1 whose writer died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from managed import death
from managed.building import (
    FIRST,
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
from managed.conftest import GLUE, GLUE_S3, NewTable
from managed.writer import row
from managed.writers import Writers
from servers.glue_server import GlueServer
from servers.http_proxy import Fault as HttpFault
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.proxy import Fault as ThriftFault
from servers.proxy import ThriftProxy

from lance_bridge import managed_state as state
from lance_bridge.testing.build import ipc

pytestmark = pytest.mark.servers

FAULTS = 6
LOST = ["LOSE_REPLY", "RESET", "TRUNCATE_REPLY", "DROP_REQUEST"]
"""The faults that both proxies have."""
_BETWEEN_FAULTS = 0.1
CATALOGS = [GLUE, pytest.param("2.3", marks=pytest.mark.slow)]
DEAD, NEXT = 7, 8
"""Writers."""


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
@pytest.mark.parametrize("step", death.STEPS)
def test_a_commit_whose_writer_was_killed_is_made_whole_or_not_at_all(
    catalog: str, step: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    # Even rows are appended by pylance, odd ones inserted by the namespace.
    number = (death.STEPS.index(step) + (catalog != GLUE)) % 2
    assert writers.run([table.job(DEAD, number, number, step=step, dies_at=number)]) == []
    committed = [] if step == death.STAGED else [(DEAD, number)]
    assert table.state().version == 1 + len(committed)
    with table.connect() as namespace:
        assert list(staged_in(namespace, table).values()) == [step == death.NAMED]
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
        assert writers.run([table.job(DEAD, 0, 0, step=death.SETTING_ASIDE, dies_at=0)]) == []
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
    job = table.job(DEAD, 0, -1, step=death.RENAMING, rename_to="other")
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
    assert writers.run([table.job(DEAD, 0, -1, step=death.COPIED, rename_to="other")]) == []
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
