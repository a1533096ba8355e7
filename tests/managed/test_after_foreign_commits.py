"""The first write through the catalog after one past it: taken at once, with its own rows only.

On real metastores and on moto's Glue. Each write is pylance's or LanceDB's own, by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import lance
import pytest
from lancedb.namespace import LanceNamespaceDBConnection
from managed.building import FIRST, Rows, Table, location_of, rows_of
from managed.conftest import GLUE, NewTable
from managed.writer import row

from lance_bridge import LanceBridgeNamespace

pytestmark = [pytest.mark.slow, pytest.mark.spec("managed.md#out-of-band-versions")]

CATALOGS = ["2.3", "3.1", "4.2", GLUE]
FOREIGN, OWN, SECOND = (666, 0), (1, 0), (1, 1)
LONGEST_SECONDS = 2.0

Write = Callable[[LanceBridgeNamespace, Table], object]


def write_past_the_catalog(location: str) -> None:
    lance.write_dataset(row(*FOREIGN), location, mode="append")


def dataset(namespace: Any, table: Table) -> lance.LanceDataset:
    return lance.dataset(namespace_client=namespace, table_id=table.id)


def write(mode: str) -> Write:
    def do(namespace: Any, table: Table) -> object:
        return lance.write_dataset(
            row(*OWN), namespace_client=namespace, table_id=table.id, mode=mode
        )

    return do


def lancedb_table(namespace: Any, table: Table) -> Any:
    return LanceNamespaceDBConnection(namespace).open_table(
        table.id[-1], namespace_path=table.id[:-1]
    )


def merge(target: Any) -> Any:
    return target.merge_insert(["writer", "sequence"]).when_not_matched_insert_all()


DONE: dict[str, tuple[Write, Rows]] = {
    "append": (write("append"), [FIRST, SECOND, OWN]),
    "overwrite": (write("overwrite"), [OWN]),
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
COMMITS = {"tag": 0, "compaction": 2}
"""Versions that a write makes, unless that is one. A compaction reserves its fragments first."""


@pytest.mark.parametrize("catalog", CATALOGS)
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
            assert table.state().version == before + COMMITS.get(name, 1), name
            assert took < LONGEST_SECONDS, name
            slowest = max(slowest, took)
    print(catalog, f"slowest {slowest:.2f} s")


def restart(namespace: Any, table: Table) -> None:
    """Leave two rows in the table, in a fragment each."""
    for mode, each in (("overwrite", FIRST), ("append", SECOND)):
        lance.write_dataset(row(*each), namespace_client=namespace, table_id=table.id, mode=mode)


@pytest.mark.parametrize("catalog", CATALOGS)
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
