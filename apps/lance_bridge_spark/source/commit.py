"""Committing the files of a write exactly once, even if a reply is lost or the call is repeated.

A write has one transaction with a unique identifier, generated before its tasks start. Before each
attempt, and after a failed one, the versions since the write began are searched for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance
from lance.fragment import FragmentMetadata
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from lance_bridge.errors import (
    LANCE_ERRORS,
    OutcomeUnknownError,
    concurrent_modification,
    first_line,
    translate_lance_errors,
)
from lance_bridge.lance_datasets import find_commit
from lance_bridge.records import ENTRY_ID
from lance_bridge.requests import Ref

from ..addresses import TableAddress
from ..lookup import find_table

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

Operation = Callable[[list[FragmentMetadata]], Any]
"""Builds the operation of a transaction from the new fragments."""

NO_FRAGMENT = 2**32 - 1
"""An id that no fragment has. Changes that require an empty table remove it, so that two of them
conflict: Lance detects conflicts between commits that name the same fragment."""


def fragments_to_guard(
    dataset: lance.LanceDataset, exclude: Collection[int]
) -> list[FragmentMetadata]:
    """Return the fragments that a change does not modify, and that no other writer may modify.

    Args:
        exclude: The ids of the fragments that the change modifies or removes.
    """
    return [each.metadata for each in dataset.get_fragments() if each.fragment_id not in exclude]


@dataclass(frozen=True)
class Commit:
    """A commit that has not been sent yet: its table, read version and transaction identifier."""

    address: TableAddress
    location: str
    """The location that the tasks wrote to, which must still be the table's."""
    version: int
    uuid: str
    branch: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    """Whether any later version is a conflict."""
    entry: str | None = None
    """The identifier of the table's entry when the write began, if it has one."""

    def open(self) -> tuple[SparkTable, lance.LanceDataset]:
        """Return the current table, opened for writing.

        Raises:
            InvalidTableStateError: (19) another table has its name now.
        """
        table = find_table(self.address)
        if table.uri != self.location:
            raise InvalidTableStateError(
                f"Table '{self.address.name}' was at {self.location} when the write began, and is "
                f"now at {table.record.location}: write again"
            )
        if self.entry is not None and table.record.properties.get(ENTRY_ID) != self.entry:
            raise InvalidTableStateError(
                f"Table '{self.address.name}' is not the one that the write began with, which was "
                "dropped: write again"
            )
        return table, table.open(Ref(branch=self.branch), write=True)

    def run(self, fragments: Iterable[str], operation: Operation) -> int:
        """Commit the fragments (in JSON) of all tasks, and return the new version.

        Raises:
            InvalidTableStateError: (19) another table has its name now.
            LanceNamespaceError: What `commit_once` raises.
        """
        table, dataset = self.open()
        transaction = lance.Transaction(
            read_version=self.version,
            operation=operation([FragmentMetadata.from_json(each) for each in fragments]),
            uuid=self.uuid,
            transaction_properties=dict(self.properties),
        )
        return commit_once(table, dataset, transaction, self.branch, alone=self.alone)


def commit_once(
    table: SparkTable,
    dataset: lance.LanceDataset,
    transaction: lance.Transaction,
    branch: str | None = None,
    *,
    alone: bool = False,
) -> int:
    """Commit a transaction whose identifier is unique, and return its version.

    If it is committed already, return that version.

    Args:
        dataset: Any version of the table, opened for writing.
        branch: The branch of the dataset; None is main.
        alone: Whether any version after the one that was read is a conflict.

    Raises:
        ConcurrentModificationError: (14) a concurrent change conflicts with it.
        InvalidInputError: (13) Lance rejects it.
        OutcomeUnknownError: (17) the reply is lost, and the table cannot be read.
        ServiceUnavailableError: (17)
    """
    name = table.address.name
    with translate_lance_errors(f"The versions of table '{name}' could not be read"):
        done = _find_commit(dataset, transaction)
        is_latest = int(dataset.latest_version) == int(transaction.read_version)
    if done is not None:
        return done
    if alone and not is_latest:
        raise concurrent_modification(table.path)
    options = table.storage_options(write=True)
    # Without retries, Lance does not overwrite a version later than the one that was read.
    strict: dict[str, Any] = {"max_retries": 0} if alone and _is_overwrite(transaction) else {}
    try:
        with table.committing(dataset, "the change is not committed"):
            committed = lance.LanceDataset.commit(
                dataset, transaction, storage_options=options, **strict
            )
    except LanceNamespaceError as error:
        done = _find_after_failure(table, branch, transaction, error)
        if done is None:
            raise
    version = int(committed.version) if done is None else done
    table.note_commit(int(dataset.version), version, transaction.uuid, branch)
    return version


def _is_overwrite(transaction: lance.Transaction) -> bool:
    return isinstance(transaction.operation, lance.LanceOperation.Overwrite)


def _find_commit(dataset: lance.LanceDataset, transaction: lance.Transaction) -> int | None:
    read_version = int(transaction.read_version)
    return find_commit(dataset, lambda each: each.uuid == transaction.uuid, read_version)


def _find_after_failure(
    table: SparkTable,
    branch: str | None,
    transaction: lance.Transaction,
    error: LanceNamespaceError,
) -> int | None:
    try:
        return _find_commit(find_table(table.address).open(Ref(branch=branch)), transaction)
    except (LanceNamespaceError, *LANCE_ERRORS) as unread:
        raise OutcomeUnknownError(
            f"Table '{table.address.name}': whether the change is committed is not known, since "
            f"the table cannot be read after a commit that failed ({first_line(error)}). It is if "
            f"a version has the transaction {transaction.uuid}"
        ) from unread
