"""Detects whether a metastore supports conditional alters: compare-and-set of an entry.

The probes are alters that every metastore refuses because they change the partition keys. A
metastore that supports conditions checks them first, and reports that the entry has been modified.
All checks run in one database transaction, which is rolled back, so a probe changes nothing, even
while other clients change the entry.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from lance_namespace.errors import InvalidTableStateError
from thrift.Thrift import TException

from lance_bridge.catalog import GUARD, TABLE_TYPE, Path, TableRecord
from lance_bridge.errors import display

from . import mapping
from .calls import Calls
from .capabilities import database_argument
from .commit_records import RECORDS
from .errors import is_a, text_of

PARAMETER = "parameter"
"""Conditional alters: `expected_parameter_key` and `expected_parameter_value`."""

PARTITION = "partition"
"""Commit records, which are partitions of a helper table: see `commit_records`."""

MODIFIED = "The table has been modified"
_OTHER_KEYS = "partition keys can not be changed"
_NO_NEW_VALUE = "New value for expected key"

_IGNORED = "ignores the condition of an alter"
_CHECKED_BEFORE = "checks the condition of an alter before it sets, and not while it sets"
_ATTEMPTS = 5
_PROVEN_SECONDS = 600.0
"""How long a probe of a connection is valid: over HTTP, it may reach another release later."""


def alter_condition(key: str, value: str) -> dict[str, str]:
    """Return the environment context that makes an alter depend on a parameter's value."""
    return {"expected_parameter_key": key, "expected_parameter_value": value}


def guard_of(table: Any, record: TableRecord) -> str:
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
        wrong = alter_condition(mapping.REVISION, uuid.uuid4().hex)
        new = mapping.revision_of(table) or uuid.uuid4().hex
        error = self._send_refused_alter(
            client, path, table, {**held, mapping.REVISION: new}, wrong
        )
        if text_of(error).startswith(_OTHER_KEYS):
            return _ProbeResult(_IGNORED)
        if not text_of(error).startswith(MODIFIED):
            raise error
        error = self._send_refused_alter(client, path, table, held, wrong)
        if text_of(error).startswith((_OTHER_KEYS, MODIFIED)):
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
        right = alter_condition(key, value)
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


def without_statistics(properties: Mapping[str, str]) -> dict[str, str]:
    """Add the setting that keeps the metastore from listing files to update its statistics."""
    return {"DO_NOT_UPDATE_STATS": "true", **properties}
