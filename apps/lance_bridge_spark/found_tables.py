"""What only the driver does with addresses: it connects to catalogs, and finds their tables.

Workers of Spark import `addresses` alone, and this when a task needs new credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import lance
import pyarrow as pa
from lance_namespace import CreateTableRequest, LanceNamespace
from lance_namespace.errors import TableNotFoundError

from lance_bridge.catalog import TableRecord
from lance_bridge.config import environment
from lance_bridge.entries import tables as entries
from lance_bridge.errors import unsupported
from lance_bridge.managed import conversion
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import connect as connect_by_name
from lance_bridge.registry import implementation
from lance_bridge.table import Table
from lance_bridge.tables.create import write_first
from lance_bridge.tables.data import Rows

from .addresses import Access, CatalogAddress, TableAddress
from .places import bridge_for_location
from .redaction import redact_logs


@dataclass(frozen=True)
class SparkTable(Table):
    """A table on the driver, and the address by which Spark names it. Tasks get an `Access`."""

    address: TableAddress

    def access(
        self, dataset: lance.LanceDataset, *, branch: str | None = None, write: bool = False
    ) -> Access:
        """Return what tasks need to open this very version of an opened dataset."""
        redact_logs()
        if self.managed is not None:
            # Tasks open versions by their final names, without asking the catalog.
            conversion.finish_latest(self.bridge, self.record)
        return Access(
            self.address,
            self.uri,
            int(dataset.version),
            branch,
            write,
            self.storage_options(write=write) or {},
        )


def connect(address: CatalogAddress) -> LanceBridgeNamespace:
    """Do what `CatalogAddress.connect` says."""
    namespace = _connected(address.name, tuple(sorted(address.properties.items())))
    if not isinstance(namespace, LanceBridgeNamespace):
        raise unsupported(
            f"Catalog '{address.name}' is pylance's own: give Spark the location of its table"
        )
    return namespace


@lru_cache(maxsize=32)
def _connected(name: str, items: tuple[tuple[str, str], ...]) -> LanceNamespace:
    properties = dict(items)
    impl = properties.pop("impl", None)
    if impl is None:
        return connect_by_name(name, properties)
    kind = implementation(impl)  # of a class, or of a catalog of the configuration file
    if issubclass(kind, LanceBridgeNamespace):
        properties = {**environment(kind.config_type, name), **properties}
    return connect_by_name(impl, properties)


def find(address: TableAddress, entry: TableRecord | None = None) -> SparkTable:
    """Do what `TableAddress.find` says."""
    if address.catalog is None:
        bridge, record = bridge_for_location(address.location, address.storage)
        if Table(bridge, record).is_declared():
            raise TableNotFoundError(f"There is no Lance table at {address.location}")
        return SparkTable(bridge, record, address)
    bridge = address.catalog.connect()._bridge
    record = entry or entries.load_lance(bridge, bridge.table_path(address.path))
    return SparkTable(bridge, record, address)


def create(address: TableAddress, schema: pa.Schema, properties: Mapping[str, str] | None) -> None:
    """Do what `TableAddress.create` says."""
    empty = schema.empty_table()
    if address.catalog is None:
        bridge, record = bridge_for_location(address.location, address.storage)
        write_first(Table(bridge, record), Rows.of(empty))
        return
    request = CreateTableRequest(
        id=list(address.path), mode="Create", properties=dict(properties or {}) or None
    )
    address.catalog.connect().create_table(request, empty)
