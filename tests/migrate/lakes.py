"""Formats of tables that have snapshots, and how a session of Spark reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass

ICE = "ice"
"""The session's catalog of Iceberg's tables."""


@dataclass(frozen=True)
class Lake:
    """How tables of one format are made.

    Attributes:
        catalog: Spark's name of the catalog that they are in.
        properties: Of a table whose rows are deleted without their files being written again, and
            whose columns can be renamed.
        maintenance: SQL that rewrites the files of ``{table}``, and changes no row.
        forget: SQL after which older snapshots of ``{table}`` cannot be read.
    """

    format: str
    catalog: str
    properties: str
    maintenance: str
    forget: tuple[str, ...]


DELTA = Lake(
    "delta",
    "spark_catalog",
    "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'",
    "OPTIMIZE {table}",
    ("OPTIMIZE {table}", "REORG TABLE {table} APPLY (PURGE)", "VACUUM {table} RETAIN 0 HOURS"),
)
_REWRITE = (
    f"CALL {ICE}.system.rewrite_data_files(table => '{{table}}', "
    "options => map('rewrite-all', 'true'))"
)
ICEBERG = Lake(
    "iceberg",
    ICE,
    "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'",
    _REWRITE,
    (
        _REWRITE,
        f"CALL {ICE}.system.expire_snapshots(table => '{{table}}', "
        "older_than => now(), retain_last => 1)",
    ),
)
