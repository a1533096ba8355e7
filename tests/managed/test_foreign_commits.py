"""Commits that bypass the catalog, and the property `managed.foreign_commits`, on real catalogs.

The writes are pylance's and LanceDB's own, by name. In the races, four processes commit through the
catalog while a client writes past it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors
from lancedb.namespace import LanceNamespaceDBConnection
from managed.conftest import GLUE, NewTable
from managed.tables import (
    FIRST,
    Rows,
    Table,
    all_rows,
    described,
    difference,
    location_of,
    require_true_reports,
    rows_of,
)
from managed.writer import row
from managed.writers import Writers

from lance_bridge import LanceBridgeNamespace
from lance_bridge.records import FOREIGN_COMMITS
from lance_bridge.testing.calls import ipc

pytestmark = pytest.mark.spec(
    "clients.md#lancedb",
    "managed.md#commits-that-bypass-the-catalog",
    "managed.md#out-of-band-versions",
)


CATALOGS = [GLUE, pytest.param("2.3", marks=pytest.mark.slow)]
FOREIGN = 666
LONGEST_SECONDS = 2.0
PROCESSES, COMMITS = 4, 5
_POLL = 0.1


def set_policy(namespace: Any, table: Table, value: str) -> None:
    namespace.tables.load_by_id(table.id).set_properties({FOREIGN_COMMITS: value})
    found = namespace.describe_table(api.DescribeTableRequest(id=table.id)).properties
    assert found[FOREIGN_COMMITS] == value
    assert table.entry(table.id)[FOREIGN_COMMITS] == value


def write_past_the_catalog(location: str, sequence: int = 0) -> None:
    lance.write_dataset(row(FOREIGN, sequence), location, mode="append")


def dataset(namespace: Any, table: Table) -> lance.LanceDataset:
    return lance.dataset(namespace_client=namespace, table_id=table.id)


def lancedb_table(namespace: Any, table: Table) -> Any:
    connection = LanceNamespaceDBConnection(namespace)
    return connection.open_table(table.id[-1], namespace_path=table.id[:-1])


@pytest.mark.servers
@pytest.mark.parametrize("catalog", CATALOGS)
def test_what_was_open_before_commits_at_once_on_top_of_what_is_adopted(
    catalog: str, new_table: NewTable
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        set_policy(namespace, table, "adopt")
        location = location_of(namespace, table)
        ours, lancedbs = dataset(namespace, table), lancedb_table(namespace, table)
        expected = [FIRST]
        for sequence, commit in enumerate([ours.insert, lancedbs.add, ours.insert]):
            write_past_the_catalog(location, sequence)
            started = time.monotonic()
            commit(row(1, sequence))
            assert time.monotonic() - started < LONGEST_SECONDS
            expected += [(FOREIGN, sequence), (1, sequence)]
        assert rows_of(namespace, table) == expected
        assert table.state().version == len(expected)


@pytest.mark.servers
@pytest.mark.parametrize("catalog", CATALOGS)
def test_commits_are_refused_until_a_foreign_version_is_adopted(
    catalog: str, new_table: NewTable
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        set_policy(namespace, table, "refuse")
        write_past_the_catalog(location_of(namespace, table))
        insert = api.InsertIntoTableRequest(id=table.id)
        with pytest.raises(errors.InvalidTableStateError, match=r"refuse\): 2\."):
            namespace.insert_into_table(insert, ipc(row(1, 0)))
        assert rows_of(namespace, table) == [FIRST]
        assert namespace.adopt_out_of_band_versions(table.id) == 2
        namespace.insert_into_table(insert, ipc(row(1, 0)))
        assert rows_of(namespace, table) == [FIRST, (FOREIGN, 0), (1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("catalog", [GLUE, "2.3"])
def test_no_acknowledged_commit_is_lost_while_foreign_versions_are_adopted(
    catalog: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        set_policy(namespace, table, "adopt")
        written = race(namespace, table, writers)
        rows = rows_of(namespace, table)
        adopted = [each for each in rows if each[0] == FOREIGN]
        assert adopted == [(FOREIGN, number) for number in range(written)]
        assert table.state().version == len(rows)


@pytest.mark.servers
@pytest.mark.parametrize("catalog", CATALOGS)
def test_rows_that_were_written_past_the_catalog_never_show_up(
    catalog: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        race(namespace, table, writers, OSError)
        rows = rows_of(namespace, table)
        assert not [each for each in rows if each[0] == FOREIGN]
        found = namespace.list_out_of_band_versions(table.id)
        assert found.versions or found.quarantined
        numbers = {each.version for each in found.versions}
        numbers |= {each for each in found.quarantined_versions if each is not None}
        namespace.discard_out_of_band_versions(table.id, sorted(numbers))
        latest = len(rows)
        assert table.state().version == latest
        listed = namespace.list_table_versions(api.ListTableVersionsRequest(id=table.id)).versions
        assert [each.version for each in listed] == list(range(1, latest + 1))


def race(namespace: Any, table: Table, writers: Writers, *vanishing: type[Exception]) -> int:
    """Commit in four processes while a client writes past the catalog; count its versions.

    Args:
        vanishing: What it may meet where manifests are set aside.
    """
    location, written, latest = location_of(namespace, table), 0, 0
    with writers.running(table.jobs(PROCESSES, COMMITS)) as work:
        while not work.is_done:
            # Without a pause, the others would hardly ever commit.
            if table.state().version > latest:
                latest = table.state().version
                with suppress(*vanishing):
                    write_past_the_catalog(location, written)
                    written += 1
            time.sleep(_POLL)
        reports = work.reports()
    print(table.impl, f"{written} written past the catalog", described(reports))
    assert written
    rows = rows_of(namespace, table)
    own = [each for each in rows if each[0] != FOREIGN]
    wanted = [FIRST, *all_rows(PROCESSES, COMMITS)]
    assert sorted(own) == sorted(wanted), difference(own, wanted)
    require_true_reports(rows, reports)
    return written


# -- the first write through the catalog after one past it -----------------------------------------


OWN, SECOND = (1, 0), (1, 1)
Write = Callable[[LanceBridgeNamespace, Table], object]


def write(mode: str, namespace: Any, table: Table, own: tuple[int, int] = OWN) -> object:
    at: dict[str, Any] = {"namespace_client": namespace, "table_id": table.id}
    return lance.write_dataset(row(*own), mode=mode, **at)


def merge(target: Any) -> Any:
    return target.merge_insert(["writer", "sequence"]).when_not_matched_insert_all()


DONE: dict[str, tuple[Write, Rows]] = {
    "append": (partial(write, "append"), [FIRST, SECOND, OWN]),
    "overwrite": (partial(write, "overwrite"), [OWN]),
    "insert": (lambda ns, t: dataset(ns, t).insert(row(*OWN)), [FIRST, SECOND, OWN]),
    "delete": (lambda ns, t: dataset(ns, t).delete("writer = -1"), [SECOND]),
    "update": (
        lambda ns, t: dataset(ns, t).update({"sequence": "7"}, where="writer = -1"),
        [SECOND, (-1, 7)],
    ),
    "merge": (lambda ns, t: merge(dataset(ns, t)).execute(row(*OWN)), [FIRST, SECOND, OWN]),
    "tag": (lambda ns, t: dataset(ns, t).tags.create("one", 1), [FIRST, SECOND]),
    "compaction": (lambda ns, t: dataset(ns, t).optimize.compact_files(), [FIRST, SECOND]),
    "column": (
        lambda ns, t: dataset(ns, t).add_columns({"both": "writer + sequence"}),
        [FIRST, SECOND],
    ),
    "index": (lambda ns, t: dataset(ns, t).create_scalar_index("writer", "BTREE"), [FIRST, SECOND]),
    "lancedb add": (lambda ns, t: lancedb_table(ns, t).add(row(*OWN)), [FIRST, SECOND, OWN]),
    "lancedb delete": (lambda ns, t: lancedb_table(ns, t).delete("writer = -1"), [SECOND]),
    "lancedb merge": (
        lambda ns, t: merge(lancedb_table(ns, t)).execute(row(*OWN)),
        [FIRST, SECOND, OWN],
    ),
}
"""Each write, and the rows that are there after it."""
VERSIONS_MADE = {"tag": 0, "compaction": 2}
"""Versions that a write makes, unless that is one. A compaction reserves its fragments first."""


on_every_catalog = pytest.mark.parametrize("catalog", ["2.3", "3.1", "4.2", GLUE])


@pytest.mark.slow
@on_every_catalog
def test_the_first_write_after_one_past_the_catalog_is_taken_at_once(
    catalog: str, new_table: NewTable
) -> None:
    table = new_table(catalog)
    slowest = 0.0
    with table.connect() as namespace:
        for name, (do, expected) in DONE.items():
            restart(namespace, table)
            before = table.state().version
            write_past_the_catalog(location_of(namespace, table))
            started = time.monotonic()
            do(namespace, table)
            took = time.monotonic() - started
            assert sorted(rows_of(namespace, table)) == sorted(expected), name
            assert table.state().version == before + VERSIONS_MADE.get(name, 1), name
            assert took < LONGEST_SECONDS, name
            slowest = max(slowest, took)
    print(catalog, f"slowest {slowest:.2f} s")


def restart(namespace: Any, table: Table) -> None:
    """Leave two rows in the table, in a fragment each."""
    for mode, each in (("overwrite", FIRST), ("append", SECOND)):
        write(mode, namespace, table, each)


@pytest.mark.slow
@on_every_catalog
def test_a_dataset_that_was_open_before_fails_once_and_is_then_taken(
    catalog: str, new_table: NewTable
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        opened = dataset(namespace, table)
        write_past_the_catalog(location_of(namespace, table))
        with pytest.raises(OSError, match="Commit result for version 3 is unknown"):
            opened.insert(row(*OWN))
        started = time.monotonic()
        opened.insert(row(*OWN))
        assert time.monotonic() - started < LONGEST_SECONDS
        assert rows_of(namespace, table) == [FIRST, OWN]
        assert table.state().version == 2
