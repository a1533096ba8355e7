"""Clean-up: versions that are old, and files that no version names, such as of failed jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from ..errors import invalid
from ..managed import conversion
from ..table import Table

LEAST_AGE = timedelta(hours=1)
"""Readers of an old version and running jobs need theirs for as long."""
DEFAULT_AGE = timedelta(days=14)


@dataclass(frozen=True)
class Cleaned:
    """What a clean-up took away, or would take away."""

    versions: int
    bytes: int
    data_files: int
    index_files: int
    transaction_files: int
    deletion_files: int


def check_ages(older_than: timedelta, keep_versions: int | None) -> None:
    """Refuse what is not safe, before anything is looked at.

    Raises:
        InvalidInputError: (13)
    """
    if older_than < LEAST_AGE:
        raise invalid(f"older_than must be {LEAST_AGE} or more, not {older_than}")
    if keep_versions is not None and keep_versions < 1:
        raise invalid(f"keep_versions must be 1 or more, not {keep_versions}")


def clean_up(
    table: Table,
    *,
    older_than: timedelta = DEFAULT_AGE,
    keep_versions: int | None = None,
    dry_run: bool = False,
) -> Cleaned:
    """Delete old versions, the files that only they have, and files that no version names.

    The latest version and those with a tag always stay. So do files that no version names until
    they are 7 days old: they may be of running jobs.

    Args:
        older_than: Versions go when the next one took their place that long ago; an hour at least,
            because readers of an old version and running jobs need theirs.
        keep_versions: Keep as many of the latest in any case.
        dry_run: Whether to delete nothing, and only tell what would go.

    Raises:
        InvalidInputError: (13) an age that is not safe.
        ServiceUnavailableError: (17) some files may be gone; clean up again.
    """
    check_ages(older_than, keep_versions)
    if table.managed is not None and not dry_run:
        # A commit that was left half done has its manifest under another name still.
        conversion.finish_latest(table)
    dataset = table.open(write=True)
    with table.committing(dataset, "it was not cleaned up"):
        given: dict[str, Any] = {
            "older_than": older_than,
            "retain_versions": max(keep_versions or 1, _in_use(dataset, older_than)),
            "error_if_tagged_old_versions": False,
        }
        if dry_run:
            return _cleaned(dataset.explain_cleanup_old_versions(**given).stats)
        return _cleaned(dataset.cleanup_old_versions(**given))


def _in_use(dataset: Any, age: timedelta) -> int:
    """Return how many versions were the latest at some time since: readers may have any of them.

    Lance goes by when a version was made, however short ago the next one took its place.
    """
    then = datetime.now(timezone.utc) - age
    made = {
        each["version"]: each["timestamp"].astimezone(timezone.utc) for each in dataset.versions()
    }
    first = max((version for version, at in made.items() if at <= then), default=0)
    return sum(version >= first for version in made)


def _cleaned(stats: Any) -> Cleaned:
    return Cleaned(
        versions=stats.old_versions,
        bytes=stats.bytes_removed,
        data_files=stats.data_files_removed,
        index_files=stats.index_files_removed,
        transaction_files=stats.transaction_files_removed,
        deletion_files=stats.deletion_files_removed,
    )
