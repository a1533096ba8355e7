"""Runs operations in threads, with limits on their number and time, and equal reads as one call."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.errors import invalid

from ..errors import unfinished_error
from ..operations import Operation
from ..queries.pool import fair_share
from .limits import Slot

T = TypeVar("T")

TIMEOUT_HEADER = "x-request-timeout-ms"
_MAX_REST_SECONDS = 0.5
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


def requested_seconds(headers: Mapping[str, str]) -> float:
    """Return the timeout in a client's headers, in seconds, or infinity if there is none.

    Raises:
        InvalidInputError: (13) the header is not a positive integer.
    """
    text = headers.get(TIMEOUT_HEADER)
    if text is None:
        return float("inf")
    if not _MILLISECONDS.fullmatch(text) or not int(text):
        raise invalid(f"The header {TIMEOUT_HEADER} is not a positive integer")
    return int(text) / 1000


class TimeLimit:
    """How long a request may take, from the creation of this object on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """The remaining seconds, at least 0, or infinity."""
        return max(0.0, self._end - time.monotonic())


class Use:
    """Who uses a place: a principal, to call a catalog if that is known, perhaps for a query."""

    def __init__(
        self, owner: str = "", catalog: str | None = None, *, is_query: bool = False
    ) -> None:
        self.owner = owner
        self.catalog = catalog
        self.keys = [("owner", owner)]
        """What the place counts for."""
        if catalog is not None:
            self.keys += [("catalog", catalog), ("owner in catalog", f"{catalog} {owner}")]
        if is_query:
            self.keys += [("queries", ""), ("owner's queries", owner)]


_NOBODY = Use()


