"""What every operation works with: a catalog, its configuration, and the storage under it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .catalog import Capabilities, Catalog, TableRecord
from .config import CatalogConfig
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

    @cached_property
    def storage(self) -> TableStorage:
        return TableStorage(self.config.storage)

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
        if vend is not False:
            options.update(self.catalog.vend_credentials(record, write=write) or {})
        return options or None
