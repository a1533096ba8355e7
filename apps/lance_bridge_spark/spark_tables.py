"""Tables on the driver, with their names in Spark."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import pyarrow as pa
from lance_namespace import CreateTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_bridge.catalog import TableRecord
from lance_bridge.dataset import Rows, write_first
from lance_bridge.table import Table

from .addresses import Access, TableAddress
from .connections import load_table, location_table
from .redaction import redact_logs


@dataclass(frozen=True)
class SparkTable(Table):
    """A table on the driver and its address in Spark. Tasks get an `Access` instead."""

    address: TableAddress

    def access(
        self, dataset: lance.LanceDataset, *, branch: str | None = None, write: bool = False
    ) -> Access:
        """Return what tasks need to open the same version as an opened dataset."""
        return self.access_version(int(dataset.version), branch=branch, write=write)

    def access_version(
        self, version: int, *, branch: str | None = None, write: bool = False
    ) -> Access:
        """Return what tasks need to open a version."""
        redact_logs()
        if self.managed is not None:
            # Tasks open versions by their final names, without a call to the catalog.
            self.finish_latest()
        return Access(
            self.address,
            self.uri,
            version,
            branch,
            write,
            self.storage_options(write=write) or {},
        )


def find(address: TableAddress, entry: TableRecord | None = None) -> SparkTable:
    """Return the table at an address. See `lookup.find_table`."""
    if address.catalog is None:
        table = location_table(address.location, address.storage)
        if table.is_declared():
            raise TableNotFoundError(f"There is no Lance table at {address.location}")
    else:
        table = load_table(address.catalog.connect(), address.path, entry)
    return SparkTable(table.connection, table.record, address)


def create(address: TableAddress, schema: pa.Schema) -> None:
    """Create an empty table. See `lookup.create_table`."""
    empty = pa.Table.from_batches([], schema)
    if address.catalog is None:
        write_first(location_table(address.location, address.storage), Rows.from_data(empty))
        return
    request = CreateTableRequest(id=list(address.path), mode="Create")
    address.catalog.connect().create_table(request, empty)
