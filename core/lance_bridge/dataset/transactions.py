"""Transactions of a table: Lance's record of each commit.

A commit writes ``_transactions/<version it read>-<id>.txn`` and then a manifest that names it. The
record of a commit never changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

import lance
from lance_namespace.errors import TableVersionNotFoundError, TransactionNotFoundError
from lance_namespace_urllib3_client.models import AlterTransactionAction

from ..errors import LANCE_ERRORS, invalid, translate_lance_errors, unsupported
from ..managed.commits import CatalogCommit, commit_batch
from ..records import FOREIGN_COMMITS, ForeignCommits
from ..requests import Ref
from ..storage.manifests import Manifest, Staged, VersionDirectory
from ..storage.store import TableFiles
from ..table import Table
from ..transaction_versions import transaction_at
from . import versions
from .versions import branches_of, directory_of

# -- transactions ----------------------------------------------------------------------------------


_DIRECTORY = "_transactions"
_VERSION_DIGITS = 20
_FILE = re.compile(r"(\d+)-([0-9a-fA-F-]{36})(?:\.txn)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Status(str, Enum):
    """The status of a transaction, as the API spells it."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELED = "Canceled"

    @classmethod
    def parse(cls, text: str | None) -> Status:
        """Return a status written in any letter case. Raises InvalidInput (13)."""
        found = [each for each in cls if each.value.lower() == (text or "").lower()]
        if not found:
            raise invalid(f"Status of a transaction cannot be {(text or '')[:60]!r}")
        return found[0]


@dataclass(frozen=True)
class Transaction:
    """The known facts about one transaction."""

    id: str
    status: Status
    properties: Mapping[str, str]


def describe(table: Table, name: str) -> Transaction:
    """Return a transaction by its id, by the name of its file, or by the version that it made.

    A transaction that has a file but no version yet counts as running: its writer may commit it
    at any time, or never.

    Raises:
        TransactionNotFoundError: (10) also if it may have made a version that was deleted.
        InvalidInputError: (13) the name has none of these forms.
    """
    dataset = table.open()
    files = table.files()
    if name.isascii() and name.isdigit():
        main = VersionChain(dataset, files, _directory(table, files, None))
        # Python refuses to convert more than 4,300 digits; Lance's numbers have at most 20.
        version = int(name) if len(name) <= _VERSION_DIGITS else 0
        found = main.transaction_of(version) if version in main.present else None
        return found or _raise_not_found(table, name)
    uuid = _parse_uuid(name)
    for branch in (None, *sorted(branches_of(dataset))):
        at = dataset if branch is None else table.open(Ref(branch=branch))
        chain = VersionChain(at, files, _directory(table, files, branch), branch)
        found = _find(table, chain, uuid)
        if found is not None:
            return found
    return _raise_not_found(table, name)


class VersionChain:
    """The versions of main or of a branch, each made by a transaction."""

    def __init__(
        self,
        dataset: lance.LanceDataset,
        files: TableFiles,
        directory: VersionDirectory,
        branch: str | None = None,
    ) -> None:
        self.branch = branch
        self.present = [each.version for each in directory.list()]
        self._dataset = dataset
        self._files = files

    def transaction_of(self, version: int) -> Transaction | None:
        """Return the transaction of an existing version, or None if it is not recorded."""
        with translate_lance_errors(f"The transaction of version {version} could not be read"):
            read = transaction_at(self._dataset, version)
        return None if read is None else _from_version(read, version, self.branch)

    def find_read_version(self, uuid: str) -> int | None:
        """Return the version that a transaction read, or None if it has no file."""
        inside = f"tree/{self.branch}/{_DIRECTORY}" if self.branch else _DIRECTORY
        for meta in self._files.list(inside):
            file = _FILE.fullmatch(meta["path"].rpartition("/")[2])
            if file and file[2].lower() == uuid:
                return int(file[1])
        return None


def _directory(table: Table, files: TableFiles, branch: str | None) -> VersionDirectory:
    """Return the visible versions, without those that were committed past the catalog."""
    if table.managed is not None:
        return directory_of(table)
    return VersionDirectory(files, branch)


def _parse_uuid(name: str) -> str:
    file = _FILE.fullmatch(name)
    uuid = file[2] if file else name
    if not _UUID.fullmatch(uuid):
        raise invalid(
            f"{name[:60]!r} is not a transaction id: use a UUID, or the version that it made"
        )
    return uuid.lower()


