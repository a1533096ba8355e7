"""What is measured against: a metastore with many databases, and many tables in one of them.

Half of the tables are Lance's, and half are ordinary ones. All are made with raw calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import hmsclient
import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lance_bridge.catalog import TableRecord
from lance_bridge_hive import mapping

DATABASE = "bench"
_MARKS = {"table_type": "lance", "managed_by": "storage"}
_MAKERS = 4


@dataclass(frozen=True)
class Fixture:
    """What the metastore holds; ``locations`` are those of the Lance tables, by name."""

    locations: dict[str, str]
    tables: int
    databases: int
    root: str

    @property
    def names(self) -> list[str]:
        """The names of the Lance tables, sorted."""
        return sorted(self.locations)


class RawConnection:
    """One open connection with nothing around it: hmsclient, as it comes or at its fastest.

    Args:
        accelerated: Take Thrift's protocol in C instead of the one in Python that hmsclient uses.
    """

    def __init__(self, port: int, *, accelerated: bool = False) -> None:
        protocol = TBinaryProtocolAccelerated if accelerated else TBinaryProtocol
        self._transport = TBufferedTransport(TSocket("127.0.0.1", port))
        self.client = hmsclient.HMSClient(iprot=protocol(self._transport))
        self._transport.open()

    def get_table(self, name: str) -> Any:
        """Return the Thrift object of a table."""
        request = hms_types.GetTableRequest(dbName=DATABASE, tblName=name)
        return self.client.get_table_req(request).table

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def lance_entry(name: str, location: str) -> Any:
    """Return the Thrift object of a Lance table, as the adapter would make it."""
    record = TableRecord((DATABASE, name), location, _MARKS)
    return mapping.table_from(hms_types, record, None)


def _ordinary_entry(name: str, location: str) -> Any:
    table = mapping.table_from(hms_types, TableRecord((DATABASE, name), location), None)
    table.sd.cols = [hms_types.FieldSchema(name="id", type="bigint", comment="")]
    return table


def build(port: int, tables: int, databases: int) -> Fixture:
    """Fill a new metastore; ``databases`` counts the one with the tables, and Hive's own."""
    with_tables = hms_types.Database(name=DATABASE)
    connection = RawConnection(port)
    connection.client.create_database(with_tables)
    root = connection.client.get_database(DATABASE).locationUri
    connection.close()
    others = [hms_types.Database(name=f"other_{n:04}") for n in range(databases - 2)]
    names = [f"table_{n:05}" for n in range(tables)]
    locations = {name: f"{root}/{name}.lance" for name in names[::2]}
    entries = [
        lance_entry(name, locations[name])
        if name in locations
        else _ordinary_entry(name, f"{root}/{name}")
        for name in names
    ]
    _make_all(port, others, lambda client, database: client.create_database(database))
    _make_all(port, entries, lambda client, table: client.create_table(table))
    return Fixture(locations, tables, databases, root)


def _make_all(port: int, things: Sequence[Any], make: Callable[[Any, Any], None]) -> None:
    mine = threading.local()

    def connect() -> None:
        mine.connection = RawConnection(port, accelerated=True)

    with ThreadPoolExecutor(_MAKERS, initializer=connect) as makers:
        for done in [makers.submit(lambda t: make(mine.connection.client, t), t) for t in things]:
            done.result()
