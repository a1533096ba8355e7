"""Runs operations in threads, with limits on their number and time."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.errors import OutcomeUnknownError, invalid

from ..operations import Operation
from .limits import Slot

T = TypeVar("T")

TIMEOUT_HEADER = "x-request-timeout-ms"
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


def share_of(count: int) -> int:
    """Return how many of a number of places one principal may have: some stay for the others."""
    return max(1, count * 3 // 4)


class FairPlaces:
    """A number of places, which principals get in turn. Use in the thread of the event loop."""

    def __init__(self, count: int, most_waiting: int) -> None:
        """Create free places.

        Args:
            most_waiting: How many requests of one principal may wait for a place.
        """
        self._free = count
        self._share = share_of(count)
        self._most_waiting = most_waiting
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, owner: str) -> None:
        """Wait for a place.

        Raises:
            ServiceUnavailableError: (17) too many requests of this principal wait.
        """
        waiting = self._waiting.setdefault(owner, deque())
        if len(waiting) >= self._most_waiting:
            raise ServiceUnavailableError(
                f"{len(waiting)} requests of this principal wait: the server is busy; nothing was "
                "changed"
            )
        place = asyncio.get_running_loop().create_future()
        waiting.append(place)
        self._grant()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiting[owner].remove(place)
            else:
                self.release(owner)
            raise

    def release(self, owner: str) -> None:
        """Return a place."""
        self._free += 1
        self._held[owner] -= 1
        self._grant()

    def _grant(self) -> None:
        """Give each free place to the principal that has got none for the longest time."""
        for owner in list(self._waiting):
            waiting = self._waiting[owner]
            if self._free and waiting and self._held[owner] < self._share:
                waiting.popleft().set_result(None)
                self._free -= 1
                self._held[owner] += 1
                self._waiting.move_to_end(owner)
            if not waiting:
                del self._waiting[owner]
            if not self._held[owner]:
                del self._held[owner]


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
        self._places = FairPlaces(count, most_waiting)
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
        owner: str = "",
        slot: Slot | None = None,
    ) -> T:
        """Run an operation in a thread, and return its result.

        Args:
            limit: How long it may take, including the wait for a free thread.
            owner: Its principal. One of them cannot have all threads.
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
            await self._places.acquire(owner)
            try:
                return await anyio.to_thread.run_sync(begin, limiter=self._limiter)
            finally:
                self._places.release(owner)

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


def unfinished_error(why: str, outcome: str, *, may_change: bool) -> ServiceUnavailableError:
    """Return the error for a request whose operation has not ended.

    Args:
        outcome: The part of the message that says what is unknown.
        may_change: Whether a thread is still running that may change something.
    """
    if not may_change:
        return ServiceUnavailableError(f"{why}; nothing was changed")
    return OutcomeUnknownError(f"{why}: {outcome} is unknown; check it before you repeat it")