def catalog_share(count: int) -> int:
    """Return how many of so many places the calls of one catalog may take."""
    return max(1, count // 2)


class FairPlaces:
    """A number of places, which principals get in turn. Use in the thread of the event loop.

    A principal gets its `fair_share` of them, and the calls of one catalog at most half. Queries,
    which may take as long as a request may, get a quarter, so that they do not delay other calls.
    Of each part, a principal gets its fair share.
    """

    def __init__(self, count: int, most_waiting: int) -> None:
        """Create free places.

        Args:
            most_waiting: How many requests of one principal may wait for a place.
        """
        self._free = count
        of_queries = max(1, count // 4)
        self._shares = {
            "owner": fair_share(count),
            "catalog": catalog_share(count),
            "owner in catalog": fair_share(catalog_share(count)),
            "queries": of_queries,
            "owner's queries": fair_share(of_queries),
        }
        self._most_waiting = most_waiting
        self._held: Counter[tuple[str, str]] = Counter()
        self._waiting: OrderedDict[str, list[_Waiting]] = OrderedDict()

    async def acquire(self, use: Use) -> None:
        """Wait for a place.

        Raises:
            ServiceUnavailableError: (17) too many requests of this principal wait.
        """
        if not self._waiting and self._has_room(use):
            self._count(use, 1)
            return
        waiting = self._waiting.setdefault(use.owner, [])
        if len(waiting) >= self._most_waiting:
            raise ServiceUnavailableError(
                f"{len(waiting)} requests of this principal wait: the server is busy; nothing was "
                "changed"
            )
        asked = _Waiting(asyncio.get_running_loop().create_future(), use)
        waiting.append(asked)
        self._grant()
        try:
            await asked.place
        except asyncio.CancelledError:
            if asked.place.cancelled():
                waiting.remove(asked)
            else:
                self.release(use)
            raise

    async def acquire_within(self, use: Use, limit: TimeLimit) -> None:
        """Wait for a place, for as long as the request may take.

        Raises:
            ServiceUnavailableError: (17) it took too long, or too many of this principal wait.
        """
        try:
            await asyncio.wait_for(self.acquire(use), limit.remaining)
        except asyncio.TimeoutError:
            raise ServiceUnavailableError(
                f"Others had large bodies for {limit.seconds:g} s: the server is busy; nothing was "
                "changed"
            ) from None

    def release(self, use: Use) -> None:
        """Return a place."""
        self._count(use, -1)
        if self._waiting:
            self._grant()

    def refuse(self, catalog: str, error: Callable[[], Exception]) -> None:
        """Raise an error in the requests that wait to call a catalog."""
        for waiting in self._waiting.values():
            for each in [each for each in waiting if each.use.catalog == catalog]:
                if not each.place.done():
                    each.place.set_exception(error())
                    waiting.remove(each)

    def _grant(self) -> None:
        """Give each free place to the principal that has got none for the longest time."""
        for owner in list(self._waiting):
            waiting = self._waiting[owner]
            pending = (each for each in waiting if not each.place.done())  # else just cancelled
            found = next((each for each in pending if self._has_room(each.use)), None)
            if found is not None:
                waiting.remove(found)
                found.place.set_result(None)
                self._count(found.use, 1)
                self._waiting.move_to_end(owner)
            if not waiting:
                del self._waiting[owner]

    def _has_room(self, use: Use) -> bool:
        held, shares = self._held, self._shares
        return self._free > 0 and all(held[key] < shares[key[0]] for key in use.keys)

    def _count(self, use: Use, added: int) -> None:
        self._free -= added
        for key in use.keys:
            self._held[key] += added
            if not self._held[key]:
                del self._held[key]


class _Waiting(NamedTuple):
    """A request that waits for a place."""

    place: asyncio.Future[None]
    use: Use


class PacedThread:
    """Runs work that holds the interpreter, such as parsing, one call at a time and with rests.

    Such work may keep all other threads waiting. Each rest is as long as the work before it, so
    that small requests of others pass between two large ones. Principals take turns.
    """

    def __init__(self, most_waiting: int) -> None:
        """Args: most_waiting: How many calls of one principal may wait."""
        self._limiter = anyio.CapacityLimiter(1)
        self._places = FairPlaces(1, most_waiting)

    async def run(self, work: Callable[[], T], owner: str, limit: TimeLimit) -> T:
        """Run work in the thread, and return its result.

        Raises:
            ServiceUnavailableError: (17) its turn did not come in time, or too many calls of this
                principal wait.
        """
        use = Use(owner)
        await self._places.acquire_within(use, limit)
        started = time.perf_counter()
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            rest = min(time.perf_counter() - started, _MAX_REST_SECONDS)
            asyncio.get_running_loop().call_later(rest, self._places.release, use)


class OperationThreads:
    """Runs operations in threads.

    A thread cannot be stopped. One that takes too long continues after its request has failed, and
    counts as running until it ends.
    """

    def __init__(self, count: int, most_waiting: int) -> None:
        """Create the threads.

        Args:
            count: How many operations run at once; others wait.
            most_waiting: How many operations of one principal may wait.
        """
        self._limiter = anyio.CapacityLimiter(count)
        self.places = FairPlaces(count, most_waiting)
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """How many operations run or wait, including those whose request has timed out."""
        return len(self._running)

    async def run(
        self,
        work: Callable[[], T],
        operation: Operation,
        limit: TimeLimit,
        use: Use = _NOBODY,
        slot: Slot | None = None,
    ) -> T:
        """Run an operation in a thread, and return its result.

        Args:
            limit: How long it may take, including the wait for a free thread.
            use: Its principal, and the catalog that it calls.
            slot: The request's slot, which the operation uses until its thread ends.

        Raises:
            ServiceUnavailableError: (17) it took too long. It changed nothing and will not.
            OutcomeUnknownError: (17) it took too long, and may still make its change.
        """
        claim = threading.Lock()  # acquired by the work when it begins, or by the end of the wait

        def begin() -> T:
            if not claim.acquire(blocking=False):
                raise RuntimeError("The wait for this operation ended before it began")
            return work()

        async def run() -> T:
            await self.places.acquire(use)
            try:
                return await anyio.to_thread.run_sync(begin, limiter=self._limiter)
            finally:
                self.places.release(use)

        task = asyncio.ensure_future(run())
        self._running.add(task)
        task.add_done_callback(self._forget)
        if slot is not None:
            slot.use()
            task.add_done_callback(lambda _: slot.leave())
        seconds = limit.remaining
        try:
            await asyncio.wait({task}, timeout=None if seconds == float("inf") else seconds)
        finally:
            has_begun = not claim.acquire(blocking=False)
            if not has_begun:
                task.cancel()
        if not has_begun:
            await asyncio.wait({task})  # it has left the slot before the client has the response
        if task.done() and not task.cancelled():
            return task.result()
        raise _timeout_error(operation, limit.seconds, has_begun=has_begun)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio would log it as never retrieved after a timeout


def _timeout_error(
    operation: Operation, seconds: float, *, has_begun: bool
) -> ServiceUnavailableError:
    within = f"within {seconds:g} s" + ("" if has_begun else ": the server is busy")
    if operation.is_read:
        return ServiceUnavailableError(f"{operation.name} did not respond {within}")
    late = f"{operation.name} did not finish {within}"
    return unfinished_error(late, "its outcome", may_change=has_begun)


# -- equal reads -----------------------------------------------------------------------------------


class SingleFlight:
    """Merges equal calls of several threads, without stale results.

    A call that arrives while an equal one runs may not use its result, which may be older than a
    change that the caller has just made. It waits, and all that wait are one call afterwards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, _Flight] = {}

    def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """Return the result of a call that began after this method was called, or raise its error.

        Args:
            key: Equal for calls that have the same result.
        """
        with self._lock:
            running = self._running.get(key)
            flight = running.following if running is not None else None
            is_first = flight is None
            if flight is None:
                flight = _Flight()
                if running is None:
                    self._running[key] = flight
                else:
                    running.following = flight
        if is_first:
            if running is not None:
                running.result.exception()  # wait for its end
            self._fly(key, flight, call)
        try:
            result: T = flight.result.result()
            return result
        finally:
            del flight  # an error's traceback refers to this frame

    def _fly(self, key: Hashable, flight: _Flight, call: Callable[[], Any]) -> None:
        try:
            flight.result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the waiting threads raise it
            flight.result.set_exception(error)
        finally:
            with self._lock:
                if flight.following is None:
                    del self._running[key]
                else:
                    self._running[key] = flight.following


@dataclass(eq=False)
class _Flight:
    """A call, and the one that begins when it has ended."""

    result: Future[Any] = field(default_factory=Future)
    following: _Flight | None = None
