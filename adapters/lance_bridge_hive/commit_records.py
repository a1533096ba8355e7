"""Commit records: compare-and-set for entries on a metastore without conditional alters.

Each state of an entry is a partition of the entry's helper table, named by a number. The
metastore's database keeps the names of partitions unique, so only one of several changes of the
same state can be recorded, even if requests arrive late. The record with the highest number is the
current state. The entry itself is altered afterwards, for other clients; this library reads nothing
that a late alter changes.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from thrift.Thrift import TException

from lance_bridge.catalog import LATEST, RESERVED_PREFIX, Path
from lance_bridge.errors import OutcomeUnknownError, concurrent_modification, display, unsupported
from lance_bridge.records import ENTRY_ID

from . import mapping
from .client import Calls
from .errors import is_a, refuse_long_values, text_of
from .mapping import database_argument

logger = logging.getLogger(__name__)

RECORDS = RESERVED_PREFIX + "commit_records"
"""Property of an entry: the table of its commit records, as `database.table`."""

_TOKEN = RESERVED_PREFIX + "record"
"""Parameter of a record: a random value by which its client recognises it."""
_SIZE = RESERVED_PREFIX + "record_size"
"""Parameter of a record: the number of the others, to detect a partial read."""
_LOCATION = RESERVED_PREFIX + "record_location"
_NAME = re.compile(r"lance_bridge_[0-9a-f]{32}")
_KEY = "lance_bridge_record"
_NO_TABLE = "table not found"
"""The end of Hive 3.1's MetaException about the partitions of a table that was dropped."""
_KEPT_RECORDS = 50
"""The number of records to keep, so that a client finds its own after it was accepted."""
_MAX_RECORDS = 2 * _KEPT_RECORDS
_MAX_READS = 20
"""Attempts to read the latest record while other clients remove old ones."""


@dataclass(frozen=True)
class Record:
    """One state of an entry."""

    number: int
    token: str
    location: str | None
    properties: Mapping[str, str]


