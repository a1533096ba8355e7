"""Connection: a catalog, its configuration, and the credentials for its tables' storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from . import names
from .catalog import IMPLEMENTATION, MANAGED_BY, Capabilities, Catalog, Path, TableRecord
from .config import CatalogConfig
from .credentials import VendedCredentials
from .declarations import Declarations
from .errors import display, invalid, unsupported
from .records import FOREIGN_COMMITS, PUBLISH_COLUMNS, ForeignCommits, parse_publish_columns
from .requests import parse_table_namespace
from .secrets import SecretRenewal
from .storage.manifests import BaseLocations


@dataclass(frozen=True)
class Connection:
    """The catalog and configuration that all operations of one namespace share."""

    catalog: Catalog
    config: CatalogConfig
    secrets: SecretRenewal[CatalogConfig] = field(init=False, compare=False, repr=False)
    """Has the configuration with the current secrets, such as those of `storage.*`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", self.config.renewal)

    @property
    def capabilities(self) -> Capabilities:
        return self.catalog.capabilities

    @cached_property
    def default_namespace(self) -> Path:
        """The namespace of tables identified by a single name; empty for none.

        Raises:
            InvalidInputError: (13) the property `default-namespace` is not valid for this catalog.
        """
        text = self.config.default_namespace
        if text is None:
            return ()
        try:
            return parse_table_namespace(names.parts_of(text), self.capabilities)
        except InvalidInputError as error:
            raise invalid(f"Property 'default-namespace': {error}") from error

    @property
    def named_namespaces(self) -> tuple[Path, ...]:
        """The namespaces to read even if the catalog does not list them: the default one."""
        return (self.default_namespace,) if self.default_namespace else ()

    def table_namespace_path(self, parts: Sequence[str] | None) -> Path:
        """Return the path of the namespace whose tables a request names. Raises InvalidInput."""
        return parse_table_namespace(parts, self.capabilities, self.default_namespace)

    def find_table(self, path: Path) -> TableRecord | None:
        """Return any entry, or None if it or its namespace does not exist."""
        try:
            return self.catalog.load_table(path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return None

    def require_manageable(self, what: str) -> None:
        """Raise UnsupportedOperation (0) if the catalog cannot hold versions of ``what``."""
        reason = self.capabilities.no_managed_tables or self.capabilities.no_alter
        if reason:
            raise unsupported(f"{what} cannot be managed by the catalog: {reason}")

    def check_namespace_management(self, path: Path, properties: Mapping[str, str]) -> None:
        """Check the properties that say how the versions of a namespace's new tables are managed.

        Raises:
            UnsupportedOperationError: (0) the catalog should hold them, and cannot.
            InvalidInputError: (13) `FOREIGN_COMMITS` or `PUBLISH_COLUMNS` has an unknown value.
        """
        if properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
            self.require_manageable(f"Tables of namespace '{display(path)}'")
        if FOREIGN_COMMITS in properties:
            ForeignCommits.parse(properties[FOREIGN_COMMITS])
        if PUBLISH_COLUMNS in properties:
            parse_publish_columns(properties[PUBLISH_COLUMNS])

    @cached_property
    def credentials(self) -> VendedCredentials:
        return VendedCredentials(self.catalog, self.config, self.named_namespaces)

    @cached_property
    def base_locations(self) -> BaseLocations:
        return BaseLocations()

    @cached_property
    def declarations(self) -> Declarations:
        return Declarations(self.config.declare_grace)
