"""Exclusive locks of the metastore on a table: how to compare and set where an alter cannot.

A lock is held while an entry is read, compared and altered, and released whatever comes of that;
only where the alter's reply was lost does it stay, because the alter may still be under way.
The metastore forgets a lock that gave no sign of life for `hive.txn.timeout`; many have nothing
running that does so, and then whoever waits for such a lock removes it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from thrift.Thrift import TException

from lance_bridge.catalog import Path
from lance_bridge.errors import OutcomeUnknownError, display, unsupported

from .calls import Calls
from .catalog_level import Call
from .config import HiveConfig
from .errors import is_a, text_of, translated

logger = logging.getLogger(__name__)

EXPIRY_KEY = "hive.txn.timeout"
_EXPIRY_FORM = re.compile(r"\s*(\d+)\s*(ms|msec|s|sec|m|min|h|hour|d|day|)s?\s*")
_SECONDS = {"ms": 0.001, "msec": 0.001, "": 1, "s": 1, "sec": 1, "m": 60, "min": 60}
_SECONDS |= {"h": 3600, "hour": 3600, "d": 86_400, "day": 86_400}

_AGENT = "lance-bridge "
"""How the locks of all clients of this library begin to name their holder."""
_WIDTH = 128
"""Characters that the narrowest schema has room for, in names as in who holds a lock."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.25
_LOOK_EVERY = 1.0
"""Seconds between looks at who holds a lock that is waited for."""
_KNOWN_SECONDS = 600.0
"""How long the metastore's expiry is not asked for again: it may be restarted with another."""
_OVERDUE = 1.1
"""How many times the expiry a lock must be silent for before somebody else removes it."""
_CALLS_IN_EXPIRY = 2.0
"""How many calls of the longest duration must fit into the time after which a lock expires."""


class Hold:
    """A lock that is held, and until when that is certain."""

    def __init__(self, lock_id: int, sure_until: float, longest_call: float) -> None:
        self.lock_id = lock_id
        self.is_change_under_way = False
        """True where a change was sent and it is not known that it has ended."""
        self._sure_until = sure_until
        self._longest_call = longest_call

    def begin_change(self) -> None:
        """Note that a change is about to be sent.

        Raises:
            ServiceUnavailableError: (17) the lock could expire before the call has ended.
        """
        if time.monotonic() + self._longest_call > self._sure_until:
            raise ServiceUnavailableError(
                "The metastore was too slow: the table's lock could have expired before the "
                "change was done, so nothing was changed. Repeat it"
            )
        self.is_change_under_way = True

    def end_change(self) -> None:
        """Note that the change has been made, or never will be."""
        self.is_change_under_way = False


class _Answer(NamedTuple):
    """What the metastore said of a lock, and when it was asked: it expires that much later."""

    lock_id: int
    is_held: bool
    asked: float


