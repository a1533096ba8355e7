"""Entries of the metastore: reads of one or of many, alters, and renames.

An entry that the metastore cannot return fails the whole batch that it is in. A batch that fails is
halved, until what remains is the entry, which is then one that cannot be read.

An alter is a compare-and-set by the entry's guard, if it has one. The guard is conditional alters
of the metastore, if it supports them, or else commit records. The probes for conditional alters are
alters that every metastore refuses because they change the partition keys. A metastore that
supports conditions checks them first, and reports that the entry has been modified. All checks run
in one database transaction, which is rolled back, so a probe changes nothing, even while other
clients change the entry.
"""

from __future__ import annotations

import copy
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from thrift.Thrift import TException

from lance_bridge.catalog import GUARD, TABLE_TYPE, Path, TableRecord
from lance_bridge.errors import (
    OF_ONE_OBJECT,
    OutcomeUnknownError,
    concurrent_modification,
    display,
    namespace_not_found,
    table_not_found,
    unsupported,
)
from lance_bridge.records import ENTRY_ID

from . import mapping
from .client import Calls
from .commit_records import RECORDS, CommitRecords, without_latest_version
from .errors import is_a, map_errors, refuse_long_values, text_of, translate_errors
from .mapping import database_argument

T = TypeVar("T")
logger = logging.getLogger(__name__)

ABSENT = "NoSuchObjectException"
NO_DATABASE = (ABSENT, "UnknownDBException")

_INSERT_ONLY_TABLES = 2
"""The value of Hive's ClientCapability, for which hmsclient has no name."""
_MOST_FAILURES = 20
_READS = 20  # attempts to read an entry that is modified concurrently


def in_halves(
    read: Callable[[Sequence[str]], Iterable[T]], names: Sequence[str]
) -> tuple[list[T], dict[str, LanceNamespaceError]]:
    """Return what ``read`` returns for names, and the errors of names for which it fails alone.

    After `_MOST_FAILURES` failures, a part that fails is not halved: all its names have failed.
    Errors of the server or the connection are raised: with these, halves would fail as well.
    """
    found: list[T] = []
    failed: dict[str, LanceNamespaceError] = {}
    pending = [names]
    while pending:
        part = pending.pop()
        try:
            found += read(part)
        except OF_ONE_OBJECT as error:
            if len(part) == 1 or len(failed) >= _MOST_FAILURES:
                failed |= dict.fromkeys(part, error)
            else:
                logger.info("a batch of %d names is halved: %s", len(part), error)
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
    return found, failed


