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
        before, after = _by_id(self._checkout(dataset, version - 1)), _by_id(now)
        if all(_is_same(each, after.get(number)) for number, each in before.items()):
            rows = dict(_all_fragments(now).fragments)
            return Added(tuple((n, rows[n]) for n in after if n not in before))
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


def _is_same(before: FragmentMetadata, after: FragmentMetadata | None) -> bool:
    """Return whether a fragment still has the same rows; they may have additional columns."""
    if after is None or _deleted(before) != _deleted(after):
        return False
    return set(_paths(before)) <= set(_paths(after)) or before == after


def _deleted(fragment: FragmentMetadata) -> Any:
    return fragment.deletion_file and str(fragment.deletion_file)


def _paths(fragment: FragmentMetadata) -> list[str]:
    return [each.path for each in fragment.files]
