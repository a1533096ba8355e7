"""Places in a pool, given to waiting threads in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque


class FairSlots:
    """A number of places. `threading.Semaphore` gives a free one to whichever thread runs first.

    Of many threads that call without a pause, those that have just had a place then get it again,
    and others wait for seconds.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take a place within ``timeout`` seconds; return False where none came free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            came = turn.acquire(timeout=timeout)
        except BaseException:
            # Ctrl-C, say: a place that was given meanwhile goes to the next.
            if not self._leave(turn):
                self.release()
            raise
        return came or not self._leave(turn)

    def _leave(self, turn: threading.Lock) -> bool:
        """Stop waiting; return False where a place was given just before."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False

    def release(self) -> None:
        """Give a place to the thread that has waited longest, or keep it free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
