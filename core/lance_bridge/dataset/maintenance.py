"""Maintenance of a table: compaction of small fragments, and cleanup of old versions and files.

Lance's clean-up reads the manifests of versions, tags and branches. It reads neither the manifests
of shallow clones, which are at other locations, nor those that were staged for a version which is
not committed yet, or quarantined.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import lance
from lance import optimize
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from ..errors import display, invalid, translate_lance_errors
from ..maintenance_policy import LEAST_AGE
from ..managed import conversion, out_of_band
from ..managed.version_directory import ManagedDirectory, managed_directory
from ..managed_state import State
from ..storage.lance_format import parse_manifest
from ..storage.manifests import VersionDirectory
from ..storage.store import TableFiles
from ..table import Table
from ..tables.dropping import LocationIndex
from . import SMALL_FRAGMENT
from .batch_sizes import compaction_limits

# -- files to keep ---------------------------------------------------------------------------------


_ABANDON = "It no longer counts once another version is committed"
_DECIDE = (
    "Make the table managed with `lance-bridge managed begin`, and adopt or discard the version"
)


@dataclass(frozen=True)
class Protection:
    """The files that some manifests name.

    Attributes:
        owner: What needs the files, for messages.
        way_out: What to do so that it no longer needs them.
        stems: The names of data files and deletion files, without endings.
        manifests: The manifests; an index is named in them by the bytes of its UUID.
    """

    owner: str
    way_out: str
    stems: frozenset[str]
    manifests: tuple[bytes, ...]

    @classmethod
    def of(cls, owner: str, way_out: str, manifests: Iterable[bytes]) -> Protection:
        """Return what manifests protect; one that cannot be read protects nothing by itself."""
        kept, stems = tuple(manifests), set()
        for data in kept:
            with suppress(ValueError):
                content = parse_manifest(data)
                stems |= {_stem(each) for each in content.data_files}
                stems |= {each.deletion_file for each in content.fragments if each.deletion_file}
        return cls(owner, way_out, frozenset(stems), kept)

    def needs(self, path: str) -> bool:
        """Return whether one of the manifests names a file, or the directory that it is in."""
        parts = PurePosixPath(path).parts[-3:]
        return any(_stem(part) in self.stems or self._has_index(part) for part in parts)

    def _has_index(self, name: str) -> bool:
        try:
            wanted = uuid.UUID(name).bytes
        except ValueError:
            return False
        return any(wanted in data for data in self.manifests)


def find_protections(table: Table) -> tuple[list[Protection], list[str]]:
    """Return what protects files of a table, and what could not be read and may need some.

    Whether other entries are read, to find clones, is set by `drop.check-sharing`.
    """
    found = list(_uncommitted(table))
    try:
        clones, unread = _clones(table)
    except LanceNamespaceError as error:
        return found, [str(error)]
    return [*found, *clones], unread


def _uncommitted(table: Table) -> Iterator[Protection]:
    """Yield what a writer has staged, and may still commit, and what was quarantined before.

    Storage manages a table again that has been released or deregistered since then.
    """
    managed = table.managed is not None
    directory = managed_directory(table) if managed else ManagedDirectory(table.files(), State(0))
    found = [(name, _ABANDON) for _, name in directory.staged_after_latest()] if managed else []
    found += [(name, _DECIDE) for name in directory.quarantined()] if not managed else []
    for name, way_out in found:
        data = directory.files.read(directory.within(name))
        if data is not None:
            yield Protection.of(f"the manifest {name}", way_out, [data])


def _clones(table: Table) -> tuple[list[Protection], list[str]]:
    if table.connection.config.drop_check == "entries":
        return [], []
    index = LocationIndex(table.connection, [table.record])
    found, unread = index.find_clones(table.record)
    clones = [
        Protection.of(
            f"the shallow clone '{display(path)}'",
            "Drop the clone first",
            chain.from_iterable(_manifests(each) for each in places),
        )
        for path, places in found
    ]
    return clones, [f"'{display(path)}': {error}" for path, error in unread]


def _manifests(files: TableFiles) -> Iterator[bytes]:
    directory = VersionDirectory(files)
    for each in directory.list():
        data = files.read(directory.within(each.name))
        if data is not None:
            yield data


def first_needed(
    protections: Sequence[Protection], paths: Sequence[str]
) -> tuple[Protection, str] | None:
    """Return a file that is needed, and by what, or None."""
    for each in protections:
        path = next(filter(each.needs, paths), None)
        if path is not None:
            return each, path
    return None


def _stem(name: str) -> str:
    return name.partition(".")[0]


# -- maintenance -----------------------------------------------------------------------------------


_lance: Any = optimize
"""Untyped, because pylance's stub is incomplete."""