class EntryReads:
    """Reads entries, as the latest commit records have them."""

    def __init__(self, calls: Calls, records: CommitRecords, *, catalog_levels: bool) -> None:
        self._calls = calls
        self._records = records
        self._catalog_levels = catalog_levels

    def load_many(self, namespace: Path, names: Sequence[str], size: int) -> Iterator[TableRecord]:
        """Yield the records of entries, read in calls of ``size`` names and sorted in each call.

        Entries that do not exist are left out; those that cannot be read are
        `TableRecord.unreadable`.

        Raises:
            NamespaceNotFoundError: The database does not exist.
            LanceNamespaceError: No entry of a batch can be read.
        """
        for start in range(0, len(names), size):
            wanted = list(names[start : start + size])
            records = self._load_part(namespace, wanted)
            present = {record.path[-1] for record in records}
            for name in wanted:
                if name not in present:
                    records += self._load_missing((*namespace, name))
            yield from sorted(records, key=lambda record: record.path)

    def _load_part(self, namespace: Path, names: Sequence[str]) -> list[TableRecord]:
        tables, failed = in_halves(lambda part: self._load_batch(namespace, part), names)
        if len(failed) == len(names) > 1:
            raise next(iter(failed.values()))  # of the namespace, or of the metastore
        records = [mapping.record_from(namespace, table) for table in tables]
        return records + [_unreadable((*namespace, name), error) for name, error in failed.items()]

    def _load_batch(self, namespace: Path, names: Sequence[str]) -> list[Any]:
        types = self._calls.types
        request = types.GetTablesRequest(
            dbName=namespace[-1], tblNames=list(names), capabilities=self._declared_capabilities()
        )
        self._set_catalog(request, namespace)
        with (
            translate_errors(f"read tables of '{display(namespace)}'"),
            map_errors(dict.fromkeys(NO_DATABASE, namespace_not_found(namespace))),
        ):
            response = self._calls.read(
                "get_table_objects_by_name_req", lambda c: c.get_table_objects_by_name_req(request)
            )
        apply_latest = self._records.apply_latest
        return [apply_latest((*namespace, each.tableName), each) for each in response.tables or []]

    def _load_missing(self, path: Path) -> list[TableRecord]:
        """Return an entry that a batch's response lacks; nothing if it no longer exists."""
        try:
            with translate_errors(f"read table '{display(path)}'"):
                return [mapping.record_from(path[:-1], self.load(path))]
        except TableNotFoundError:
            return []
        except OF_ONE_OBJECT as error:
            return [_unreadable(path, error)]

    def load(self, path: Path) -> Any:
        """Return a consistent state of an entry.

        If two reads return the same revision, the second saw everything written with it.
        """
        table = self.load_once(path)
        earlier = None
        for _ in range(_READS):
            if mapping.is_whole(table) or (
                earlier and mapping.revision_of(earlier) == mapping.revision_of(table)
            ):
                return self._records.apply_latest(path, table)
            earlier, table = table, self.load_once(path)
        raise concurrent_modification(path)

    def load_once(self, path: Path) -> Any:
        """Return an entry as one call returns it."""
        types = self._calls.types
        request = types.GetTableRequest(
            dbName=path[-2], tblName=path[-1], capabilities=self._declared_capabilities()
        )
        self._set_catalog(request, path[:-1])
        with map_errors({ABSENT: table_not_found(path)}):
            return self._calls.read("get_table_req", lambda c: c.get_table_req(request)).table

    def _declared_capabilities(self) -> Any:
        """Return what Hive's own clients declare: Hive 3 and 4 refuse ACID tables to others."""
        return self._calls.types.ClientCapabilities(values=[_INSERT_ONLY_TABLES])

    def _set_catalog(self, request: Any, namespace: Path) -> None:
        if self._catalog_levels:
            request.catName = namespace[0]


def _unreadable(path: Path, error: LanceNamespaceError) -> TableRecord:
    logger.warning("entry '%s' cannot be read: %s", display(path), error)
    return TableRecord.unreadable(path)


# -- changes ---------------------------------------------------------------------------------------

PARAMETER = "parameter"
"""Conditional alters: `expected_parameter_key` and `expected_parameter_value`."""

PARTITION = "partition"
"""Commit records, which are partitions of a helper table: see `commit_records`."""

_MODIFIED = "The table has been modified"
_OTHER_KEYS = "partition keys can not be changed"
_NO_NEW_VALUE = "New value for expected key"