class CommitRecords:
    """Reads and adds commit records. Raises Thrift errors unchanged, except where documented."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(self, path: Path, table: Any) -> str:
        """Create the helper table of an entry; return its name for the property `RECORDS`.

        Raises:
            UnsupportedOperationError: one record can be added to it twice, or the metastore cannot
                create it.
        """
        records = _records_location(path, table)
        try:
            self._create_helper_table(path, records)
            for _ in range(2):
                refusal = self._add_first(path, records)
        except OutcomeUnknownError as error:
            raise ServiceUnavailableError(
                f"{error}. It was a probe: nothing was changed"
            ) from error
        except TException as error:
            refusal = error
        if refusal is None:
            raise unsupported("it adds one partition twice")
        if not is_a(refusal, "AlreadyExistsException"):
            raise unsupported(
                f"it cannot hold commit records, which are partitions ({text_of(refusal)})"
            ) from refusal
        return records

    def apply_latest(self, path: Path, table: Any) -> Any:
        """Return the entry with the values of its latest record; unchanged if it has no records.

        Properties that other clients added are kept.
        """
        parameters = table.parameters or {}
        records = parameters.get(RECORDS)
        if not records:
            return table
        try:
            latest = self._latest(path, records)
        except InvalidTableStateError as error:
            # A table without its latest version can be deregistered, but not altered.
            logger.warning("%s", error)
            return table
        if latest.number:
            keeps_all = not mapping.is_whole(table)
            kept = {k: v for k, v in parameters.items() if keeps_all or mapping.is_own(k)}
            parameters = {**kept, **latest.properties, RECORDS: records}
        return _with_record(table, latest, parameters)

    def commit(self, path: Path, table: Any, changed: Any) -> tuple[Any, int]:
        """Record a change; return the entry to write, and the number of the record.

        Args:
            table: The entry as `apply_latest` returned it.
            changed: Its new state.

        Raises:
            ConcurrentModificationError: another change has been recorded.
            ServiceUnavailableError: nothing was changed, nor will be by this call.
            OutcomeUnknownError
            InvalidTableStateError: its records no longer exist.
        """
        records = str(table.parameters[RECORDS])
        loaded = mapping.split_revision(table)[1]
        if loaded is None:
            raise self._missing_records(path, records)
        number = loaded + 1
        changed = copy.copy(changed)
        changed.parameters = {**changed.parameters, RECORDS: records}
        self._add(path, records, _record_of(number, changed), _record_of(number, table))
        with _reading_back(path):
            self._remove_old(path, records, number)
        return without_latest_version(changed), number

    @staticmethod
    def is_helper_table(name: str) -> bool:
        """Return True for the name of a table of commit records."""
        return _NAME.fullmatch(name) is not None

    def drop(self, path: Path, records: str) -> None:
        """Drop the records of a dropped entry; only log a failure, as they do no harm."""
        database, name = self._table_arguments(path, records)
        try:
            self._calls.change("drop_table", lambda c: c.drop_table(database, name, False))
        except (TException, LanceNamespaceError) as error:
            if not is_a(error, "NoSuchObjectException"):
                logger.warning(
                    "the commit records %s could not be dropped: %s", records, text_of(error)
                )

    # -- one record ------------------------------------------------------------------------------

    def _add(self, path: Path, records: str, wanted: Record, unchanged: Record) -> None:
        try:
            self._send(path, records, wanted)
        except OutcomeUnknownError as error:
            self._resolve_lost_reply(path, records, wanted, unchanged, error)
        except TException as error:
            refuse_long_values(error, wanted.properties)
            with _reading_back(path):
                token = self._token_at(path, records, wanted)
            if token is None:
                raise
            # The metastore may have added it, and tried to add it again.
            if token != wanted.token:
                raise concurrent_modification(path) from error

    def _resolve_lost_reply(
        self,
        path: Path,
        records: str,
        wanted: Record,
        unchanged: Record,
        lost: OutcomeUnknownError,
    ) -> None:
        """Add a record that changes nothing after a lost reply, unless the number is taken.

        The metastore then refuses the lost request if it still arrives.
        """
        try:
            token = self._token_at(path, records, wanted)
            if token is None:
                with suppress(TException):  # another client has taken the number
                    self._send(path, records, unchanged)
                token = self._token_at(path, records, wanted)
        except (TException, LanceNamespaceError) as error:
            raise lost from error
        if token is None:
            raise lost
        if token == unchanged.token:
            raise ServiceUnavailableError(f"{lost}. Nothing was changed") from lost
        if token != wanted.token:
            raise concurrent_modification(path)

    def _token_at(self, path: Path, records: str, wanted: Record) -> str | None:
        """Return the token of the record with this number; None if it does not exist yet."""
        numbers = self._numbers(path, records)
        if max(numbers, default=0) > wanted.number + _KEPT_RECORDS:
            raise _outcome_unknown(path)
        if wanted.number not in numbers:
            return None
        found = self._read(path, records, wanted.number)
        if found is None:
            raise _outcome_unknown(path)
        return found.token

    def _add_first(self, path: Path, records: str) -> TException | None:
        """Add record 0, which holds no state; return the metastore's error, if any."""
        try:
            self._send(path, records, Record(0, uuid.uuid4().hex, None, {}))
        except TException as error:
            if is_a(error, "AlreadyExistsException", "MetaException"):
                return error
            raise
        return None

    def _send(self, path: Path, records: str, record: Record) -> None:
        """Add a record; the metastore refuses a number that is taken."""
        held = dict(record.properties)
        if record.location is not None:
            held[_LOCATION] = record.location
        own = {_TOKEN: record.token, _SIZE: str(len(held))}
        partition = self._calls.types.Partition(
            values=[str(record.number)], parameters={**held, **own}
        )
        partition.dbName, partition.tableName = records.split(".", 1)
        if len(path) > 2:
            partition.catName = path[0]
        self._calls.change("add_partition", lambda c: c.add_partition(partition))

    # -- all records -----------------------------------------------------------------------------

    def _latest(self, path: Path, records: str) -> Record:
        """Return the record with the highest number.

        It is read again if it was removed because other clients added many records concurrently.
        """
        for _ in range(_MAX_READS):
            numbers = self._numbers(path, records)
            if not numbers:
                raise self._missing_records(path, records)
            latest = self._read(path, records, max(numbers))
            if latest is not None:
                return latest
        raise concurrent_modification(path)

    def _numbers(self, path: Path, records: str) -> list[int]:
        database, name = self._table_arguments(path, records)
        try:
            found = self._calls.read(
                "get_partition_names", lambda c: c.get_partition_names(database, name, -1)
            )
        except TException as error:
            if is_a(error, "NoSuchObjectException") or text_of(error).endswith(_NO_TABLE):
                raise self._missing_records(path, records) from error
            raise
        return [int(each.rpartition("=")[2]) for each in found]

    def _read(self, path: Path, records: str, number: int) -> Record | None:
        """Return one record; None if it does not exist, or was removed while it was read."""
        (database, name), values = self._table_arguments(path, records), [str(number)]
        try:
            return _record_from(
                self._calls.read("get_partition", lambda c: c.get_partition(database, name, values))
            )
        except TException as error:
            if is_a(error, "NoSuchObjectException"):
                return None
            raise

    def _missing_records(self, path: Path, records: str) -> InvalidTableStateError:
        return InvalidTableStateError(
            f"The commit records of table '{display(path)}', in '{records}', are gone: deregister "
            "the table, and register it again"
        )

    def _remove_old(self, path: Path, records: str, number: int) -> None:
        """Remove old records; check that the new one was not added after its successors.

        A delayed request could reuse the number of a removed record.
        """
        found = sorted(self._numbers(path, records))
        if found[-1] > number + _KEPT_RECORDS:
            raise _outcome_unknown(path)
        if len(found) < _MAX_RECORDS:
            return
        for old in found:
            if old < number - _KEPT_RECORDS:
                self._remove(path, records, old)

    def _remove(self, path: Path, records: str, number: int) -> None:
        database, name = self._table_arguments(path, records)
        values = [str(number)]
        try:
            self._calls.change(
                "drop_partition", lambda c: c.drop_partition(database, name, values, False)
            )
        except (TException, LanceNamespaceError) as error:
            logger.info("record %d in %s could not be removed: %s", number, records, text_of(error))

    # -- the helper table ------------------------------------------------------------------------

    def _create_helper_table(self, path: Path, records: str) -> None:
        """Create the table of records: a view, so that it has no directory."""
        types = self._calls.types
        database, name = records.split(".", 1)
        column = types.FieldSchema(name="note", type="string", comment="")
        key = types.FieldSchema(name=_KEY, type="string", comment="")
        table = types.Table(
            tableName=name,
            dbName=database,
            sd=types.StorageDescriptor(cols=[column], serdeInfo=types.SerDeInfo(parameters={})),
            partitionKeys=[key],
            tableType="VIRTUAL_VIEW",
            viewOriginalText="SELECT 'commit records of lance-bridge' AS note",
            viewExpandedText="SELECT 'commit records of lance-bridge' AS note",
            parameters={"comment": f"Commit records of {display(path)[:200]}: do not drop"},
        )
        if len(path) > 2:
            table.catName = path[0]
        try:
            self._calls.change("create_table", lambda c: c.create_table(table))
        except (TException, OutcomeUnknownError) as error:
            try:
                self._numbers(path, records)
            except InvalidTableStateError:
                raise error from None

    @staticmethod
    def _table_arguments(path: Path, records: str) -> tuple[str, str]:
        """Return the database and table as arguments of calls without a field for the catalog."""
        database, name = records.split(".", 1)
        return database_argument((*path[:-2], database)), name


