"""Tables on the driver, with their names in Spark: tables of catalogs, and those at a location."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timezone
from typing import Any, NoReturn

import lance
import pyarrow as pa
from lance_namespace import CreateTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_bridge.catalog import Capabilities, Catalog, NameRule, NamespaceRecord, Path, TableRecord
from lance_bridge.config import CatalogConfig
from lance_bridge.connection import Connection
from lance_bridge.dataset import Rows, directory_of, write_first
from lance_bridge.errors import translate_lance_errors, unsupported
from lance_bridge.locations import check
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.requests import Ref
from lance_bridge.table import Table

from .addresses import Access, TableAddress
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

    def versions(self, branch: str | None = None) -> list[dict[str, Any]]:
        """Return the existing versions of a branch, oldest first, as pylance does.

        Each has ``version``, ``timestamp`` and ``metadata``, the counts in its manifest. Versions
        that bypassed the catalog of a managed table are left out.

        Raises:
            TableBranchNotFoundError: (22)
            InvalidTableStateError: (19) it is declared, and has no data yet.
        """
        dataset = self.open(Ref.of(branch=branch))
        present = {each.version for each in directory_of(self, branch).list()}
        with translate_lance_errors(
            f"The versions of table '{self.address.name}' could not be read"
        ):
            listed: Any = dataset.versions()
        found = [
            {**each, "timestamp": each["timestamp"].astimezone(timezone.utc)}
            for each in listed
            if each["version"] in present
        ]
        return sorted(found, key=lambda each: int(each["version"]))


def find(address: TableAddress, entry: TableRecord | None = None) -> SparkTable:
    """Return the table at an address. See `lookup.find_table`."""
    if address.catalog is None:
        table = location_table(address.location, address.storage)
        if table.is_declared():
            raise TableNotFoundError(f"There is no Lance table at {address.location}")
    else:
        table = _load(address.catalog.connect(), address.path, entry)
    return SparkTable(table.connection, table.record, address)


def _load(namespace: LanceBridgeNamespace, path: Path, entry: TableRecord | None) -> Table:
    if entry is not None:
        return Table(namespace.connection, entry)
    return namespace.tables.load(namespace.tables.path_of(path))


def create(address: TableAddress, schema: pa.Schema) -> None:
    """Create an empty table. See `lookup.create_table`."""
    empty = pa.Table.from_batches([], schema)
    if address.catalog is None:
        write_first(location_table(address.location, address.storage), Rows.from_data(empty))
        return
    request = CreateTableRequest(id=list(address.path), mode="Create")
    address.catalog.connect().create_table(request, empty)


# -- tables without a catalog ----------------------------------------------------------------------

_ANY = NameRule("table", re.compile(r".+", re.DOTALL), "a location", 10_000)
_NO_NAMES = "a location has no catalog: give the table's name in one"


class LocationCatalog(Catalog):
    """A catalog of one table, which is named by its location and has no entry to change."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            namespace_levels=(),
            table_rule=_ANY,
            no_namespace_changes=_NO_NAMES,
            no_rename=_NO_NAMES,
            no_alter=_NO_NAMES,
            no_managed_tables=_NO_NAMES,
        )

    def describe_connection(self) -> str:
        return "location"

    def list_namespaces(self, parent: Path) -> Iterable[str]:  # noqa: ARG002 - there are none
        return ()

    def load_namespace(self, path: Path) -> NamespaceRecord:
        return NamespaceRecord(path)

    def scan_tables(
        self,
        namespace: Path,  # noqa: ARG002 - it has none
        *,
        lance_only: bool = False,  # noqa: ARG002
        after: str | None = None,  # noqa: ARG002
    ) -> Iterable[TableRecord]:
        return ()

    def load_table(self, path: Path) -> TableRecord:
        return TableRecord(path, path[-1], {"table_type": "lance"})

    def create_table(self, record: TableRecord) -> TableRecord:
        return record

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise unsupported(f"Not supported: {_NO_NAMES}")

    create_namespace = alter_namespace = drop_namespace = _refuse
    alter_table = drop_table = _refuse

    def close(self) -> None:
        """Do nothing: no connection is open."""


def location_table(location: str, storage: Mapping[str, str]) -> Table:
    """Return the table at a location, whether it exists or not.

    Raises:
        InvalidInputError: (13) Lance cannot open such a location.
    """
    check(location)
    catalog = LocationCatalog()
    config = CatalogConfig.model_validate({"storage.*": dict(storage)})
    return Table(Connection(catalog, config), catalog.load_table((location,)))
