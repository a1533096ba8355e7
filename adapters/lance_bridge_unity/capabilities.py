"""Capabilities of a Unity Catalog server, and the names that it accepts."""

from __future__ import annotations

import re

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords

_OPEN_SOURCE = re.compile(r"[A-Za-z0-9_@-]+", re.ASCII)
_DATABRICKS = re.compile(r"[\w@-]+")
_MAX_LENGTH = 255

_NO_UPDATE = "the open-source Unity Catalog server has no call that changes a table"
NO_WAREHOUSE = (
    "Databricks creates and alters external tables by SQL only: set the property "
    "'warehouse_id' to a SQL warehouse"
)
_NO_COMPARE_AND_SET = (
    "Databricks sets a table's properties by SQL, which does not compare them with their previous "
    "values"
)
COMMENT = ("catalog.comment", "schema.comment")
"""The properties for the comment of a catalog and of a schema."""
STORAGE_ROOT = ("catalog.storage-root", "schema.storage-root")
"""The properties for the location of managed data."""
_CATALOG_WORDS, _SCHEMA_WORDS = map(NamespaceWords, COMMENT, STORAGE_ROOT)
_WITHIN_SCHEMA = "Unity Catalog renames tables within their schema only"


def capabilities(*, databricks: bool, pinned: bool, has_warehouse: bool) -> Capabilities:
    """Return the capabilities of a server.

    Args:
        databricks: Whether it is Databricks, not the open-source server.
        pinned: Whether a property sets the catalog, so that identifiers do not contain it.
        has_warehouse: Whether it can run SQL.
    """
    catalog, schema, table = (_rule(noun, databricks) for noun in ("catalog", "schema", "table"))
    no_sql = NO_WAREHOUSE if databricks and not has_warehouse else ""
    return Capabilities(
        namespace_levels=(schema,) if pinned else (catalog, schema),
        table_rule=table,
        namespace_words=(_CATALOG_WORDS, _SCHEMA_WORDS)[1 if pinned else 0 :],
        folds_case=databricks,
        atomic_restrict=True,
        no_rename=no_sql,
        no_rename_across=_WITHIN_SCHEMA,
        no_alter=no_sql if databricks else _NO_UPDATE,
        no_managed_tables=_NO_COMPARE_AND_SET if databricks else _NO_UPDATE,
    )


def _rule(noun: str, databricks: bool) -> NameRule:
    if databricks:
        return NameRule(noun, _DATABRICKS, "letters, digits, '_', '@' and '-'", _MAX_LENGTH)
    return NameRule(
        noun, _OPEN_SOURCE, "letters and digits of ASCII, '_', '@' and '-'", _MAX_LENGTH
    )
