"""The limits of each request and each principal."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, ThrottlingError
from pydantic import AfterValidator, ConfigDict, Field

from lance_bridge.config import Seconds

from ..access.authentication import Principal

_SEVERAL = re.compile("[,;|]")
_RATE = re.compile(r"\s*([0-9]+)\s*(?:/|per)\s*([0-9]+)?\s*([a-z]+)\s*", re.IGNORECASE)
_MINUTE, _DAY = 60, 86_400
_SECONDS = {
    "second": 1,
    "minute": _MINUTE,
    "hour": 60 * _MINUTE,
    "day": _DAY,
    "month": 30 * _DAY,
    "year": 360 * _DAY,
}


class _ParsedRate(NamedTuple):
    requests: int
    seconds: int


@cache
def _parse(text: str) -> _ParsedRate:
    """Return a rate; of several, the first. Raises ValueError."""
    found = [_RATE.fullmatch(each) for each in _SEVERAL.split(text)]
    rates = [_ParsedRate(int(each[1]), _period(each[2], each[3])) for each in found if each]
    if len(rates) < len(found):
        raise ValueError(f"couldn't parse rate limit string '{text}'")
    return rates[0]


def _period(count: str | None, unit: str) -> int:
    """Return the seconds of a period. Raises ValueError."""
    name = unit.lower().removesuffix("s")
    if name not in _SECONDS:
        raise ValueError(f"no granularity matched for {unit}")
    return (int(count or 1) or 1) * _SECONDS[name]


def _check_rate(text: str) -> str:
    _parse(text)
    return text


Rate = Annotated[str, Field(max_length=40), AfterValidator(_check_rate)]
"""A number of requests and a period: ``100/second``, ``1000/minute``, ``10 per 2 seconds``."""
Count = Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class PrincipalLimits:
    """Limits of one principal that override the general ones."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    rate: Rate | None = None
    concurrent_requests: Count | None = None
    body_bytes: Count | None = None


@dataclass(frozen=True)
class Limits:
    """The limits of requests. The fields are keys of the configuration."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    body_bytes: Count = 16 << 20
    """The largest JSON body."""
    batch_entries: Count = 1000
    """How many entries a batch of operations may have."""
    batch_bytes: Count = 256 << 20
    """The largest uncompressed batch of rows in a request: each is held in memory as a whole."""
    stall_seconds: Seconds = 120.0
    """How long a client may stall while rows or a large response are sent, and take to send a JSON
    body."""
    operation_seconds: Seconds = 3600.0
    """How long an operation may take; after that, its outcome is reported as unknown."""
    connections: Count | None = None
    """How many connections a process may have open. By default half of its limit of open files."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 64
    """How many operations run at once, and to how many clients rows are sent at once."""
    waiting_requests: Count = 256
    """How many requests of a principal may wait for a thread. It gets at most three in four
    threads, in turn with the others."""
    rate: Rate | None = None
    """How many requests a principal may send in a period, to all worker processes together."""
    concurrent_requests: Count | None = None
    """How many requests of a principal may run at once, in all worker processes together. By
    default 512 in each process."""
    principals: Mapping[str, PrincipalLimits] = field(default_factory=dict)
    """Other limits for some principals, by name."""

    def of(self, principal: Principal) -> PrincipalLimits:
        """Return the limits of a principal: its own, else the general ones."""
        own = self.principals.get(principal.name, _NONE)
        return PrincipalLimits(
            own.rate or self.rate,
            own.concurrent_requests or self.concurrent_requests,
            own.body_bytes or self.body_bytes,
        )


_NONE = PrincipalLimits()
_CONCURRENT_REQUESTS = 512
"""How many requests of a principal a process serves at once by default."""


class TooManyRequestsError(ThrottlingError):
    """A principal exceeded a limit of requests. Nothing was done."""

    def __init__(self, message: str, seconds: float) -> None:
        """Args: seconds: How long to wait before the next request."""
        super().__init__(message)
        self.retry_after = max(1, math.ceil(seconds))


