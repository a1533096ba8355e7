"""The privileges that requests need, for messages.

Both kinds of server have them, under the same names; the open-source server checks them only with
authorization.
"""

from __future__ import annotations

from lance_bridge.catalog import TableRecord

NEEDED_TO_CREATE = (
    "It takes USE CATALOG, USE SCHEMA and CREATE TABLE, and CREATE EXTERNAL TABLE on the external "
    "location that contains the table, if there is one"
)


def needed_for_credentials(record: TableRecord, *, write: bool) -> str:
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