_IGNORED = "ignores the condition of an alter"
_CHECKED_BEFORE = "checks the condition of an alter before it sets, and not while it sets"
_ATTEMPTS = 5
_PROVEN_SECONDS = 600.0
"""How long a probe of a connection is valid: over HTTP, it may reach another release later."""


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
            self._records.create(path, self._load(path))
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
        required = _Requirements(_guard_of(table, record), record.revision)
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
            return {} if revision is None else _alter_condition(mapping.REVISION, revision)
        key = mapping.comparison_key(table)
        value = (table.parameters or {}).get(key)
        if value is None:
            raise InvalidTableStateError(
                f"The entry of table '{display(path)}' has neither {mapping.REVISION} nor {key}, "
                "so it cannot be compared: alter it once, then convert it"
            )
        return _alter_condition(key, value)

    def _send(self, path: Path, table: Any, changed: Any, required: _Requirements) -> str:
        """Replace ``table`` by ``changed`` if it meets ``required``; return the revision."""
        if required.guard == PARTITION:
            return self._add_record(path, table, changed)
        probe = None
        if required.guard == PARAMETER:
            probe = partial(self._parameter.require, path=path, table=table)
        return self._alter_entry(path, changed, self._condition(path, table, required), probe)

    def _add_record(self, path: Path, table: Any, changed: Any) -> str:
        """Add a commit record, and alter the entry if other clients would see a difference."""
        if RECORDS not in table.parameters:
            table = self._create_records(path, table)
        entry, number = self._records.commit(path, table, changed)
        before = without_latest_version(table)
        revision = mapping.split_revision(table)[0]
        if mapping.visible_fields(before) != mapping.visible_fields(entry):
            try:
                revision = self._alter_entry(path, entry, {})
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
        named.parameters = {**table.parameters, RECORDS: self._records.create(path, table)}
        revision = self._alter_entry(path, named, {})
        named.parameters = {
            **named.parameters,
            mapping.REVISION: mapping.with_record_number(revision, 0),
        }
        return named

    def _alter_entry(
        self,
        path: Path,
        changed: Any,
        condition: Mapping[str, str],
        probe: Callable[[Any], None] | None = None,
    ) -> str:
        """Alter an entry; return its new revision.

        Args:
            condition: As of `_condition`.
            probe: Called with the client before it sends the change.
        """
        context = self._calls.types.EnvironmentContext(properties=without_statistics(condition))
        changed, database = mapping.with_new_revision(changed), database_argument(path[:-1])
        was_sent = False

        def operation(client: Any) -> None:
            nonlocal was_sent
            if probe is not None:
                probe(client)
            was_sent = True
            client.alter_table_with_environment_context(database, path[-1], changed, context)

        try:
            self._calls.change("alter_table", operation)
        except OutcomeUnknownError as error:
            if was_sent:
                raise
            raise ServiceUnavailableError(
                f"{error}. It was a probe: nothing was changed"
            ) from error
        except TException as error:
            if text_of(error).startswith(_MODIFIED):
                raise concurrent_modification(path) from error
            refuse_long_values(error, changed.parameters)
            raise
        return str(mapping.revision_of(changed))


def _requirements_without_guard(record: TableRecord, table: Any) -> _Requirements:
    """Return the requirements for an entry without a guard, which must not have been recreated."""
    found = mapping.record_from(record.path[:-1], table)
    if record.properties.get(ENTRY_ID) != found.properties.get(ENTRY_ID) or (
        record.identity is not None and record.identity != found.identity
    ):
        raise concurrent_modification(record.path)
    return _Requirements("", found.revision)


def without_statistics(properties: Mapping[str, str]) -> dict[str, str]:
    """Add the setting that keeps the metastore from listing files to update its statistics."""
    return {"DO_NOT_UPDATE_STATS": "true", **properties}


# -- guards -----------------------------------------------------------------------------------


def _alter_condition(key: str, value: str) -> dict[str, str]:
    """Return the environment context that makes an alter depend on a parameter's value."""
    return {"expected_parameter_key": key, "expected_parameter_value": value}


def _guard_of(table: Any, record: TableRecord) -> str:
    """Return the guard of an entry, or the guard that a change adds to it.

    Raises:
        InvalidTableStateError: this release of lance-bridge does not know one of them.
    """
    if RECORDS in (table.parameters or {}):
        return PARTITION
    present = (table.parameters or {}).get(GUARD, "")
    wanted = record.properties.get(GUARD, "")
    for guard in (present, wanted):
        if guard not in ("", PARAMETER, PARTITION):
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' has the guard {guard[:60]!r}, which this release "
                "of lance-bridge does not know: use a newer release"
            )
    return present or wanted


@dataclass(frozen=True)
class _ProbeResult:
    """Why conditions do not work, or ``""``; unsure if another client may have interfered."""

    reason: str = ""
    is_sure: bool = True


