"""Alters and renames entries, with compare-and-set by the entry's guard if it has one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from thrift.Thrift import TException

from lance_bridge.catalog import Path, TableRecord
from lance_bridge.errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    unsupported,
)
from lance_bridge.records import ENTRY_ID

from . import mapping
from .calls import Calls
from .capabilities import database_argument
from .commit_records import RECORDS, CommitRecords, without_latest_version
from .errors import is_a, refuse_long_values, text_of
from .guard import (
    MODIFIED,
    PARAMETER,
    PARTITION,
    ParameterGuard,
    alter_condition,
    guard_of,
    without_statistics,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Requirements:
    """The guard of an entry, and the revision that a change is based on."""

    guard: str
    revision: str | None


class TableChanges:
    """Alters and renames entries. Raises Thrift errors unchanged, except where documented."""

    def __init__(self, calls: Calls, load: Callable[[Path], Any], records: CommitRecords) -> None:
        self._calls = calls
        self._load = load
        self._parameter = ParameterGuard(calls)
        self._records = records

    def commit_guard(self, record: TableRecord) -> str:
        """Return the guard that this metastore supports for the entry, without changing it.

        Raises:
            UnsupportedOperationError: it cannot.
            TableNotFoundError
        """
        path = record.path
        reason = ""
        try:
            reason = self._parameter.find_problem(path, self._load)
            if not reason:
                return PARAMETER
            self._records.check_support(path, self._load(path))
        except (InvalidTableStateError, UnsupportedOperationError) as error:
            first = f"it {reason}, and " if reason else ""
            raise unsupported(
                f"The metastore cannot compare and set table '{display(path)}': {first}{error}"
            ) from error
        return PARTITION

    def alter(self, record: TableRecord, ownership: Mapping[str, str] | None = None) -> None:
        """Replace an entry's location and properties.

        Args:
            ownership: Fields of `mapping.ownership_of` to set; None for an external entry.

        Raises:
            TableNotFoundError
            ConcurrentModificationError: it was modified concurrently, if that can be detected.
            InvalidTableStateError: its guard is unknown, or not supported by this metastore.
        """
        table, required = self._load_unchanged(record)
        changed = mapping.updated_entry(self._calls.types, table, record)
        if mapping.changes_types(table, changed):
            cleared = mapping.without_columns(table)
            table, required = self._send_first(record.path, table, cleared, required)
        if ownership is not None:
            changed = mapping.with_ownership(changed, ownership)
        try:
            self._send(record.path, table, changed, required)
        except TException as error:
            if is_a(error, "InvalidOperationException"):
                # Hive also raises this for a table that was renamed or dropped since it was
                # loaded, and may have been recreated.
                current = self._load(record.path)
                if mapping.revision_of(current) != record.revision:
                    raise concurrent_modification(record.path) from error
            raise

    def rename(self, record: TableRecord, new_path: Path) -> None:
        """Rename an entry within its Hive catalog. Raises the errors of :meth:`alter`."""
        path = record.path
        loaded, asked = self._load_unchanged(record)
        required = asked if asked.guard else _requirements_without_guard(record, loaded)
        table, own_required = self._make_external(path, loaded, required)
        moved = mapping.with_formats(self._calls.types, table)
        moved.dbName, moved.tableName = new_path[-2], new_path[-1]
        self._send(path, table, moved, own_required)

    def _make_external(
        self, path: Path, table: Any, required: _Requirements
    ) -> tuple[Any, _Requirements]:
        """Make the entry external, because the metastore moves the files of a managed table.

        Return the entry and the requirements for its next change.
        """
        if mapping.is_external(table):
            return table, required
        return self._send_first(path, table, mapping.as_external(table), required)

    def _send_first(
        self, path: Path, table: Any, changed: Any, required: _Requirements
    ) -> tuple[Any, _Requirements]:
        """Make the first of two changes; return the entry and the requirements for the next."""
        revision = self._send(path, table, changed, required)
        found = self._load(path)
        known = revision if required.guard else mapping.revision_of(found)
        next_required = replace(required, revision=known)
        self._require_same(path, found, next_required)
        return found, next_required

    def _load_unchanged(self, record: TableRecord) -> tuple[Any, _Requirements]:
        """Load the entry, and compare it with the record."""
        path = record.path
        table = self._load(path)
        required = _Requirements(guard_of(table, record), record.revision)
        self._require_same(path, table, required)
        if required.guard and required.revision is None:
            self._require_settled(path, table)
        return table, required

    def _require_same(self, path: Path, table: Any, required: _Requirements) -> None:
        """Require the revision that the caller loaded, if the entry has a guard."""
        if required.guard and mapping.revision_of(table) != required.revision:
            raise concurrent_modification(path)

    def _require_settled(self, path: Path, table: Any) -> None:
        """Read an entry without a revision again, in case the first read met a change.

        That read may have returned the time of the change without the rest of it.
        """
        again, key = self._load(path), mapping.comparison_key(table)
        known = (table.parameters or {}).get(key)
        if mapping.revision_of(again) is not None or again.parameters.get(key) != known:
            raise concurrent_modification(path)

    def _condition(self, path: Path, table: Any, required: _Requirements) -> dict[str, str]:
        """Return the condition that the metastore itself checks; Hive 3.1 ignores it."""
        if not required.guard:
            revision = required.revision
            return {} if revision is None else alter_condition(mapping.REVISION, revision)
        key = mapping.comparison_key(table)
        value = (table.parameters or {}).get(key)
        if value is None:
            raise InvalidTableStateError(
                f"The entry of table '{display(path)}' has neither {mapping.REVISION} nor {key}, "
                "so it cannot be compared: alter it once, then convert it"
            )
        return alter_condition(key, value)

    def _send(self, path: Path, table: Any, changed: Any, required: _Requirements) -> str:
        """Replace ``table`` by ``changed`` if it meets ``required``; return the revision."""
        if required.guard == PARTITION:
            return self._add_record(path, table, changed)
        context = self._calls.types.EnvironmentContext(
            properties=without_statistics(self._condition(path, table, required))
        )
        changed, database = mapping.with_new_revision(changed), database_argument(path[:-1])
        revision = str(mapping.revision_of(changed))
        was_sent = False

        def operation(client: Any) -> None:
            nonlocal was_sent
            if required.guard == PARAMETER:
                self._parameter.require(client, path, table)
            was_sent = True
            client.alter_table_with_environment_context(database, path[-1], changed, context)

        try:
            self._calls.change("alter_table", operation)
        except OutcomeUnknownError as error:
            if not was_sent:
                raise ServiceUnavailableError(
                    f"{error}. It was a probe: nothing was changed"
                ) from (error)
            raise
        except TException as error:
            self._raise_known_error(path, changed, error)
            raise
        return revision

    def _add_record(self, path: Path, table: Any, changed: Any) -> str:
        """Add a commit record, and alter the entry if other clients would see a difference."""
        if RECORDS not in table.parameters:
            table = self._create_records(path, table)
        entry, number = self._records.commit(path, table, changed)
        before = without_latest_version(table)
        revision = mapping.split_revision(table)[0]
        if mapping.visible_fields(before) != mapping.visible_fields(entry):
            try:
                revision = self._alter_entry(path, entry)
            except (TException, LanceNamespaceError) as error:
                if mapping.entry_fields(before) != mapping.entry_fields(entry):
                    raise
                logger.warning(
                    "the entry of %s still has an earlier state: %s", display(path), error
                )
        return mapping.with_record_number(revision, number)

    def _create_records(self, path: Path, table: Any) -> Any:
        """Add the location of commit records to an entry; return the entry before the first one."""
        named = copy.copy(table)
        named.parameters = {**table.parameters, RECORDS: self._records.begin(path, table)}
        revision = self._alter_entry(path, named)
        named.parameters = {
            **named.parameters,
            mapping.REVISION: mapping.with_record_number(revision, 0),
        }
        return named

    def _alter_entry(self, path: Path, changed: Any) -> str:
        context = self._calls.types.EnvironmentContext(properties=without_statistics({}))
        changed, database = mapping.with_new_revision(changed), database_argument(path[:-1])
        try:
            self._calls.change(
                "alter_table",
                lambda c: c.alter_table_with_environment_context(
                    database, path[-1], changed, context
                ),
            )
        except TException as error:
            self._raise_known_error(path, changed, error)
            raise
        return str(mapping.revision_of(changed))

    def _raise_known_error(self, path: Path, changed: Any, error: TException) -> None:
        if text_of(error).startswith(MODIFIED):
            raise concurrent_modification(path) from error
        refuse_long_values(error, changed.parameters)


def _requirements_without_guard(record: TableRecord, table: Any) -> _Requirements:
    """Return the requirements for an entry without a guard, which must not have been recreated."""
    found = mapping.record_from(record.path[:-1], table)
    if record.properties.get(ENTRY_ID) != found.properties.get(ENTRY_ID) or (
        record.identity is not None and record.identity != found.identity
    ):
        raise concurrent_modification(record.path)
    return _Requirements("", found.revision)
