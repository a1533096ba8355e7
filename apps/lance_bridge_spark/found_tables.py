"""What only the driver does with addresses: it connects to catalogs, and finds their tables.

Workers of Spark import `addresses` alone, and this when a task needs new credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import lance
import pyarrow as pa
from lance_namespace import CreateTableRequest, LanceNamespace
from lance_namespace.errors import TableNotFoundError

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.config import environment
from lance_bridge.entries import tables as entries
from lance_bridge.errors import unsupported
from lance_bridge.managed import conversion
from lance_bridge.managed.state import state_of
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import connect as connect_by_name
from lance_bridge.registry import implementation
from lance_bridge.tables.create import write_first
from lance_bridge.tables.data import Rows
from lance_bridge.tables.dataset import LATEST, Ref, open_dataset

from .addresses import Access, CatalogAddress, TableAddress
from .log_redaction import redact_logs
from .places import bridge_at


@dataclass(frozen=True)
class Table:
    """A table as the driver has found it. Does not pickle: tasks get an `Access`."""

    address: TableAddress
    bridge: Bridge = field(repr=False)
    record: TableRecord

    def open(self, ref: Ref = LATEST, *, write: bool = False) -> lance.LanceDataset:
        """Open it at a version, tag or branch. A dataset to write to commits where it has to.

        Raises:
            TableVersionNotFoundError: (11)
            TableTagNotFoundError: (8)
            TableBranchNotFoundError: (22)
            InvalidTableStateError: (19) it is declared, and has no data yet.
            ServiceUnavailableError: (17)
        """
        return open_dataset(self.bridge, self.record, ref, write=write)

    def access(
        self, dataset: lance.LanceDataset, *, branch: str | None = None, write: bool = False
    ) -> Access:
        """Return what tasks need to open this very version of an opened dataset."""
        redact_logs()
        if state_of(self.record) is not None:
            # Tasks open versions by their final names, without asking the catalog.
            conversion.finish_latest(self.bridge, self.record)
        return Access(
            self.address,
            locations.for_lance(self.record.location or ""),
            int(dataset.version),
            branch,
            write,
            self.storage_options(write=write) or {},
        )

    def storage_options(self, *, write: bool) -> dict[str, str] | None:
        """Return the options for the table's location, credentials among them, or None for none."""
        return self.bridge.storage_options(self.record, vend=None, write=write)


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


def find(address: TableAddress) -> Table:
    """Do what `TableAddress.find` says."""
    if address.catalog is None:
        bridge, record = bridge_at(address.location, address.storage)
        if entries.is_only_declared(bridge, record):
            raise TableNotFoundError(f"There is no Lance table at {address.location}")
        return Table(address, bridge, record)
    bridge = address.catalog.connect()._bridge
    return Table(address, bridge, entries.load_lance(bridge, bridge.table_path(address.path)))


def create(address: TableAddress, schema: pa.Schema, properties: Mapping[str, str] | None) -> None:
    """Do what `TableAddress.create` says."""
    empty = schema.empty_table()
    if address.catalog is None:
        bridge, record = bridge_at(address.location, address.storage)
        write_first(bridge, record, Rows.of(empty))
        return
    request = CreateTableRequest(
        id=list(address.path), mode="Create", properties=dict(properties or {}) or None
    )
    address.catalog.connect().create_table(request, empty)