Progress = Callable[[int, int | None], None]
"""Called with the number of finished tasks and of all tasks."""


@dataclass(frozen=True)
class Compacted:
    """What a compaction did, or would do. If it did nothing, the version is the one it read."""

    version: int
    tasks: int
    fragments_removed: int
    fragments_added: int | None
    """None if it was only planned."""


def compact(
    table: Table,
    *,
    target_rows: int = SMALL_FRAGMENT,
    deleted_share: float | None = None,
    dry_run: bool = False,
    on_progress: Progress = lambda _done, _total: None,
) -> Compacted:
    """Rewrite small fragments, and those with many deleted rows, in this process and one commit.

    No row changes.

    Args:
        target_rows: Rows of a fragment; smaller ones are joined.
        deleted_share: The share of deleted rows above which a fragment is rewritten; Lance's if
            None.
        on_progress: Also called right before the commit, with all tasks finished; if it raises,
            nothing is committed.
        dry_run: Write nothing, and return what would be done.

    Raises:
        InvalidInputError: (13) a number is not positive.
        ConcurrentModificationError: (14) rows in these fragments were modified concurrently.
        ServiceUnavailableError: (17) the table is unchanged. Files that no version refers to may
            be left, which cleanup deletes.
    """
    if target_rows < 1:
        raise invalid(f"target_rows must be 1 or more, not {target_rows}")
    dataset = table.open(write=True)
    options: dict[str, Any] = {"target_rows_per_fragment": target_rows}
    if deleted_share is not None:
        options["materialize_deletions_threshold"] = deleted_share
    with translate_lance_errors(f"No compaction of table '{table.name}' could be planned"):
        if dry_run:
            # The tasks are the same without limits, for which sizes of blobs would be read.
            plan = _lance.Compaction.plan(dataset, options)
        else:
            plan, options = plan_compaction(dataset, options)
        tasks = list(plan.tasks)
    replaced = sum(len(task.fragments) for task in tasks)
    if dry_run or not tasks:
        return Compacted(int(dataset.version), len(tasks), replaced, None if tasks else 0)
    with table.committing(dataset, "it was not compacted"):
        rewrites = []
        for number, task in enumerate(tasks):
            on_progress(number, len(tasks))
            rewrites.append(task.execute(dataset))
        on_progress(len(tasks), len(tasks))
        metrics = _lance.Compaction.commit(dataset, rewrites, options)
    return Compacted(
        int(dataset.version), len(tasks), metrics.fragments_removed, metrics.fragments_added
    )


