"""The source and target of a migration, and the addresses to reconnect to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lance_bridge import locations
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.errors import invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import catalogs, connect, require_lance_bridge
from lance_bridge.storage import TableStorage
from lance_bridge.tables import Tables

from .plan import Address

DIRECTORY = "dir"
SPARK = "spark"
"""The name in the address of a Spark session."""
_ROOT = "root"


@dataclass(frozen=True)
class Endpoints:
    """A connected source and target, with the addresses that a later run reconnects to.

    Attributes:
        source: A namespace, a `Directory` or a Spark session; likewise the target.
    """

    source: Any
    target: Any
    source_address: Address
    target_address: Address

    @property
    def source_tables(self) -> Tables:
        """The tables of the source, which must be a catalog."""
        tables: Tables = self.source.tables
        return tables

    @property
    def target_tables(self) -> Tables:
        """The tables of the target, which must be a catalog."""
        tables: Tables = self.target.tables
        return tables


def address_of(namespace: LanceBridgeNamespace) -> Address:
    """Return the address by which a later run connects to the same catalog, without secrets."""
    found = type(namespace)
    class_path = f"{found.__module__}.{found.__qualname__}"
    is_installed = catalogs().get(namespace.impl) == class_path
    given = namespace.properties.items()
    return Address(
        name=namespace.configured_name or (namespace.impl if is_installed else class_path),
        properties={k: str(v) for k, v in given if not found.config_type.is_secret(k)},
        connection=namespace.describe_connection(),
    )


@contextmanager
def catalog_at(address: Address, secrets: Mapping[str, str]) -> Iterator[LanceBridgeNamespace]:
    """Connect to the catalog at the address of a plan.

    Raises:
        InvalidInputError: (13) the address now leads to another catalog.
    """
    given = {**address.properties, **secrets}
    found = require_lance_bridge(connect(address.name, given), address.name)
    with found:
        if address.connection not in ("", found.describe_connection()):
            raise invalid(
                f"The plan was made for {address.connection}, and '{address.name}' is "
                f"{found.describe_connection()} now: plan again"
            )
        yield found


@dataclass(frozen=True)
class Directory:
    """A directory of tables, local or in an object store.

    Attributes:
        root: Its location in the form that Lance uses.
        storage: The store and its options.
    """

    root: str
    storage: TableStorage

    @classmethod
    def at(cls, root: str, options: Mapping[str, str] | None = None) -> Directory:
        """Return a directory, which need not exist. Raises InvalidInput (13): a bad location.

        Args:
            options: Storage options, as Lance accepts them.
        """
        # Check the location of a table in it, because the root may be a whole bucket.
        locations.check(locations.join(root, "table.lance"))
        return cls(locations.for_lance(root), TableStorage(options or {}))

    @property
    def address(self) -> Address:
        """The address by which a later run finds the directory, without secret options."""
        options = {f"{STORAGE_PREFIX}{k}": v for k, v in self.storage.options.items()}
        shown = {k: v for k, v in options.items() if not CatalogConfig.is_secret(k)}
        return Address(name=DIRECTORY, properties={_ROOT: self.root, **shown}, connection=self.root)


@contextmanager
def directory_at(address: Address, secrets: Mapping[str, str]) -> Iterator[Directory]:
    """Yield the directory at the address of a plan.

    Args:
        secrets: Properties ``storage.<option>``.
    """
    given = {**address.properties, **secrets}
    root = given.pop(_ROOT)
    yield Directory.at(root, {k.removeprefix(STORAGE_PREFIX): v for k, v in given.items()})