class TableLocks:
    """Takes and releases exclusive locks. Safe to share between threads."""

    def __init__(self, calls: Calls, config: HiveConfig) -> None:
        self._calls = calls
        self._longest_call = config.timeout
        self._patience = config.lock_timeout
        self._user = ((config.user or (config.auth_username,))[0] or "lance-bridge")[:_WIDTH]
        self._host = socket.gethostname()[:_WIDTH]
        self._expiry = 0.0
        self._expiry_read = -_KNOWN_SECONDS
        self._restart()
        _all.add(self)

    def _restart(self) -> None:
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._queues_lock = threading.Lock()

    def prove(self, path: Path) -> None:
        """Find out that a lock on this table keeps a second one out; leaves none behind.

        Raises:
            UnsupportedOperationError: (0) it does not, or there are no locks.
        """
        try:
            self._expires_after()
            first = self._request(path)
            try:
                if first.is_held:
                    second = self._request(path)
                    self._release(second.lock_id, path)
                    if second.is_held:
                        raise unsupported("it gives one table's exclusive lock to two at once")
            finally:
                self._release(first.lock_id, path)
        except TException as error:
            raise unsupported(
                f"it cannot lock tables ({text_of(error)}): are the tables for transactions and "
                "locks missing in its database? Hive's schematool makes them"
            ) from error

    @contextmanager
    def held(self, path: Path, require_wanted: Callable[[], object]) -> Iterator[Hold]:
        """Hold the table's lock; gives it back afterwards unless a change may be under way.

        ``require_wanted`` is called while the lock is waited for, and raises where it is of no use
        any more: mostly, whoever held it has changed the entry.

        Raises:
            ServiceUnavailableError: (17) others held it for all of ``client.lock-timeout``, or the
                reply to the request was lost.
            UnsupportedOperationError: (0) ``client.timeout`` is too long for ``hive.txn.timeout``.
        """
        deadline = time.monotonic() + self._patience
        with self._queued(path, deadline):
            with translated(f"lock table '{display(path)}'"):
                require_wanted()
                hold = self._acquire(path, deadline, require_wanted)
            try:
                yield hold
            finally:
                if hold.is_change_under_way:
                    logger.warning("lock %d on '%s' is left to expire", hold.lock_id, display(path))
                else:
                    self._release(hold.lock_id, path)

    @contextmanager
    def _queued(self, path: Path, deadline: float) -> Iterator[None]:
        """Wait for other threads here rather than in the metastore, which is polled."""
        name = self._name(path)
        with self._queues_lock:
            queue = self._queues.setdefault(name, _Queue())
            queue.length += 1
        try:
            if not queue.turn.acquire(timeout=max(deadline - time.monotonic(), 0)):
                raise self._waited_too_long(path, "other threads of this process")
            try:
                yield
            finally:
                queue.turn.release()
        finally:
            with self._queues_lock:
                queue.length -= 1
                if not queue.length:
                    del self._queues[name]

    def _acquire(self, path: Path, deadline: float, require_wanted: Callable[[], object]) -> Hold:
        expiry = self._expires_after()
        answer = self._request(path)
        pause, look_at = _FIRST_PAUSE, time.monotonic() + _LOOK_EVERY
        try:
            while not answer.is_held:
                if time.monotonic() > deadline:
                    raise self._waited_too_long(path, self._describe_others(path, answer.lock_id))
                time.sleep(pause * random.uniform(0.5, 1))
                pause = min(pause * 1.5, _LONGEST_PAUSE)
                require_wanted()
                if time.monotonic() > look_at:
                    look_at = time.monotonic() + _LOOK_EVERY
                    self._remove_dead(path, answer.lock_id, expiry)
                answer = self._check(answer.lock_id)
        except BaseException:
            self._release(answer.lock_id, path)
            raise
        return Hold(answer.lock_id, answer.asked + expiry, self._longest_call)

    # -- calls -----------------------------------------------------------------------------------

    def _request(self, path: Path) -> _Answer:
        types = self._calls.types
        database, table = self._name(path)
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=database,
            tablename=table,
            operationType=types.DataOperationType.NO_TXN,
        )
        agent = _AGENT + uuid.uuid4().hex
        request = types.LockRequest(
            component=[component], user=self._user, hostname=self._host, agentInfo=agent
        )
        try:
            return self._asking(self._calls.change, "lock", lambda c: c.lock(request))
        except OutcomeUnknownError as error:
            # The table itself is as it was: only the lock is in doubt.
            mine = [lock for lock in self._show(path) if lock.agentInfo == agent]
            if not mine:
                raise ServiceUnavailableError(f"{error}. Nothing was changed") from error
            return _Answer(mine[0].lockid, False, time.monotonic())

    def _check(self, lock_id: int) -> _Answer:
        request = self._calls.types.CheckLockRequest(lockid=lock_id)
        try:
            return self._asking(self._calls.read, "check_lock", lambda c: c.check_lock(request))
        except TException as error:
            if not is_a(error, "NoSuchLockException"):
                raise
            raise ServiceUnavailableError(
                "somebody removed the lock that was waited for: nothing was changed"
            ) from error

    def _asking(self, call: Call, name: str, operation: Callable[[Any], Any]) -> _Answer:
        asked = 0.0

        def at_last(client: Any) -> Any:
            nonlocal asked
            asked = time.monotonic()
            return operation(client)

        answer, states = call(name, at_last), self._calls.types.LockState
        if answer.state not in (states.ACQUIRED, states.WAITING):
            raise ServiceUnavailableError(f"the metastore refused a lock (state {answer.state})")
        return _Answer(int(answer.lockid), bool(answer.state == states.ACQUIRED), asked)

    def _show(self, path: Path) -> list[Any]:
        database, table = self._name(path)
        request = self._calls.types.ShowLocksRequest(dbname=database, tablename=table)
        return self._calls.read("show_locks", lambda c: c.show_locks(request)).locks or []

    def _release(self, lock_id: int, path: Path) -> None:
        """Give a lock back; where that fails it expires, and what was done under it is done."""
        request = self._calls.types.UnlockRequest(lockid=lock_id)
        try:
            # Repeated where the connection fails: no other lock ever gets this number.
            self._calls.read("unlock", lambda c: c.unlock(request))
        except (TException, LanceNamespaceError) as error:
            if not is_a(error, "NoSuchLockException"):
                logger.warning(
                    "lock %d on '%s' is left to expire: %s", lock_id, display(path), text_of(error)
                )

    def _expires_after(self) -> float:
        """Return after how many seconds without a sign of life the metastore gives up a lock."""
        if time.monotonic() - self._expiry_read < _KNOWN_SECONDS:
            return self._expiry
        read = time.monotonic()
        text: str = self._calls.read(
            "get_config_value", lambda c: c.get_config_value(EXPIRY_KEY, "")
        )
        found = _EXPIRY_FORM.fullmatch(text.lower())
        if not found:
            raise unsupported(f"the metastore does not tell {EXPIRY_KEY} ({text[:60]!r})")
        expiry = int(found[1]) * _SECONDS[found[2]]
        if expiry < _CALLS_IN_EXPIRY * self._longest_call:
            raise unsupported(
                f"its locks expire after {expiry:g} s ({EXPIRY_KEY}), in which two calls must "
                f"fit: set client.timeout to {expiry / _CALLS_IN_EXPIRY:g} or less"
            )
        self._expiry, self._expiry_read = expiry, read
        return expiry

    # -- locks of others -------------------------------------------------------------------------

    def _remove_dead(self, path: Path, lock_id: int, expiry: float) -> None:
        """Remove locks of this library's clients that are silent for longer than one may be.

        Both times are the metastore's database's own: ours was set when we last asked.
        """
        locks = self._show(path)
        now = next((lock.lastheartbeat for lock in locks if lock.lockid == lock_id), None)
        for lock in locks:
            ours = (lock.agentInfo or "").startswith(_AGENT)
            if now is None or not ours or lock.lastheartbeat is None:
                continue
            if now - lock.lastheartbeat > expiry * _OVERDUE * 1000:
                logger.warning("removing the lock of a dead client: %s", _describe(lock))
                self._release(lock.lockid, path)

    def _describe_others(self, path: Path, lock_id: int) -> str:
        try:
            others = [lock for lock in self._show(path) if lock.lockid != lock_id]
        except (TException, LanceNamespaceError) as error:
            return f"somebody ({text_of(error)})"
        return "; ".join(map(_describe, others)) or "somebody"

    def _waited_too_long(self, path: Path, holder: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"Table '{display(path)}' was locked by {holder} for {self._patience:g} s "
            "(client.lock-timeout): nothing was changed. A lock of a client that died is removed "
            f"when it is older than the metastore's {EXPIRY_KEY}"
        )

    @staticmethod
    def _name(path: Path) -> tuple[str, str]:
        """Return what a lock is taken on: the same for clients with and without catalogs.

        Tables of one name in several catalogs share a lock, which costs time and harms nothing.
        """
        return _short(path[-2]), _short(path[-1])


class _Queue:
    """The threads of this process that want one table's lock."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.length = 0


def _short(name: str) -> str:
    return name if len(name) <= _WIDTH else hashlib.sha256(name.encode()).hexdigest()


def _describe(lock: Any) -> str:
    return f"lock {lock.lockid} of {lock.user} on {lock.hostname} ({lock.agentInfo})"


_all: weakref.WeakSet[TableLocks] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Threads that had their turn in the parent are not here to end it.
    for locks in list(_all):
        locks._restart()


os.register_at_fork(after_in_child=_after_fork_in_child)
