"""A location as a catalog of one table, so that what works on entries works on locations, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import Capabilities, Catalog, NameRule, NamespaceRecord, Path, TableRecord
from lance_bridge.config import CatalogConfig
from lance_bridge.errors import unsupported
from lance_bridge.location import check

_ANY = NameRule("table", re.compile(r".+", re.DOTALL), "a location", 10_000)
_NO_NAMES = "a location has no catalog: give the table's name in one"


class LocationCatalog(Catalog):
    """Its one table is named by its location, and has no entry that could change."""

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

    def create_namespace(self, record: NamespaceRecord) -> None:  # noqa: ARG002 - refused
        _refuse()

    def alter_namespace(self, record: NamespaceRecord) -> None:  # noqa: ARG002 - refused
        _refuse()

    def drop_namespace(self, path: Path) -> None:  # noqa: ARG002 - refused
        _refuse()

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

    def alter_table(self, record: TableRecord) -> None:  # noqa: ARG002 - refused
        _refuse()

    def drop_table(self, record: TableRecord) -> None:  # noqa: ARG002 - refused
        _refuse()

    def close(self) -> None:
        """Nothing is open."""


def _refuse() -> NoReturn:
    raise unsupported(f"Not supported: {_NO_NAMES}")


def bridge_for_location(location: str, storage: Mapping[str, str]) -> tuple[Bridge, TableRecord]:
    """Return the location as a table of a catalog of its own.

    Raises:
        InvalidInputError: (13) it is no location that Lance can be at.
    """
    check(location)
    catalog = LocationCatalog()
    config = CatalogConfig.model_validate({"storage.*": dict(storage)})
    return Bridge(catalog, config), catalog.load_table((location,))
