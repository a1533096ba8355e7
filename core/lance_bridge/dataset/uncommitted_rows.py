"""Appends rows of versions that bypassed the catalog, and that cannot be adopted as they are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence, Set
from typing import Any

import lance
from lance_namespace.errors import InvalidTableStateError

from ..errors import concurrent_modification, invalid, translate_lance_errors
from ..managed import out_of_band
from ..managed.unique_rows import RowsToAppend, UniqueRows
from ..managed.versions import ManagedDirectory, managed_directory
from ..names import first_names
from ..records import ForeignCommits
from ..requests import LATEST
from ..storage.store import discard
from ..table import Table
from .insert import InsertMode, insert
from .rows import Rows

_NAMED = 5
_DETACHED = 1 << 63
"""The bit of the numbers that Lance gives to detached versions: no listing has them."""


def append_uncommitted_rows(table: Table, versions: Sequence[int] = ()) -> int:
    """Append the rows that only uncommitted versions have; return the latest version.

    The last of several versions that build on each other has the rows of all of them. A version is
    deleted once its rows are committed. If this process dies in between, a repetition appends the
    same rows again.

    Args:
        versions: Versions to delete although they have other rows, which were committed in a
            version that is gone: committed versions have deleted or replaced these.

    Raises:
        InvalidInputError: (13) there are no such rows, or storage manages the table.
        ConcurrentModificationError: (14) another client commits.
        LatestVersionGoneError: (19) there is no version to append to.
        InvalidTableStateError: (19) a compaction has joined such rows with others; or a version has
            other rows, and is not named.
        TableSchemaValidationError: (20) the rows of a version do not fit the table's schema; that
            version stays, and all before it.
    """
    managed_directory(table, write=True).require_intact()
    out_of_band.quarantine(table)
    directory = managed_directory(table.reloaded(), write=True)
    uncommitted = directory.every_uncommitted()
    found = RowsToAppend.of(directory, uncommitted)
    _require_named(table, found, versions)
    if not (found.unique or found.left):
        remedy = f": {out_of_band.DELETE}" if uncommitted else ""
        raise invalid(
            f"Table '{table.name}' has no rows that only uncommitted versions have{remedy}"
        )
    version = directory.state.version
    appended: set[str] = set()
    _delete(directory, found, appended)
    for each in found.unique:
        rows = Rows.from_data(_read(table, directory, each))
        target = _Accepting(table.connection, table.record).reloaded()
        version = insert(target, rows, InsertMode.APPEND, LATEST).version
        appended |= each.data_files
        _delete(directory, found, appended)
    return version


def _require_named(table: Table, found: RowsToAppend, versions: Sequence[int]) -> None:
    """Check that versions with rows that are not appended are named."""
    left = [each for each in found.left if each.manifest.version not in versions]
    if left:
        numbers = ",".join(sorted({str(each.manifest.version) for each in found.left}))
        raise InvalidTableStateError(
            f"No row is appended to table '{table.name}': nothing else has some rows of "
            f"{first_names(list(map(str, left)), _NAMED)} that committed versions have deleted or "
            "replaced. To append the others, and delete these: `lance-bridge managed adopt "
            f"--append --versions {numbers}`"
        )


def _delete(directory: ManagedDirectory, found: RowsToAppend, appended: Set[str]) -> None:
    done = found.without_others(appended)
    directory.files.remove([directory.within(each.name) for each in done])


def _read(table: Table, directory: ManagedDirectory, unique: UniqueRows) -> Any:
    """Return a reader of the rows that only one manifest has.

    Lance opens the manifest under a name that no version has. Given a namespace that names the
    manifest, Lance would copy it to the name of its version, over a committed one.
    """
    data = directory.files.read(directory.within(unique.manifest.name))
    if data is None:
        raise concurrent_modification(table.path)
    number = _DETACHED | secrets.randbits(62)
    path = directory.within(f"d{number}.manifest")
    directory.files.put_new(path, data)
    try:
        with translate_lance_errors(f"{unique} of table '{table.name}' could not be read"):
            storage = lance.dataset(table.uri, storage_options=table.storage_options())
            dataset = storage.checkout_version(number)
            wanted = {each.id for each in unique.fragments}
            fragments = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
            return dataset.scanner(fragments=fragments).to_reader()
    finally:
        discard(directory.files, path)


class _Accepting(Table):
    """Accepts commits while versions are not decided on: their rows are being committed."""

    @property
    def foreign_commits(self) -> ForeignCommits:
        """How versions that bypassed the catalog are handled by this commit."""
        policy = super().foreign_commits
        return ForeignCommits.HIDE if policy is ForeignCommits.REFUSE else policy
