"""Raw access to a metastore: what the adapter would never do, and what others write there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
from hmsclient import HMSClient
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

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
