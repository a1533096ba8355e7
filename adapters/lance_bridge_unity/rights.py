"""The rights that requests take, for messages: the open-source server says only "Access denied".

Databricks names the right that is missing, and has others.
"""

from __future__ import annotations

from lance_bridge.catalog import NamespaceRecord, TableRecord

from .capabilities import STORAGE_ROOT

READ_TABLE = (
    "It takes USE CATALOG on the catalog, USE SCHEMA on the schema, and SELECT or MODIFY on the "
    "table"
)
CREATE_TABLE = (
    "It takes USE CATALOG on the catalog, USE SCHEMA and CREATE TABLE on the schema, and CREATE "
    "EXTERNAL TABLE on the external location that contains the table, if there is one. The "
    "server also refuses a location that overlaps the location of another table or volume, even "
    "one that you may not see"
)
DROP_TABLE = (
    "It takes USE CATALOG on the catalog and USE SCHEMA on the schema for the owner of the table; "
    "the owner of the schema or the catalog may do it, too"
)
RENAME_TABLE = f"{DROP_TABLE}. It also takes USE SCHEMA and CREATE TABLE on the schema"
READ_NAMESPACE = "It takes USE CATALOG on the catalog, and for a schema USE SCHEMA on it"
DROP_NAMESPACE = "It takes to be its owner, for a schema with USE CATALOG on the catalog"

_CREATE = (
    "It takes CREATE CATALOG on the metastore",
    "It takes USE CATALOG and CREATE SCHEMA on the catalog",
)


def create_namespace(record: NamespaceRecord, level: int) -> str:
    """Return what it takes to create a catalog (level 1) or a schema (level 2)."""
    text = _CREATE[level - 1]
    if STORAGE_ROOT[level - 1] in record.properties:
        text += (
            ", and for its storage root CREATE MANAGED STORAGE on the external location that has it"
        )
    return text


def credentials(record: TableRecord, *, write: bool) -> str:
    """Return what temporary credentials take, for a table or for the location of a new one."""
    if record.identity is None:
        databricks = "EXTERNAL USE LOCATION"
        open_source = (
            "CREATE EXTERNAL TABLE on an external location that contains the table"
            if write
            else "READ FILES on an external location that contains the table"
        )
    else:
        databricks = "EXTERNAL USE SCHEMA"
        open_source = (
            "SELECT and MODIFY on the table, or to own it, besides USE CATALOG and USE SCHEMA"
            if write
            else "SELECT on the table, or to own it, besides USE CATALOG and USE SCHEMA"
        )
    return (
        f"On Databricks it takes the privilege {databricks}, and external access enabled on the "
        f"metastore; on the open-source server {open_source}"
    )
