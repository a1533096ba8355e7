"""The source and target of a migration: their addresses, and the selection of their tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from lance_namespace.errors import NamespaceNotFoundError
from pydantic import Field

from lance_bridge import locations
from lance_bridge.catalog import Capabilities, Path
from lance_bridge.config import STORAGE_PREFIX, CatalogConfig
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display, invalid
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import catalogs, connect, require_lance_bridge
from lance_bridge.storage import TableStorage
from lance_bridge.tables import Tables

from .plan import Address, Options

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
        return cast("Tables", self.source.tables)

    @property
    def target_tables(self) -> Tables:
        """The tables of the target, which must be a catalog."""
        return cast("Tables", self.target.tables)


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


# -- selected tables -------------------------------------------------------------------------------


class Selection(Options):
    """Options of migrations that select tables.

    Attributes:
        include: Shell patterns (``*``, ``?``, ``[…]``) on a table's names joined with dots, such
            as ``sales.*``; case-insensitive. Tables that match one of them are selected.
        exclude: Patterns of the same form. Tables that match one of them are left out.
    """

    include: tuple[str, ...] = Field(default=("*",), min_length=1)
    exclude: tuple[str, ...] = ()

    def selects(self, names: Iterable[str]) -> bool:
        """Return whether a table with these names is selected."""
        name = display(tuple(names)).lower()
        return _matches(name, self.include) and not _matches(name, self.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def entries_of(
    tables: Tables, selection: Selection, *, lance_only: bool = False
) -> Iterator[TableEntry]:
    """Yield the selected entries of a catalog, by namespace and name.

    A namespace that a pattern names is read even if the catalog does not list it.

    Args:
        lance_only: Whether to leave out entries that are not Lance tables.
    """
    named = named_namespaces(selection, tables.connection.capabilities)
    for namespace in tables.namespaces(named=named):
        if may_match(namespace, selection):
            with suppress(NamespaceNotFoundError):
                entries = tables.scan(namespace, lance_only=lance_only)
                yield from (each for each in entries if selection.selects(each.path))


def named_namespaces(selection: Selection, capabilities: Capabilities) -> list[Path]:
    """Return the namespaces that patterns name without a wildcard, such as ``sales.*``."""
    levels = capabilities.levels
    names = (tuple(pattern.split(".")) for pattern in selection.include)
    return [
        tuple(name.lower() for name in each[:levels]) if capabilities.folds_case else each[:levels]
        for each in names
        if len(each) == levels + 1
        and all(
            rule.pattern.fullmatch(name)
            for rule, name in zip(capabilities.namespace_levels, each, strict=False)
        )
    ]


def may_match(namespace: Path, selection: Selection) -> bool:
    """Return False if no table of the namespace can be selected, so that it need not be read.

    A pattern may match if its text before the first wildcard is consistent with the namespace.
    """
    prefix = display(namespace).lower() + "."
    plain = [re.split(r"[*?[]", pattern.lower())[0] for pattern in selection.include]
    return any(each.startswith(prefix) or prefix.startswith(each) for each in plain)
