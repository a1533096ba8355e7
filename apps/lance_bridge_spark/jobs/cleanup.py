"""Clean-up of a table that Spark knows. It runs on the driver, and is the same as without Spark."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lance_bridge.tables import cleanup
from lance_bridge.tables.cleanup import DEFAULT_AGE, Cleaned

from ..names import address_of
from .progress import phases

__all__ = ["Cleaned", "clean_up"]


def clean_up(
    spark: Any,
    table: str,
    *,
    older_than: timedelta = DEFAULT_AGE,
    keep_versions: int | None = None,
    dry_run: bool = False,
) -> Cleaned:
    """Delete old versions, the files that only they have, and files that no version names.

    The latest version and those with a tag always stay. So do files that no version names until
    they are 7 days old: they may be of running jobs. It runs on the driver: it lists files and
    reads manifests, and no data.

    Args:
        spark: The session whose settings name the catalog; None for a location, or a catalog of
            the configuration file.
        table: ``catalog.db.table``, or a location.
        older_than: Versions go when the next one took their place that long ago; an hour at least,
            because readers of an old version and running jobs need theirs.
        keep_versions: Keep as many of the latest in any case.
        dry_run: Whether to delete nothing, and only tell what would go.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) an age that is not safe.
        ServiceUnavailableError: (17) some files may be gone; clean up again.
    """
    cleanup.check_ages(older_than, keep_versions)
    with phases(f"clean up {table}", 1) as shown:
        shown.begin("explain" if dry_run else "delete")
        found = address_of(spark, table).find()
        return cleanup.clean_up(
            found,
            older_than=older_than,
            keep_versions=keep_versions,
            dry_run=dry_run,
        )