def _records_location(path: Path, table: Any) -> str:
    """Return the table of an entry's records, which is the same for all clients."""
    parameters = table.parameters or {}
    if RECORDS in parameters:
        return str(parameters[RECORDS])
    location = (table.sd.location if table.sd else None) or ""
    identity = parameters.get(ENTRY_ID) or f"{table.createTime} {path} {location}"
    return f"{path[-2]}.lance_bridge_{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


@contextmanager
def _reading_back(path: Path) -> Iterator[None]:
    """Leave the outcome of a change that was sent unknown if the records cannot be read."""
    try:
        yield
    except OutcomeUnknownError:
        raise
    except (TException, LanceNamespaceError) as error:
        raise OutcomeUnknownError(
            f"Table '{display(path)}' may have been changed or not: its commit records cannot be "
            f"read ({text_of(error)})"
        ) from error


def _outcome_unknown(path: Path) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Other clients changed table '{display(path)}' so often during this change that its "
        "outcome is unknown: it may have been made. Read the table before you retry"
    )


def _record_of(number: int, table: Any) -> Record:
    properties = {k: v for k, v in table.parameters.items() if not mapping.is_own(k)}
    return Record(number, uuid.uuid4().hex, table.sd.location, properties)


def _record_from(partition: Any) -> Record | None:
    """Return the record in a partition; None if it was being removed."""
    found = {k: v for k, v in (partition.parameters or {}).items() if not mapping.is_own(k)}
    token, size = found.pop(_TOKEN, None), found.pop(_SIZE, None)
    if token is None or not partition.values or size != str(len(found)):
        return None
    location = found.pop(_LOCATION, None)
    return Record(int(partition.values[0]), token, location, found)


def _with_record(table: Any, latest: Record, parameters: Mapping[str, str]) -> Any:
    revision = mapping.with_record_number(str(mapping.revision_of(table)), latest.number)
    table = copy.copy(table)
    table.parameters = {**parameters, mapping.REVISION: revision}
    if latest.number:
        table.sd = copy.copy(table.sd)
        table.sd.location = latest.location
    return table


def without_latest_version(table: Any) -> Any:
    """Return the entry without its latest version, which is stored only in records."""
    table = copy.copy(table)
    table.parameters = {k: v for k, v in table.parameters.items() if k != LATEST}
    return table
