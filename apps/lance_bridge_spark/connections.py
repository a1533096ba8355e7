"""Connections to catalogs, and locations as catalogs of one table. Used mainly by the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from lance_namespace import LanceNamespace

from lance_bridge.catalog import Capabilities, Catalog, NameRule, NamespaceRecord, Path, TableRecord
from lance_bridge.config import CatalogConfig, environment
from lance_bridge.connection import Connection
from lance_bridge.errors import unsupported
from lance_bridge.locations import check
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.registry import connect as connect_by_name
from lance_bridge.registry import implementation, require_lance_bridge
from lance_bridge.table import Table


def connect(name: str, properties: Mapping[str, str]) -> LanceBridgeNamespace:
    """Return the namespace of a catalog. See `CatalogAddress.connect`."""
    namespace = _connect_once(name, tuple(sorted(properties.items())))
    return require_lance_bridge(namespace, name, "Give Spark the location of its table")


@lru_cache(maxsize=32)
def _connect_once(name: str, items: tuple[tuple[str, str], ...]) -> LanceNamespace:
    properties = dict(items)
    impl = properties.pop("impl", None)
    if impl is None:
        return connect_by_name(name, properties)
    cls = implementation(impl)  # a class, or a catalog of the configuration file
    if issubclass(cls, LanceBridgeNamespace):
        properties = {**environment(cls.config_type, name), **properties}
    return connect_by_name(impl, properties)


def load_table(
    namespace: LanceBridgeNamespace, path: Path, entry: TableRecord | None = None
) -> Table:
    """Return a table of a catalog, with one call to the catalog.

    Args:
        entry: The table's entry, if it is loaded already; saves the call.
    """
    if entry is not None:
        return Table(namespace.connection, entry)
    return namespace.tables.load(namespace.tables.path_of(path))


# -- locations -------------------------------------------------------------------------------------

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