def _find(table: Table, chain: VersionChain, uuid: str) -> Transaction | None:
    """Search the versions of a chain for a transaction, the likely ones first.

    The manifest may name a transaction that has no file.
    """
    read_version = chain.find_read_version(uuid)
    if read_version is None:
        candidates = chain.present[::-1]
    else:
        # The first version of a branch has the number of the version that the branch starts from.
        candidates = [each for each in chain.present if each >= read_version]
    unknown = []
    for version in candidates:
        found = chain.transaction_of(version)
        if found is not None and found.id.lower() == uuid:
            return found
        if found is not None and not found.id:
            unknown.append(version)
    if unknown and read_version is not None:
        raise TransactionNotFoundError(
            f"Transaction '{uuid}' of table '{table.name}' may be the one that made "
            f"version {unknown[0]}, a compaction whose record pylance cannot read"
        )
    return None if read_version is None else _pending(table, chain, uuid, read_version)


def _from_version(read: Any, version: int, branch: str | None) -> Transaction:
    properties = {
        **(read.transaction_properties or {}),
        **({"uuid": read.uuid} if read.uuid else {}),
        "version": str(version),
        "read_version": str(read.read_version),
        "operation": type(read.operation).__name__,
        **({"branch": branch} if branch else {}),
    }
    return Transaction(read.uuid, Status.SUCCEEDED, properties)


def _pending(table: Table, chain: VersionChain, uuid: str, read_version: int) -> Transaction:
    later = [each for each in chain.present if each > read_version]
    if later and later != list(range(read_version + 1, later[-1] + 1)):
        raise TransactionNotFoundError(
            f"Table '{table.name}' has a file of transaction '{uuid}', and the version "
            "that it made, if any, may be among those that were deleted"
        )
    branch = {"branch": chain.branch} if chain.branch else {}
    return Transaction(
        uuid, Status.RUNNING, {"uuid": uuid, "read_version": str(read_version), **branch}
    )


def _raise_not_found(table: Table, name: str) -> NoReturn:
    raise TransactionNotFoundError(f"Table '{table.name}' has no transaction {name[:60]!r}")


# -- altering ------------------------------------------------------------------------------------


def alter(
    table: Table,
    name: str,
    actions: Sequence[AlterTransactionAction],
) -> Transaction:
    """Return a transaction if no action would change it.

    A transaction cannot change once it is written, and only its writer can end it, so an action
    that would change it is refused.

    Raises:
        UnsupportedOperationError: (0) an action would change the transaction.
        InvalidInputError: (13) an action is malformed, or fails by its mode.
        TransactionNotFoundError: (10)
    """
    if not actions:
        raise invalid("actions must not be empty")
    for action in actions:
        _check_action(action)
    transaction = describe(table, name)
    for action in actions:
        refusal = _describe_change(transaction, action)
        if refusal:
            raise unsupported(
                f"Transaction '{transaction.id}' cannot be altered to {refusal}: Lance never "
                "changes the record of a commit, and only its writer can end it"
            )
    return transaction


def _check_action(action: AlterTransactionAction) -> None:
    given = [
        each
        for each in (
            action.set_status_action,
            action.set_property_action,
            action.unset_property_action,
        )
        if each is not None
    ]
    if len(given) != 1:
        raise invalid("Each action must be exactly one of set status, set or unset property")
    if action.set_status_action is not None:
        Status.parse(action.set_status_action.status)
    elif not given[0].key:  # type: ignore[union-attr]  # the other two types have a key
        raise invalid("A property needs a key")


def _describe_change(transaction: Transaction, action: AlterTransactionAction) -> str:
    """Return the change that an action would make, or "". Raises InvalidInput (13)."""
    if action.set_status_action is not None:
        status = Status.parse(action.set_status_action.status)
        return "" if status is transaction.status else f"status {status.value}"
    if action.set_property_action is not None:
        wanted = action.set_property_action
        mode = _parse_mode(wanted.mode, ("overwrite", "fail", "skip"))
        old = transaction.properties.get(wanted.key or "")
        if old is not None and mode == "fail":
            raise invalid(f"Transaction '{transaction.id}' already has a property '{wanted.key}'")
        holds = old is not None and (mode == "skip" or old == wanted.value)
        return "" if holds else f"have property '{wanted.key}'"
    key, text = "", None
    if action.unset_property_action is not None:
        key, text = action.unset_property_action.key or "", action.unset_property_action.mode
    mode = _parse_mode(text, ("skip", "fail"))
    if key in transaction.properties:
        return f"lack property '{key}'"
    if mode == "fail":
        raise invalid(f"Transaction '{transaction.id}' has no property '{key}'")
    return ""


