"""What every operation works with: a catalog, its configuration, and the storage under it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from . import location as locations
from .catalog import Capabilities, Catalog, TableRecord
from .config import CatalogConfig
from .credentials import VendedCredentials
from .entries.declarations import Declarations
from .storage import TableStorage


@dataclass(frozen=True)
class Bridge:
    """One connected namespace."""

    catalog: Catalog
    config: CatalogConfig

    @property
    def capabilities(self) -> Capabilities:
        return self.catalog.capabilities

    def storage(self, record: TableRecord, *, write: bool = False) -> TableStorage:
        """Return the object store of a table's location, with the rights to read it or to write."""
        return TableStorage(self.storage_options(record, vend=None, write=write) or {})

    @cached_property
    def credentials(self) -> VendedCredentials:
        return VendedCredentials(self.catalog)

    @cached_property
    def declarations(self) -> Declarations:
        return Declarations(self.config.declare_grace)

    def storage_options(
        self, record: TableRecord, *, vend: bool | None, write: bool = False
    ) -> dict[str, str] | None:
        """Return the options that Lance needs for a table's location, or None for none.

        Args:
            vend: False keeps the catalog from being asked for temporary credentials.
            write: Whether the caller writes; readers get credentials to read.
        """
        options = dict(self.config.storage)
        if vend is not False and record.location and not locations.is_local(record.location):
            options.update(self.credentials.of(record, write=write))
        return options or None