class Slot:
    """A place among the concurrent requests of a principal.

    It is used by the request, and by each of its operations whose thread is still running: those
    outlive a request that has timed out. Call only in the thread of the event loop.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        """Args: release: Called when nothing uses the slot any more."""
        self._release = release
        self._users = 1

    def use(self) -> None:
        """Use the slot once more."""
        self._users += 1

    def leave(self) -> None:
        """End one use of the slot."""
        self._users -= 1
        if not self._users:
            self._release()


class Admission:
    """Counts the requests of principals. Call only in the thread of the event loop."""

    def __init__(self, counts: RequestCounts | None = None) -> None:
        """Args: counts: The counters of all worker processes; by default of this process alone."""
        self._counts = counts or RequestCounts()
        self._running = Counter[tuple[str, str]]()
        """The requests of this process that have no slot, by method and name of the principal."""

    def admit(
        self, state: MutableMapping[str, Any], limits: PrincipalLimits, principal: Principal
    ) -> None:
        """Count a request, until `leave`.

        Args:
            state: The state of the request. It gets the key ``slot`` with its `Slot` if there is a
                limit of all processes, else the key ``counted``.

        Raises:
            TooManyRequestsError: (21) the principal sends too many, or too many at once.
            ServiceUnavailableError: (17) as `RequestCounts`.
        """
        slot, most = None, limits.concurrent_requests
        who = (principal.method, principal.name)
        if most is not None:
            slot = self._begin(most, principal)
        elif self._running[who] >= _CONCURRENT_REQUESTS:
            raise _too_many_error(principal, _CONCURRENT_REQUESTS)
        if limits.rate is not None:
            try:
                self._count(limits.rate, principal)
            except LanceNamespaceError:
                if slot is not None:
                    slot.leave()
                raise
        if slot is not None:
            state["slot"] = slot
        else:  # the principal of the state may change: a user signs in
            state["counted"] = who
            self._running[who] += 1

    def leave(self, state: MutableMapping[str, Any]) -> None:
        """End the count of a request, unless that was done, or it was never admitted."""
        slot: Slot | None = state.pop("slot", None)
        if slot is not None:
            slot.leave()
        who = state.pop("counted", None)
        if who is not None:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]

    def _begin(self, most: int, principal: Principal) -> Slot:
        running = _counter_name("running", principal.method, principal.name)
        if not self._counts.begin(running, most):
            raise _too_many_error(principal, most)
        return Slot(partial(self._counts.end, running))

    def _count(self, rate: str, principal: Principal) -> None:
        requests, seconds = _parse(rate)
        counter = _counter_name(rate, principal.method, principal.name)
        wait = self._counts.add(counter, requests, seconds)
        if wait:
            raise TooManyRequestsError(
                f"{principal.name} exceeded {requests} requests per {seconds} s; nothing was done",
                wait,
            )

    def check_failures(self, rate: str, address: str) -> None:
        """Refuse a failed attempt to sign in if too many from its address have failed.

        Raises:
            TooManyRequestsError: (21)
            ServiceUnavailableError: (17) as `RequestCounts`.
        """
        wait = self._counts.wait(_counter_name("failures", rate, address), _parse(rate).requests)
        if wait:
            raise TooManyRequestsError("Too many attempts to sign in have failed", wait)

    def count_failure(self, rate: str, address: str) -> None:
        """Count a failed attempt to sign in. Raises ServiceUnavailable (17) as `RequestCounts`."""
        self._counts.add(_counter_name("failures", rate, address), *_parse(rate))


def _too_many_error(principal: Principal, most: int) -> TooManyRequestsError:
    return TooManyRequestsError(
        f"{principal.name} already has {most} concurrent requests, the limit; nothing was done", 1
    )


def _counter_name(*parts: str) -> str:
    return json.dumps(parts)


# -- counts of all processes -----------------------------------------------------------------------


_log = logging.getLogger(__name__)

_LOCK_SECONDS = 2.0
"""How long to wait for other processes. Each holds the lock for less than a millisecond."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS recent (counter TEXT, expires REAL);
CREATE INDEX IF NOT EXISTS by_counter ON recent (counter, expires);
CREATE INDEX IF NOT EXISTS by_expires ON recent (expires);
CREATE TABLE IF NOT EXISTS running (
    counter TEXT, process INTEGER, count INTEGER, PRIMARY KEY (counter, process)
);
"""


class RequestCounts:
    """Counters by name. Use in one thread of each process.

    Raises:
        ServiceUnavailableError: (17) the file cannot be used; nothing was counted.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Open the counters.

        Args:
            file: The shared file, None to count for this process alone. It is created if missing:
                do so before other processes open it, as SQLite does not let several create it.
        """
        target = str(file) if file else ":memory:"
        self._database = sqlite3.connect(
            target, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._database.executescript(_SCHEMA)
        self._running: Counter[str] = Counter()

    def add(self, counter: str, most: int, seconds: float) -> float:
        """Count an event, unless there were ``most`` of them in the last ``seconds``.

        Returns:
            0 if it was counted, else the seconds until the next one can be.
        """
        with self._transaction() as database:
            wait = self.wait(counter, most)
            if not wait:
                now = time.time()
                database.execute("DELETE FROM recent WHERE expires <= ?", [now])
                database.execute("INSERT INTO recent VALUES (?, ?)", [counter, now + seconds])
        return wait

    def wait(self, counter: str, most: int) -> float:
        """Return the seconds until the next event can be counted, or 0 if it can be now."""
        with _translate_errors():
            found = self._database.execute(
                "SELECT expires FROM recent WHERE counter = ? "
                "ORDER BY expires DESC LIMIT 1 OFFSET ?",
                [counter, most - 1],
            ).fetchone()
        return max(0.0, found[0] - time.time()) if found else 0.0

    def begin(self, counter: str, most: int) -> bool:
        """Count an event that lasts until `end`, unless ``most`` do. Return whether it counted."""
        with self._transaction() as database:
            query = "SELECT sum(count) FROM running WHERE counter = ?"
            (running,) = database.execute(query, [counter]).fetchone()
            if (running or 0) >= most:
                return False
            self._store(counter, self._running[counter] + 1)
        self._running[counter] += 1
        return True

    def end(self, counter: str) -> None:
        """Uncount an event that this process began; if that fails, the next change corrects it."""
        self._running[counter] -= 1
        try:
            with self._transaction():
                self._store(counter, self._running[counter])
        except ServiceUnavailableError as error:
            _log.error("%s", error)
        else:
            if not self._running[counter]:
                del self._running[counter]

    def forget_process(self, process: int) -> None:
        """Uncount all events of a process that has ended."""
        try:
            with self._transaction() as database:
                database.execute("DELETE FROM running WHERE process = ?", [process])
        except ServiceUnavailableError as error:
            _log.error("%s", error)

    def _store(self, counter: str, running: int) -> None:
        # The absolute number corrects the count after a change that could not be written.
        row = [counter, os.getpid(), running]
        self._database.execute("INSERT OR REPLACE INTO running VALUES (?, ?, ?)", row)
        self._database.execute("DELETE FROM running WHERE count = 0")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the file against writes by other processes."""
        with _translate_errors(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = f"The request limits cannot be checked: {error}; nothing was done"
        raise ServiceUnavailableError(message) from error
