"""How often and how long a call to a catalog is attempted, for callers that attempt it again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class _Attempt:
    seconds: float
    connect_seconds: float
    end: float
    """By `time.monotonic`."""


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("lance_bridge_attempt", default=None)


@contextmanager
def one_attempt(seconds: float, connect_seconds: float | None = None) -> Iterator[None]:
    """Make adapters attempt each call once, within these seconds, in this context.

    A connection has half of them, or ``connect_seconds``: the next attempt finds a server that is
    back sooner than the operating system does. Adapters take no connection that may be waiting for
    the reply of an earlier call. A catalog of another library attempts calls as always.
    """
    connect = seconds / 2 if connect_seconds is None else connect_seconds
    token = _ATTEMPT.set(_Attempt(seconds, connect, time.monotonic() + seconds))
    try:
        yield
    finally:
        _ATTEMPT.reset(token)


def attempt_seconds() -> float | None:
    """Return the seconds that `one_attempt` was called with; None if calls may be repeated."""
    found = _ATTEMPT.get()
    return found.seconds if found is not None else None


def connect_within_attempt(seconds: float) -> float:
    """Return a time limit for a connection, or that of the only attempt if it is less."""
    found = _ATTEMPT.get()
    return seconds if found is None else min(within_attempt(seconds), found.connect_seconds)


def within_attempt(seconds: float) -> float:
    """Return a time limit in seconds, or what is left of the only attempt if that is less."""
    found = _ATTEMPT.get()
    return seconds if found is None else min(seconds, max(found.end - time.monotonic(), 0.001))
