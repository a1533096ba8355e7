"""Both ends of a migration: catalogs and directories, connected now and found again later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.errors import invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import catalogs, connect, require_lance_bridge
from lance_bridge.storage import TableStorage

from .plan import Address

DIRECTORY = "dir"
SPARK = "spark"
"""What the address of a Spark session is named."""
_ROOT = "root"


def bridge_of(namespace: LanceBridgeNamespace) -> Bridge:
    """Return what the namespace's operations work with."""
    return namespace._bridge


def address_of(namespace: LanceBridgeNamespace) -> Address:
    """Return how a later run connects to the same catalog; without its secrets."""
    kind = type(namespace)
    is_installed = catalogs().get(namespace.impl) == f"{kind.__module__}.{kind.__qualname__}"
    class_path = f"{kind.__module__}.{kind.__qualname__}"
    given = namespace._properties.items()
    return Address(
        name=namespace.configured_name or (namespace.impl if is_installed else class_path),
        properties={k: str(v) for k, v in given if not kind.config_type.is_secret(k)},
        connection=namespace.namespace_id(),
    )


@contextmanager
def catalog_at(address: Address, secrets: Mapping[str, str]) -> Iterator[LanceBridgeNamespace]:
    """Connect to the catalog that a plan names.

    Raises:
        InvalidInputError: (13) the same name and properties lead to another catalog by now.
    """
    given = {**address.properties, **secrets}
    found = require_lance_bridge(connect(address.name, given), address.name)
    with found:
        if address.connection not in ("", found.namespace_id()):
            raise invalid(
                f"The plan was made for {address.connection}, and '{address.name}' is "
                f"{found.namespace_id()} now: plan anew"
            )
        yield found


@dataclass(frozen=True)
class Directory:
    """A directory of tables, local or in an object store.

    Attributes:
        root: Its location in the spelling for Lance.
        storage: The store, with its options.
    """

    root: str
    storage: TableStorage

    @classmethod
    def at(cls, root: str, options: Mapping[str, str] | None = None) -> Directory:
        """Return a directory, which need not exist. Raises InvalidInput (13): a bad location.

        Args:
            options: Those of the store, as Lance takes them.
        """
        # A whole bucket will do: what is checked is what lies in it.
        locations.check(locations.join(root, "table.lance"))
        return cls(locations.for_lance(root), TableStorage(options or {}))

    @property
    def address(self) -> Address:
        """How a later run finds it; without the secrets among the options."""
        options = {f"{STORAGE_PREFIX}{k}": v for k, v in self.storage.options.items()}
        shown = {k: v for k, v in options.items() if not CatalogConfig.is_secret(k)}
        return Address(name=DIRECTORY, properties={_ROOT: self.root, **shown}, connection=self.root)


@contextmanager
def directory_at(address: Address, secrets: Mapping[str, str]) -> Iterator[Directory]:
    """Yield the directory that a plan names.

    Args:
        secrets: Properties ``storage.<option>``.
    """
    given = {**address.properties, **secrets}
    root = given.pop(_ROOT)
    yield Directory.at(root, {k.removeprefix(STORAGE_PREFIX): v for k, v in given.items()})
