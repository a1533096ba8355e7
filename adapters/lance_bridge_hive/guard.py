"""Whether a metastore compares and sets an entry by itself, as a condition of an alter.

Found out by trying, with alters that are refused in any case because they change partition keys:
a metastore that knows the condition says first that the entry has been modified. All checks are
made in one database transaction, which is rolled back, so that nothing changes whoever else is
at work on the entry.
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
"""The condition of an alter decides: `expected_parameter_key` and `expected_parameter_value`."""

PARTITION = "partition"
"""Commit records decide, which are partitions of a helper table: see `records`."""
_LOCK = "lock"
"""What earlier releases compared and set by: such an entry gets commit records when it changes."""

MODIFIED = "The table has been modified"
_OTHER_KEYS = "partition keys can not be changed"
_NO_NEW_VALUE = "New value for expected key"

_IGNORED = "ignores the condition of an alter"
_CHECKED_BEFORE = "checks the condition of an alter before it sets, and not while it sets"
_ATTEMPTS = 5
_PROVEN_SECONDS = 600.0
"""How long one connection's proof holds: behind HTTP it may lead to another release by then."""


def alter_condition(key: str, value: str) -> dict[str, str]:
    """Return what makes an alter depend on a parameter's value, for its environment context."""
    return {"expected_parameter_key": key, "expected_parameter_value": value}


def guard_of(table: Any, record: TableRecord) -> str:
    """Return the guard that decides about a change: the entry's, or else the one it is to get.

    Raises:
        InvalidTableStateError: either is one that this release does not know.
    """
    if RECORDS in (table.parameters or {}):
        return PARTITION
    present = (table.parameters or {}).get(GUARD, "")
    wanted = record.properties.get(GUARD, "")
    if _LOCK in (present, wanted):
        return PARTITION
    for guard in (present, wanted):
        if guard not in ("", PARAMETER, PARTITION):
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' is compared and set by {guard[:60]!r}, which "
                "this release of lance-bridge does not know: use a newer one"
            )
    return present or wanted


@dataclass(frozen=True)
class _ProbeResult:
    """Why the condition does not do, or ``""``; not sure where the answer may be another's."""

    reason: str = ""
    is_sure: bool = True


class ParameterGuard:
    """Proves the condition of an alter. Safe to share between threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        # By connection: one leads to one metastore of several, which may be of another release.
        self._proven: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def find_problem(self, path: Path, load: Callable[[Path], Any]) -> str:
        """Return why a condition cannot be relied on for this entry; ``""`` if it can.

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
        """Prove the condition on the connection that an alter is about to be sent on.

        Raises:
            InvalidTableStateError: it does not hold there, though the entry relies on it.
        """
        if time.monotonic() - self._proven.get(client, -_PROVEN_SECONDS) < _PROVEN_SECONDS:
            return
        found = self._check_comparison(client, path, table)
        if found.reason:
            raise InvalidTableStateError(
                f"Table '{display(path)}' relies on conditional alters, and the metastore that "
                f"answers now {found.reason}, so nothing was changed. Was it replaced by another "
                "release?"
            )
        self._proven[client] = time.monotonic()

    def _probe(self, path: Path, table: Any) -> Callable[[Any], _ProbeResult]:
        def trial(client: Any) -> _ProbeResult:
            try:
                found = self._check_comparison(client, path, table)
                return found if found.reason else self._check_assignment(client, path, table)
            except TException as error:
                if not is_a(error, "MetaException", "InvalidOperationException"):
                    raise
                return _ProbeResult(f"answers a conditional alter with {text_of(error)!r}", False)

        return trial

    def _check_comparison(self, client: Any, path: Path, table: Any) -> _ProbeResult:
        """Try a wrong value: first as an alter would be sent, then without a new one.

        Only releases that also set the value with the condition ask for a new one.
        """
        held = {key: value for key, value in table.parameters.items() if key != mapping.REVISION}
        wrong = alter_condition(mapping.REVISION, uuid.uuid4().hex)
        new = mapping.revision_of(table) or uuid.uuid4().hex
        said = self._refused_alter(client, path, table, {**held, mapping.REVISION: new}, wrong)
        if text_of(said).startswith(_OTHER_KEYS):
            return _ProbeResult(_IGNORED)
        if not text_of(said).startswith(MODIFIED):
            raise said
        said = self._refused_alter(client, path, table, held, wrong)
        if text_of(said).startswith((_OTHER_KEYS, MODIFIED)):
            return _ProbeResult(_CHECKED_BEFORE)
        if not text_of(said).startswith(_NO_NEW_VALUE):
            raise said
        return _ProbeResult()

    def _check_assignment(self, client: Any, path: Path, table: Any) -> _ProbeResult:
        """Try the right value, and set it to what it is: can the database do that?

        The mark of Lance tables is the value that nobody changes meanwhile.
        """
        key = TABLE_TYPE if TABLE_TYPE in table.parameters else mapping.comparison_key(table)
        value = table.parameters.get(key)
        if value is None:
            return _ProbeResult(f"has no {key} in the entry to compare")
        right = alter_condition(key, value)
        said = self._refused_alter(client, path, table, table.parameters, right)
        if not text_of(said).startswith(_OTHER_KEYS):
            raise said
        return _ProbeResult()

    def _refused_alter(
        self,
        client: Any,
        path: Path,
        table: Any,
        parameters: Mapping[str, str],
        condition: Mapping[str, str],
    ) -> TException:
        """Send an alter that cannot succeed, and return what the metastore says of it."""
        types, database = self._calls.types, database_argument(path[:-1])
        refused = mapping.with_probe_column(types, table, parameters)
        context = types.EnvironmentContext(properties=without_statistics(condition))
        try:
            client.alter_table_with_environment_context(database, path[-1], refused, context)
        except TException as error:
            if is_a(error, "MetaException", "InvalidOperationException"):
                return error
            raise
        # No Hive does this. What stands in for one must not keep the probe's partition key.
        client.alter_table(database, path[-1], table)
        raise InvalidTableStateError(
            f"The metastore let the partition keys of table '{display(path)}' be changed, and so "
            "cannot be asked whether it compares and sets: they were changed back"
        )


def without_statistics(properties: Mapping[str, str]) -> dict[str, str]:
    """Keep the metastore from listing the table's files for statistics of its own, too."""
    return {"DO_NOT_UPDATE_STATS": "true", **properties}
