"""The fragments with new rows that each version of a table adds to the previous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lance
from lance.fragment import FragmentMetadata
from lance_namespace.errors import ConcurrentModificationError, TableVersionNotFoundError

from lance_bridge.errors import LANCE_ERRORS, translate_lance_errors
from lance_bridge.lance_datasets import keeps_rows, transaction_at

from .planning import rows_of

FAIL, SKIP = "fail", "skip"
ON_CHANGE = (FAIL, SKIP)
"""What a stream does at a version that changes or deletes rows: fail, or skip it."""


@dataclass(frozen=True)
class Added:
    """The ids and numbers of rows of a version's new fragments."""

    fragments: tuple[tuple[int, int], ...]


class TableChanges:
    """The new fragments of the versions of one branch of a table, cached by version."""

    def __init__(self, name: str, on_change: str) -> None:
        """Initialize an empty cache.

        Args:
            name: The table's name in messages.
        """
        self._name = name
        self._on_change = on_change
        self._known: dict[int, Added] = {}

    def snapshot(self, dataset: lance.LanceDataset, version: int) -> Added:
        """Return all fragments of a version.

        Raises:
            TableVersionNotFoundError: (11) the version was cleaned up.
        """
        return _all_fragments(self._checkout(dataset, version))

    def of(self, dataset: lance.LanceDataset, version: int) -> Added:
        """Return the fragments that a version adds.

        Raises:
            ConcurrentModificationError: (14) it changes or deletes rows, and `FAIL` is set.
            TableVersionNotFoundError: (11) the version or the previous one was cleaned up.
        """
        if version not in self._known:
            self._known[version] = self._find_added(dataset, version)
        return self._known[version]

    def _find_added(self, dataset: lance.LanceDataset, version: int) -> Added:
        now = self._checkout(dataset, version)
        if version == 1:
            return _all_fragments(now)
        operation = self._operation(now, version)
        if isinstance(operation, lance.LanceOperation.Append):
            # New fragments have the highest ids, so that the previous version may be missing.
            there = sorted(_all_fragments(now).fragments)
            return Added(tuple(there[len(there) - len(list(operation.fragments)) :]))
        if keeps_rows(operation):
            return Added(())
        previous = self._checkout(dataset, version - 1)
        if _keeps_values(previous, now):
            before = {each.fragment_id for each in previous.get_fragments()}
            return Added(tuple(each for each in rows_of(now) if each[0] not in before))
        if self._on_change == SKIP:
            return Added(())
        raise ConcurrentModificationError(
            f"Version {version} of table '{self._name}' changes or deletes rows "
            f"({type(operation).__name__}), and a stream reads rows that are appended: set the "
            f"option on_change to {SKIP} to skip such versions, or start again at a later "
            "start_version"
        )

    def _operation(self, dataset: lance.LanceDataset, version: int) -> Any:
        with translate_lance_errors(f"Version {version} of table '{self._name}' could not be read"):
            transaction = transaction_at(dataset, version)
        return None if transaction is None else transaction.operation

    def _checkout(self, dataset: lance.LanceDataset, version: int) -> lance.LanceDataset:
        if version == dataset.version:
            return dataset
        try:
            return dataset.checkout_version(version)
        except LANCE_ERRORS as error:
            with translate_lance_errors(f"The versions of table '{self._name}' could not be read"):
                known = {each["version"] for each in dataset.versions()}
            if version in known:
                raise
            raise TableVersionNotFoundError(
                f"Version {version} of table '{self._name}' was cleaned up or does not exist, and "
                "the stream has not read it: start again at a later start_version, or keep "
                "versions for longer"
            ) from error


def _all_fragments(dataset: lance.LanceDataset) -> Added:
    return Added(tuple(rows_of(dataset)))


def _by_id(dataset: lance.LanceDataset) -> dict[int, FragmentMetadata]:
    return {each.fragment_id: each.metadata for each in dataset.get_fragments()}


def _keeps_values(before: lance.LanceDataset, after: lance.LanceDataset) -> bool:
    """Return whether a version has all rows of the previous one, with the same values.

    Columns may have been added or dropped. A column of another type has another field id.
    """
    fields, fields_after = _field_ids(before), _field_ids(after)
    if any(fields_after.get(path, field) != field for path, field in fields.items()):
        return False
    kept = set(fields.values()) & set(fields_after.values())
    fragments = _by_id(after)
    return all(
        _is_same(each, fragments.get(number), kept) for number, each in _by_id(before).items()
    )


def _is_same(before: FragmentMetadata, after: FragmentMetadata | None, fields: set[int]) -> bool:
    """Return whether a fragment has the same rows, and the given fields in the same files.

    A backfill of one column keeps the file with the old values for the other columns: only the
    field id of that column moves to a new file.
    """
    if after is None or _deleted(before) != _deleted(after):
        return False
    return _files_by_field(before, fields) == _files_by_field(after, fields)


def _field_ids(dataset: lance.LanceDataset) -> dict[tuple[str, ...], int]:
    """Return the ids of all fields, including nested ones, by path."""
    found: dict[tuple[str, ...], int] = {}
    level: list[tuple[tuple[str, ...], Any]] = [((), dataset.lance_schema.fields())]
    while level:
        parent, fields = level.pop()
        for field in fields:
            path = (*parent, field.name())
            found[path] = field.id()
            level.append((path, field.children()))
    return found


def _files_by_field(fragment: FragmentMetadata, fields: set[int]) -> set[tuple[int, str]]:
    return {(each, file.path) for file in fragment.files for each in file.fields if each in fields}


def _deleted(fragment: FragmentMetadata) -> Any:
    return fragment.deletion_file and str(fragment.deletion_file)
