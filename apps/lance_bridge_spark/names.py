"""Names of tables as Spark users write them: ``prod.db.table``, or a location."""

from __future__ import annotations

from typing import Any

from lance_bridge.config import named_catalogs
from lance_bridge.errors import invalid
from lance_bridge.names import parts_of

from .addresses import CatalogAddress, TableAddress

CATALOG_SETTINGS = "spark.sql.catalog."
CATALOG_CLASS = "org.lancebridge.spark.LanceCatalog"
"""The class of the SQL catalog; a catalog of the session that names another one is not ours."""


def catalogs_of(spark: Any) -> dict[str, CatalogAddress]:
    """Return the catalogs of ours that a session's settings declare, by name.

    A catalog is ours where ``spark.sql.catalog.<name>`` is the class of the SQL catalog, or where
    ``spark.sql.catalog.<name>.impl`` is set and no class is named. What follows the name in the
    other settings are its properties.
    """
    settings: dict[str, str] = dict(spark.conf.getAll)
    found: dict[str, dict[str, str]] = {}
    foreign: set[str] = set()
    for key, value in settings.items():
        if not key.startswith(CATALOG_SETTINGS):
            continue
        name, _, rest = key.removeprefix(CATALOG_SETTINGS).partition(".")
        if rest:
            found.setdefault(name, {})[rest] = value
        elif value == CATALOG_CLASS:
            found.setdefault(name, {})
        else:
            foreign.add(name)
    ours = {
        name: properties
        for name, properties in found.items()
        if name not in foreign
        and ("impl" in properties or settings.get(CATALOG_SETTINGS + name) == CATALOG_CLASS)
    }
    return {name: CatalogAddress(name, properties) for name, properties in ours.items()}


def address_of(spark: Any, table: str) -> TableAddress:
    """Return where a table is: ``catalog.db.table``, or a location (anything with a slash).

    The catalog is one of the session's settings, or else of the configuration file.

    Raises:
        InvalidInputError: (13) there is no such catalog, or the name is malformed.
    """
    if "/" in table:
        return TableAddress(location=table)
    name, *path = parts_of(table)
    if not path:
        raise invalid(
            f"'{table}' names no catalog: write catalog.namespace.table, or a location with a slash"
        )
    known = catalogs_of(spark)
    if name in known:
        return TableAddress(known[name], tuple(path))
    configured = named_catalogs()
    if name not in configured:
        choices = ", ".join(sorted({*known, *configured})) or "none"
        raise invalid(
            f"There is no catalog '{name}': set {CATALOG_SETTINGS}{name}.impl and its properties, "
            f"or add it to the configuration file; known are {choices}"
        )
    return TableAddress(CatalogAddress(name), tuple(path))
