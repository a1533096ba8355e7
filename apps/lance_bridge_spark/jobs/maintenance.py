"""Maintenance of a table: compaction on executors, and clean-up on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
from lance import optimize

from lance_bridge.dataset import DEFAULT_AGE, Cleaned, plan_compaction
from lance_bridge.dataset import clean_up as clean_up_table
from lance_bridge.errors import invalid, translate_lance_errors

from ..addresses import Access, address_of
from ..lookup import find_table
from .tasks import phases, run, send_once

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

_lance: Any = optimize
"""Untyped, because pylance's stub is incomplete."""


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction; the version is the one it read if there was nothing to do."""

    version: int
    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0
    tasks: int = 0


def _rewrite(access: Access, task: str) -> str:
    """Rewrite a group of fragments as one or a few."""
    return str(_lance.CompactionTask.from_json(task).execute(access.open()).json())


def compact(
    spark: Any,
    table: str,
    *,
    target_rows_per_fragment: int = 1024 * 1024,
    materialize_deletions: bool = True,
    materialize_deletions_threshold: float = 0.1,
    batch_size: int | None = None,
    max_bytes_per_file: int | None = None,
    max_source_fragments: int | None = None,
    threads_per_task: int = 1,
) -> Compacted:
    """Rewrite small fragments, and those with many deleted rows, on executors in one commit.

    Args:
        table: ``catalog.db.table``, or a location.
        target_rows_per_fragment: Rows of a fragment; smaller fragments are joined.
        materialize_deletions_threshold: The fraction of deleted rows above which a fragment is
            rewritten, if ``materialize_deletions``.
        batch_size: Rows that a task reads at once. By default they are so few that a task holds
            256 MiB of large rows at most.
        max_source_fragments: The maximum number of fragments to compact, the oldest first.
        threads_per_task: Threads that Lance uses in a task.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) a number is not positive.
        ConcurrentModificationError: (14) rows in these fragments changed concurrently; nothing is
            compacted. Appends do not conflict.
        ServiceUnavailableError: (17)
    """
    _require_positive(
        target_rows_per_fragment=target_rows_per_fragment,
        batch_size=batch_size,
        max_bytes_per_file=max_bytes_per_file,
        max_source_fragments=max_source_fragments,
        threads_per_task=threads_per_task,
    )
    options = {
        "target_rows_per_fragment": target_rows_per_fragment,
        "materialize_deletions": materialize_deletions,
        "materialize_deletions_threshold": materialize_deletions_threshold,
        "num_threads": threads_per_task,
        "batch_size": batch_size,
        "max_bytes_per_file": max_bytes_per_file,
        "max_source_fragments": max_source_fragments,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with phases(f"compact {table}", 3) as progress:
        progress.begin("plan")
        found = find_table(address_of(spark, table))
        dataset = found.open(write=True)
        with translate_lance_errors(f"No compaction of table '{table}' could be planned"):
            plan, given = plan_compaction(dataset, given)
        progress.begin(f"rewrite, {plan.num_tasks()} tasks")
        access = found.access(dataset, write=True)
        tasks = [task.json() for task in plan.tasks]
        what = f"Table '{table}' was not compacted"
        written = run(spark, tasks, partial(_rewrite, access), what)
        progress.begin("commit")
        return _commit(
            found, dataset, [_lance.RewriteResult.from_json(each) for each in written], given
        )


def _commit(
    table: SparkTable,
    dataset: lance.LanceDataset,
    rewrites: list[Any],
    options: dict[str, Any],
) -> Compacted:
    if not rewrites:
        return Compacted(int(dataset.version))
    own = {file.path for each in rewrites for new in each.new_fragments for file in new.files}
    gone = [old for each in rewrites for old in each.original_fragments]
    added = [new for each in rewrites for new in each.new_fragments]

    def send() -> lance.LanceDataset:
        _lance.Compaction.commit(dataset, rewrites, options)
        return dataset

    version = send_once(
        table, dataset, send, lambda other: bool(own & _written_by(other)), "it was not compacted"
    )
    return Compacted(
        version,
        fragments_removed=len(gone),
        fragments_added=len(added),
        files_removed=sum(len(each.files) for each in gone),
        files_added=len(own),
        tasks=len(rewrites),
    )


def _written_by(transaction: Any) -> set[str]:
    """Return the files that a compaction wrote; Lance chooses its transaction's identifier."""
    operation = transaction.operation
    if not isinstance(operation, lance.LanceOperation.Rewrite):
        return set()
    return {f.path for group in operation.groups for new in group.new_fragments for f in new.files}


def _require_positive(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise invalid(f"{name} must be 1 or more, not {value}")


def clean_up(
    spark: Any,
    table: str,
    *,
    older_than: timedelta = DEFAULT_AGE,
    keep_versions: int | None = None,
    dry_run: bool = False,
) -> Cleaned:
    """Delete old versions, the files that only they use, and unreferenced files.

    The latest version and tagged versions are kept. Unreferenced files are kept until they are 7
    days old, because running jobs may have written them. It runs on the driver: it lists files and
    reads manifests, but no data.

    Args:
        spark: The session whose settings name the catalog; None for a location, or a catalog of
            the configuration file.
        table: ``catalog.db.table``, or a location.
        older_than: Delete versions that were replaced at least this long ago; an hour or more,
            because readers of an old version and running jobs need it.
        keep_versions: The number of latest versions to keep in any case.
        dry_run: Whether to delete nothing, and only report what would be deleted.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) the age is unsafe.
        InvalidTableStateError: (19) versions that bypassed the catalog are not decided on.
        ServiceUnavailableError: (17) some files may be deleted; clean up again.
    """
    with phases(f"clean up {table}", 1) as progress:
        progress.begin("explain" if dry_run else "delete")
        found = find_table(address_of(spark, table))
        return clean_up_table(
            found, older_than=older_than, keep_versions=keep_versions, dry_run=dry_run
        )
