"""What each version of a table changed: its operation, and the rows that it added and removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import lance
from lance_namespace.errors import TableVersionNotFoundError

from ...errors import translate_lance_errors
from ...lance_datasets import transaction_at
from ...requests import Ref
from ...table import Table

_KEEPS_ROWS = {"Rewrite", "Clone"}
"""Operations that write rows to other fragments without changing them."""

Fragments = Mapping[int, int]
"""The number of rows of each fragment, without deleted ones, by the fragment's id."""


@dataclass(frozen=True)
class VersionChange:
    """What a version changed."""

    operation: str = ""
    """The operation of its transaction; empty if it is not recorded."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that its writer recorded with the transaction."""
    added: int | None = None
    """Rows that it added; None if the previous version no longer exists."""
    removed: int | None = None
    """Rows that it removed. An updated row counts as both added and removed."""


def change_of_version(table: Table, version: int, branch: str | None = None) -> VersionChange:
    """Return what a version of the main branch, or of another branch, changed.

    Raises:
        TableVersionNotFoundError: (11)
        TableBranchNotFoundError: (22)
        InvalidTableStateError: (19) the table is declared and holds no data yet.
    """
    dataset = table.open(Ref.of(version, branch=branch))
    with translate_lance_errors(f"The transaction of version {version} could not be read"):
        read = transaction_at(dataset, version)
    operation = type(read.operation).__name__ if read is not None else ""
    added: int | None = 0
    removed: int | None = 0
    if operation not in _KEEPS_ROWS:
        before = _fragments_before(table, version, branch)
        added, removed = _count_changes(before, _fragments(dataset))
    properties = dict(read.transaction_properties or {}) if read is not None else {}
    return VersionChange(operation, properties, added, removed)


def _fragments_before(table: Table, version: int, branch: str | None) -> Fragments | None:
    if version == 1:
        return {}
    try:
        return _fragments(table.open(Ref.of(version - 1, branch=branch)))
    except TableVersionNotFoundError:
        return None


def _fragments(dataset: lance.LanceDataset) -> Fragments:
    return {each.fragment_id: each.count_rows() for each in dataset.get_fragments()}


def _count_changes(before: Fragments | None, after: Fragments) -> tuple[int | None, int | None]:
    """Return how many rows were added and removed. Lance never changes a row in place."""
    if before is None:
        return None, None
    added = sum(rows for each, rows in after.items() if each not in before)
    removed = sum(rows - after.get(each, 0) for each, rows in before.items())
    return added, removed
