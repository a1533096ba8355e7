"""Runs operations in threads, with limits on their number and time."""

from __future__ import annotations

import asyncio
import re
import threading
import time
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


class OperationThreads:
    """Runs operations in threads.

    A thread cannot be stopped. One that takes too long continues after its request has failed, and
    counts as running until it ends.
    """

    def __init__(self, count: int) -> None:
        """Args: count: How many operations run at once; others wait."""
        self._limiter = anyio.CapacityLimiter(count)
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
        slot: Slot | None = None,
    ) -> T:
        """Run an operation in a thread, and return its result.

        Args:
            limit: How long it may take, including the wait for a free thread.
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

        task = asyncio.ensure_future(anyio.to_thread.run_sync(begin, limiter=self._limiter))
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
