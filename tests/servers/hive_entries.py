"""Entries that are compared and set, over the adapter's catalog and without a namespace."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

from hmsclient.genthrift.hive_metastore.ttypes import GetTableRequest
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError

from lance_bridge.catalog import GUARD, Path, TableRecord
from lance_bridge.config import load
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.config import HiveConfig

from .hive_raw import raw_client

COUNT = "count"
_LONGEST_PAUSE = 0.25

T = TypeVar("T")


def open_catalog(uri: str, **properties: str) -> closing[HiveCatalog]:
    """Return a catalog on the metastore at ``uri`` as a context manager, which closes it."""
    return closing(HiveCatalog(load(HiveConfig, "hive", {"uri": uri, **properties})))


def raw_entry(port: int, database: str, name: str) -> Any:
    """The entry as the metastore has it."""
    with raw_client(port) as client:
        return client.get_table_req(GetTableRequest(dbName=database, tblName=name)).table


def set_by_others(port: int, path: Path, key: str, value: str) -> None:
    """Set a parameter of an entry, and leave its revision as it is."""
    table = raw_entry(port, *path)
    table.parameters[key] = value
    with raw_client(port) as client:
        client.alter_table(*path, table)


def make_entry(catalog: HiveCatalog, path: Path, location: str) -> TableRecord:
    """Make an entry that is not guarded, and load it."""
    record = TableRecord(path, location, {"table_type": "lance", "managed_by": "storage"})
    catalog.create_table(record)
    return catalog.load_table(path)


def with_property(record: TableRecord, key: str, value: str) -> TableRecord:
    return record.with_properties({**record.properties, key: value})


def guarded(catalog: HiveCatalog, path: Path, guard: str) -> TableRecord:
    """Give an entry this guard, and a count of nothing; load it."""
    record = with_property(catalog.load_table(path), COUNT, "0")
    catalog.alter_table(with_property(record, GUARD, guard))
    return catalog.load_table(path)


def count_of(catalog: HiveCatalog, path: Path) -> int:
    return int(catalog.load_table(path).properties[COUNT])


def add_one(catalog: HiveCatalog, find: Callable[[], TableRecord]) -> None:
    """Load the entry, add one to its count and alter it, until no other client is faster."""
    while True:
        record = find()
        more = str(int(record.properties[COUNT]) + 1)
        try:
            catalog.alter_table(with_property(record, COUNT, more))
        except ConcurrentModificationError:
            time.sleep(random.uniform(0, _LONGEST_PAUSE))
        else:
            return


def race(threads: int, call: Callable[[int], T]) -> list[T | LanceNamespaceError]:
    """Call from so many threads at once; return each answer or error of the library."""
    barrier = threading.Barrier(threads)

    def one(number: int) -> T | LanceNamespaceError:
        barrier.wait()
        try:
            return call(number)
        except LanceNamespaceError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def only_winner(
    answers: Sequence[T | LanceNamespaceError], *errors: type[LanceNamespaceError]
) -> T:
    """Return the only answer that is no error; the others must be of these kinds."""
    losers = [answer for answer in answers if isinstance(answer, LanceNamespaceError)]
    assert all(isinstance(error, errors) for error in losers), losers
    [winner] = [answer for answer in answers if not isinstance(answer, LanceNamespaceError)]
    return winner