class ParameterGuard:
    """Probes conditional alters. Safe to share between threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        # By connection, because each may reach another metastore, of another release.
        self._proven: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def find_problem(self, path: Path, load: Callable[[Path], Any]) -> str:
        """Return why conditional alters do not work for this entry; ``""`` if they do.

        Raises:
            TableNotFoundError
        """
        found = _ProbeResult()
        for _ in range(_ATTEMPTS):
            found = self._calls.read("alter_table", self._probe(path, load(path)))
            if found.is_sure:
                break
        return found.reason

    def require(self, client: Any, path: Path, table: Any) -> None:
        """Probe the connection that is about to send an alter.

        Raises:
            InvalidTableStateError: it ignores conditions, but the entry relies on them.
        """
        if time.monotonic() - self._proven.get(client, -_PROVEN_SECONDS) < _PROVEN_SECONDS:
            return
        found = self._check_comparison(client, path, table)
        if found.reason:
            raise InvalidTableStateError(
                f"Table '{display(path)}' relies on conditional alters, but the metastore "
                f"{found.reason}, so nothing was changed. Check whether it runs another release now"
            )
        self._proven[client] = time.monotonic()

    def _probe(self, path: Path, table: Any) -> Callable[[Any], _ProbeResult]:
        def probe(client: Any) -> _ProbeResult:
            try:
                found = self._check_comparison(client, path, table)
                return found if found.reason else self._check_assignment(client, path, table)
            except TException as error:
                if not is_a(error, "MetaException", "InvalidOperationException"):
                    raise
                return _ProbeResult(f"answers a conditional alter with {text_of(error)!r}", False)

        return probe

    def _check_comparison(self, client: Any, path: Path, table: Any) -> _ProbeResult:
        """Probe with a wrong expected value, with a new value and without one.

        Only releases that check and set the value in one step require a new one.
        """
        held = {key: value for key, value in table.parameters.items() if key != mapping.REVISION}
        wrong = _alter_condition(mapping.REVISION, uuid.uuid4().hex)
        new = mapping.revision_of(table) or uuid.uuid4().hex
        error = self._send_refused_alter(
            client, path, table, {**held, mapping.REVISION: new}, wrong
        )
        if text_of(error).startswith(_OTHER_KEYS):
            return _ProbeResult(_IGNORED)
        if not text_of(error).startswith(_MODIFIED):
            raise error
        error = self._send_refused_alter(client, path, table, held, wrong)
        if text_of(error).startswith((_OTHER_KEYS, _MODIFIED)):
            return _ProbeResult(_CHECKED_BEFORE)
        if not text_of(error).startswith(_NO_NEW_VALUE):
            raise error
        return _ProbeResult()

    def _check_assignment(self, client: Any, path: Path, table: Any) -> _ProbeResult:
        """Probe with the current value, to check that the database supports the condition.

        No other client changes the type of a Lance table concurrently.
        """
        key = TABLE_TYPE if TABLE_TYPE in table.parameters else mapping.comparison_key(table)
        value = table.parameters.get(key)
        if value is None:
            return _ProbeResult(f"has no {key} in the entry to compare")
        right = _alter_condition(key, value)
        error = self._send_refused_alter(client, path, table, table.parameters, right)
        if not text_of(error).startswith(_OTHER_KEYS):
            raise error
        return _ProbeResult()

    def _send_refused_alter(
        self,
        client: Any,
        path: Path,
        table: Any,
        parameters: Mapping[str, str],
        condition: Mapping[str, str],
    ) -> TException:
        """Send an alter that cannot succeed, and return the error."""
        types, database = self._calls.types, database_argument(path[:-1])
        refused = mapping.with_probe_column(types, table, parameters)
        context = types.EnvironmentContext(properties=without_statistics(condition))
        try:
            client.alter_table_with_environment_context(database, path[-1], refused, context)
        except TException as error:
            if is_a(error, "MetaException", "InvalidOperationException"):
                return error
            raise
        # No Hive does this. Remove the partition key that the probe added.
        client.alter_table(database, path[-1], table)
        raise InvalidTableStateError(
            f"The metastore accepted a change of the partition keys of table '{display(path)}', "
            "which was reverted: it cannot be probed for compare-and-set"
        )
