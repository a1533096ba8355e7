"""What every operation works with: a catalog, its configuration, and the storage under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lance_namespace.errors import InvalidInputError

from . import identifier, names
from . import location as locations
from .catalog import Capabilities, Catalog, Path, TableRecord
from .config import CatalogConfig
from .credentials import VendedCredentials
from .declarations import Declarations
from .errors import invalid
from .storage.base_paths import BaseLocations
from .storage.store import TableStorage


@dataclass(frozen=True)
class Connection:
    """One connected namespace."""

    catalog: Catalog
    config: CatalogConfig

    @property
    def capabilities(self) -> Capabilities:
        return self.catalog.capabilities

    @cached_property
    def default_namespace(self) -> Path:
        """The namespace of tables that are given by one name; empty for none.

        Raises:
            InvalidInputError: (13) the property `default-namespace` names none of this catalog's.
        """
        text = self.config.default_namespace
        if text is None:
            return ()
        try:
            return identifier.parse_table_namespace(names.parts_of(text), self.capabilities)
        except InvalidInputError as error:
            raise invalid(f"Property 'default-namespace': {error}") from error

    def table_path(self, parts: Sequence[str] | None) -> Path:
        """Return the path of the table that a request names. Raises InvalidInput."""
        return identifier.parse_table(parts, self.capabilities, self.default_namespace)

    def table_namespace_path(self, parts: Sequence[str] | None) -> Path:
        """Return the path of the namespace whose tables a request names. Raises InvalidInput."""
        return identifier.parse_table_namespace(parts, self.capabilities, self.default_namespace)

    def storage(self, record: TableRecord, *, write: bool = False) -> TableStorage:
        """Return the object store of a table's location, with the rights to read it or to write."""
        return TableStorage(self.storage_options(record, vend=None, write=write) or {})

    @cached_property
    def credentials(self) -> VendedCredentials:
        return VendedCredentials(self.catalog)

    @cached_property
    def base_locations(self) -> BaseLocations:
        return BaseLocations()

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

    def answer_options(
        self, record: TableRecord, *, vend: bool | None, write: bool
    ) -> dict[str, str] | None:
        """Return the storage options that an operation answers with, or None for none.

        Args:
            vend: False leaves all credentials out, the configured ones as well: who asks brings
                their own.
            write: Whether the caller writes.
        """
        options = self.storage_options(record, vend=vend, write=write) or {}
        if vend is False:
            options = self.config.without_credentials(options)
        return options or None
