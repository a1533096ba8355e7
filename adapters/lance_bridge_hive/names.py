"""Names in a Hive Metastore: what is allowed, and how a database of a catalog is written."""

from __future__ import annotations

import re

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords, Path

DEFAULT_DATABASE = "default"
HIVES_CATALOG = "hive"
_KEPT = ((DEFAULT_DATABASE,),)
_KEPT_WITH_CATALOGS = ((HIVES_CATALOG,), (HIVES_CATALOG, DEFAULT_DATABASE))

_ALLOWED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_SAYS = (
    "letters, digits and underscores of ASCII (and hyphens, which Hive before 4.0 refuses), "
    "and not begin with a hyphen"
)

_CATALOG = NameRule("catalog", _ALLOWED, _SAYS, 256)
_DATABASE = NameRule("database", _ALLOWED, _SAYS, 128)
_TABLE = NameRule("table", _ALLOWED, _SAYS, 256)

_CATALOG_WORDS = NamespaceWords("catalog.description", "catalog.location-uri")
_DATABASE_WORDS = NamespaceWords("database.description", "database.location-uri", "database.owner")


def capabilities(*, catalog_levels: bool) -> Capabilities:
    """Return what a Hive Metastore can do, with or without the level of catalogs."""
    return Capabilities(
        namespace_levels=(_CATALOG, _DATABASE) if catalog_levels else (_DATABASE,),
        table_rule=_TABLE,
        namespace_words=(_CATALOG_WORDS, _DATABASE_WORDS)[0 if catalog_levels else 1 :],
        folds_case=True,
        atomic_restrict=True,
        makes_directories=True,
        has_partitions=True,
        hides_tables=not catalog_levels,
    )


def is_kept(path: Path, *, catalog_levels: bool) -> bool:
    """Return True for the namespaces that a metastore never drops.

    Without catalogs, a database may be called `hive`, and with them a catalog `default`.
    """
    return path in (_KEPT_WITH_CATALOGS if catalog_levels else _KEPT)


def database_argument(namespace: Path) -> str:
    """Return a database as the calls without a field for the catalog take it."""
    if len(namespace) == 1:
        return namespace[0]
    catalog, database = namespace
    return f"@{catalog}#{database}"


def all_databases_of(catalog: str) -> str:
    """Return the pattern that lists every database of a catalog."""
    return f"@{catalog}#"
