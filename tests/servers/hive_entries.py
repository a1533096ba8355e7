"""Entries of a metastore: raw, as others write them, and compared and set by the adapter."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hmsclient.genthrift.hive_metastore.ttypes as hive
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore.ttypes import GetTableRequest
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lance_bridge.catalog import GUARD, TableRecord
from lance_bridge.config import load
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_hive.config import HiveConfig

FieldSchema = hive.FieldSchema

MARKS: dict[str, Callable[[Any], None]] = {}
"""Kinds of Lance entries that other implementations make."""


def mark(function: Callable[[Any], None]) -> Callable[[Any], None]:
    MARKS[function.__name__] = function
    return function


@mark
def upper_case_type(table: Any) -> None:
    table.parameters["table_type"] = "LANCE"


@mark
def managed_by_catalog(table: Any) -> None:
    table.parameters["managed_by"] = "catalog"


@mark
def stored_as_managed_table(table: Any) -> None:
    table.tableType = "MANAGED_TABLE"
    del table.parameters["EXTERNAL"]


@mark
def external_parameter_missing(table: Any) -> None:
    del table.parameters["EXTERNAL"]


@mark
def purge_is_on(table: Any) -> None:
    table.parameters["external.table.purge"] = "TRUE"


@mark
def location_with_one_slash(table: Any) -> None:
    table.sd.location = "file:" + table.sd.location.removeprefix("file://")


@mark
def location_as_plain_path(table: Any) -> None:
    table.sd.location = table.sd.location.removeprefix("file://")


@mark
def location_with_slash_at_the_end(table: Any) -> None:
    table.sd.location += "/"


@mark
def with_columns(table: Any) -> None:
    table.sd.cols = [FieldSchema("id", "bigint", ""), FieldSchema("v", "array<float>")]


@mark
def without_owner_and_managed_by(table: Any) -> None:
    table.owner = None
    table.parameters.pop("managed_by", None)


BROKEN_MARKS: dict[str, Callable[[Any], None]] = {}
"""Entries marked as Lance's that no table can be behind. A metastore has none: it gives all entries
a location but views, which are foreign whatever their marks say."""


@contextmanager
def raw_client(port: int, client: Any = HMSClient) -> Iterator[Any]:
    """One raw connection to a metastore, for what the adapter would never do."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    try:
        yield client(TBinaryProtocol(transport))
    finally:
        transport.close()


def raw_table(database: str, name: str, location: str, types: Any = hive) -> Any:
    """Return an external Lance entry as other implementations write it."""
    descriptor = types.StorageDescriptor(
        cols=[],
        location=f"file://{location}" if location.startswith("/") else location,
        inputFormat="com.lancedb.lance.mapred.LanceInputFormat",
        outputFormat="com.lancedb.lance.mapred.LanceOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib="com.lancedb.lance.mapred.LanceSerDe"),
        parameters={},
    )
    return types.Table(
        tableName=name,
        dbName=database,
        owner="somebody",
        sd=descriptor,
        partitionKeys=[],
        tableType="EXTERNAL_TABLE",
        parameters={"EXTERNAL": "TRUE", "table_type": "lance", "managed_by": "storage"},
    )


def raw_partition(entry: Any, value: str, place: Path) -> hive.Partition:
    """Return a partition of an entry at another location."""
    storage = copy.deepcopy(entry.sd)
    storage.location = f"file:{place}"
    return hive.Partition(
        values=[value],
        dbName=entry.dbName,
        tableName=entry.tableName,
        sd=storage,
        parameters={},
        createTime=1,
        lastAccessTime=1,
    )


# -- entries that are compared and set -------------------------------------------------------------


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


def set_by_others(port: int, path: tuple[str, ...], key: str, value: str) -> None:
    """Set a parameter of an entry, and leave its revision as it is."""
    table = raw_entry(port, *path)
    table.parameters[key] = value
    with raw_client(port) as client:
        client.alter_table(*path, table)


def make_entry(catalog: HiveCatalog, path: tuple[str, ...], location: str) -> TableRecord:
    """Make an entry that is not guarded, and load it."""
    record = TableRecord(path, location, {"table_type": "lance", "managed_by": "storage"})
    catalog.create_table(record)
    return catalog.load_table(path)


def with_property(record: TableRecord, key: str, value: str) -> TableRecord:
    return record.with_properties({**record.properties, key: value})


def guarded(catalog: HiveCatalog, path: tuple[str, ...], guard: str) -> TableRecord:
    """Give an entry this guard, and a count of nothing; load it."""
    record = with_property(catalog.load_table(path), COUNT, "0")
    catalog.alter_table(with_property(record, GUARD, guard))
    return catalog.load_table(path)


def count_of(catalog: HiveCatalog, path: tuple[str, ...]) -> int:
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
