"""Maintenance of a table: compaction of small fragments, and cleanup of old versions and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from lance import optimize

from ..errors import invalid
from ..lance_errors import translate_lance_errors
from ..managed import conversion
from ..table import Table
from . import SMALL_FRAGMENT

_lance: Any = optimize
"""Untyped: pylance's stub has not all that the module has."""

Told = Callable[[int, int | None], None]
"""Is told how many of how many tasks are done."""


@dataclass(frozen=True)
class Compacted:
    """What a compaction did, or would do; its version is the one that it read where nothing was."""

    version: int
    tasks: int
    fragments_removed: int
    fragments_added: int | None
    """None where it was only planned."""


def compact(
    table: Table,
    *,
    target_rows: int = SMALL_FRAGMENT,
    dry_run: bool = False,
    told: Told = lambda _done, _total: None,
) -> Compacted:
    """Rewrite small fragments, and those with many deleted rows, one after another; one commit.

    Args:
        target_rows: Rows of a fragment; smaller ones are joined.
        dry_run: Whether to write nothing, and only tell what would be.

    Raises:
        InvalidInputError: (13) a number is not positive.
        ConcurrentModificationError: (14) rows in these fragments changed meanwhile.
        ServiceUnavailableError: (17) the table is as it was; files that no version names may be
            left, which clean-up deletes.
    """
    if target_rows < 1:
        raise invalid(f"target_rows must be 1 or more, not {target_rows}")
    options = {"target_rows_per_fragment": target_rows}
    dataset = table.open(write=True)
    with translate_lance_errors(f"No compaction of table '{table.name}' could be planned"):
        tasks = list(_lance.Compaction.plan(dataset, options).tasks)
    replaced = sum(len(task.fragments) for task in tasks)
    if dry_run or not tasks:
        return Compacted(int(dataset.version), len(tasks), replaced, None if tasks else 0)
    with table.committing(dataset, "it was not compacted"):
        rewrites = []
        for number, task in enumerate(tasks):
            told(number, len(tasks))
            rewrites.append(task.execute(dataset))
        told(len(tasks), len(tasks))
        metrics = _lance.Compaction.commit(dataset, rewrites, options)
    return Compacted(
        int(dataset.version), len(tasks), metrics.fragments_removed, metrics.fragments_added
    )


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