def plan_compaction(
    dataset: lance.LanceDataset, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return Lance's plan of a compaction, and its options with limits for large rows.

    Args:
        options: Lance's options, which precede the limits.

    Raises what pylance raises.
    """
    plan = _lance.Compaction.plan(dataset, options)
    limits = compaction_limits(dataset, plan.tasks)
    if not limits:
        return plan, options
    options = {**limits, **options}
    return _lance.Compaction.plan(dataset, options), options


def optimize_indices(table: Table) -> int:
    """Add the rows that no index has yet to all indices, and return the version.

    Raises:
        ConcurrentModificationError: (14) the rows or the indices were changed concurrently.
        ServiceUnavailableError: (17) the indices are unchanged.
    """
    dataset = table.open(write=True)
    with table.committing(dataset, "its indices were not optimized"):
        dataset.optimize.optimize_indices()
    return int(dataset.version)


DEFAULT_AGE = timedelta(days=14)


_MOST_FILES = 1 << 31
"""More files than a clean-up deletes."""


@dataclass(frozen=True)
class Cleaned:
    """What a cleanup deleted, or would delete.

    Attributes:
        kept: Why some old versions stay: tags, branches, and shallow clones.
        unread: What could not be read, and may be a shallow clone that needs files of the table.
    """

    versions: int
    bytes: int
    data_files: int
    index_files: int
    transaction_files: int
    deletion_files: int
    kept: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def check_ages(older_than: timedelta, keep_versions: int | None) -> None:
    """Check the options of a cleanup. Raises InvalidInput (13)."""
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
    """Delete old versions, the files that only they use, and files that no version refers to.

    The latest version, tagged versions, and those that branches and shallow clones need are always
    kept. Files that no version refers to are kept until they are 7 days old, because a running job
    may need them.

    Args:
        older_than: A version is deleted if the next one is at least this old; see `LEAST_AGE`.
        keep_versions: How many of the latest versions to keep in any case.
        dry_run: Delete nothing, and return what would be deleted.

    Raises:
        InvalidInputError: (13) an option that is not safe.
        InvalidTableStateError: (19) versions that bypassed the catalog are not decided on, or a
            shallow clone or a staged manifest needs a file that no version names.
        PermissionDeniedError: (15) or another error: the latest version has no final name yet.
        ServiceUnavailableError: (17) some files may be deleted already; retry.
    """
    check_ages(older_than, keep_versions)
    if table.managed is not None and not dry_run:
        table = conversion.require_finished(table)
    dataset = table.open(write=True)
    if table.managed is not None:
        out_of_band.require_decided(table)
    protections, unread = find_protections(table)
    with translate_lance_errors(f"The versions of table '{table.name}' could not be read"):
        listed: Any = dataset.versions()
        made = {each["version"]: each["timestamp"] for each in listed}
        retained = max(keep_versions or 1, count_in_use(made, older_than))
        kept, tagged = retained, _tagged(dataset)
        while protections and (needed := _first_deleted(dataset, older_than, kept, protections)):
            if kept >= len(made):
                raise InvalidTableStateError(
                    f"Table '{table.name}' is not cleaned up: {needed[1]} would be deleted, which "
                    f"{needed[0].owner} needs. {needed[0].way_out}"
                )
            kept = min(2 * kept, len(made))
    reasons = [
        f"version {version} has the tag '{tag}'"
        for version in sorted(made)[:-kept]
        for tag in tagged.get(version, ())
    ]
    if kept > retained:
        first, owners = sorted(made)[-kept], ", ".join(each.owner for each in protections)
        reasons.append(f"the versions from {first} have files that are needed by {owners}")
    given = _arguments(older_than, kept)
    with table.committing(dataset, "it was not cleaned up"):
        plan = dataset.explain_cleanup_old_versions(**given)
        reasons += [
            f"version {each.referenced_version} has the branch '{each.name}'"
            for each in plan.referenced_branches
        ]
        stats = plan.stats if dry_run else dataset.cleanup_old_versions(**given)
        return _to_cleaned(stats, reasons, unread)


def _arguments(older_than: timedelta, retained: int) -> dict[str, Any]:
    return {
        "older_than": older_than,
        "retain_versions": retained,
        "error_if_tagged_old_versions": False,
    }


def _first_deleted(
    dataset: Any, older_than: timedelta, retained: int, protections: Sequence[Protection]
) -> tuple[Protection, str] | None:
    """Return a file that a clean-up would delete although it is needed, and by what."""
    plan = dataset.explain_cleanup_old_versions(
        **_arguments(older_than, retained), include_files=True, max_files=_MOST_FILES
    )
    return first_needed(protections, [each.path for each in plan.candidate_files])


def _tagged(dataset: Any) -> dict[int, list[str]]:
    """Return the tags of versions of main."""
    found: dict[int, list[str]] = {}
    for tag, content in dataset.tags.list().items():
        if content.get("branch") is None:
            found.setdefault(content["version"], []).append(tag)
    return found


def count_in_use(made: Mapping[int, datetime], age: timedelta) -> int:
    """Return how many versions were the latest at some time within an age: readers may use them.

    Lance itself considers only the age of a version, not the age of the next one.

    Args:
        made: When each version was made.
    """
    start = datetime.now(timezone.utc) - age
    before = (version for version, at in made.items() if at.astimezone(timezone.utc) <= start)
    first = max(before, default=0)
    return sum(version >= first for version in made)


def _to_cleaned(stats: Any, kept: Sequence[str], unread: Sequence[str]) -> Cleaned:
    return Cleaned(
        versions=stats.old_versions,
        bytes=stats.bytes_removed,
        data_files=stats.data_files_removed,
        index_files=stats.index_files_removed,
        transaction_files=stats.transaction_files_removed,
        deletion_files=stats.deletion_files_removed,
        kept=tuple(kept),
        unread=tuple(unread),
    )