def _parse_mode(text: str | None, known: tuple[str, ...]) -> str:
    mode = (text or known[0]).lower()
    if mode not in known:
        raise invalid(f"Mode {mode[:60]!r} must be one of {', '.join(known)}")
    return mode


# -- the transactions of all versions --------------------------------------------------------------


@dataclass(frozen=True)
class VersionTransaction:
    """The transaction that made a version; only the version is set if it is not recorded."""

    version: int
    read_version: int | None = None
    operation: str | None = None
    uuid: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


_THREADS = 16


def list_transactions(table: Table) -> list[VersionTransaction]:
    """Return the transactions of the versions of the main branch, oldest first.

    A version that is deleted meanwhile is left out.

    Raises:
        InvalidTableStateError: (19) the table is declared and holds no data yet.
        ServiceUnavailableError: (17)
    """
    dataset = table.open()
    directory = _directory(table, table.files(), None)

    def read(version: int) -> VersionTransaction | None:
        try:
            # pylance refuses two calls of one dataset at a time.
            return _of_version(version, transaction_at(copy(dataset), version))
        except LANCE_ERRORS:
            if directory.find(version) is None:
                return None
            raise

    present = [each.version for each in directory.list()]
    what = f"The transactions of table '{table.name}' could not be read"
    with translate_lance_errors(what), ThreadPoolExecutor(_THREADS) as threads:
        return [found for found in threads.map(read, present) if found is not None]


def _of_version(version: int, read: lance.Transaction | None) -> VersionTransaction:
    if read is None:
        return VersionTransaction(version)
    return VersionTransaction(
        version,
        read.read_version,
        type(read.operation).__name__,
        read.uuid or None,
        read.transaction_properties or {},
    )


# -- changes of a version --------------------------------------------------------------------------


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
    fragments: int | None = None
    """The number of fragments of the version; None if unknown."""


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
    count = len(dataset.get_fragments())
    return VersionChange(operation, properties, added, removed, count)


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


# -- versions of several tables --------------------------------------------------------------------


def create_versions(wanted: Sequence[tuple[Table, Staged]]) -> list[Manifest]:
    """Create a version of each table, or none; return their manifests in the same order.

    Raises:
        UnsupportedOperationError: (0) one table is named twice, or one of several is not managed by
            its catalog, or adopts versions that were committed without it.
        OutcomeUnknownError: (17) as `commit_batch`.
        LanceNamespaceError: what `versions.create` raises; nothing is created.
    """
    if len(wanted) == 1:
        return [versions.create(*wanted[0])]
    seen = set()
    for table, _ in wanted:
        if table.path in seen:
            raise unsupported(
                f"A batch can have one version of each table, and this one has two of "
                f"'{table.name}'"
            )
        seen.add(table.path)
        _require_batch_support(table)
    made = commit_batch([_prepare(table, staged) for table, staged in wanted])
    for table, _ in wanted:
        table.publish_after_commit()
    return made


def _require_batch_support(table: Table) -> None:
    """Check that versions of the table can be committed together with those of other tables.

    Raises:
        UnsupportedOperationError: (0)
    """
    table.require_own_versions()
    what = f"Table '{table.name}' cannot be part of a commit of several tables: "
    capabilities = table.connection.capabilities
    reason = capabilities.no_managed_tables or capabilities.no_alter
    if reason:
        raise unsupported(what + reason)
    if table.managed is None:
        raise unsupported(
            f"{what}its versions are managed by its storage, which commits to one table at a time. "
            "Have the catalog manage them (manage_table, or `lance-bridge managed begin`)"
        )
    if table.foreign_commits is ForeignCommits.ADOPT:
        raise unsupported(
            f"{what}with {FOREIGN_COMMITS}=adopt its storage decides which version is the next. "
            "Set it to hide or refuse"
        )


def _prepare(table: Table, staged: Staged) -> CatalogCommit:
    prepared = versions.prepare_creation(table, staged)
    if not isinstance(prepared, CatalogCommit):
        raise TypeError(prepared)
    return prepared
