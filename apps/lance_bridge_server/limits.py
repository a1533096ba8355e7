"""The limits of each request and each principal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, NamedTuple

from lance_namespace.errors import LanceNamespaceError, ThrottlingError
from pydantic import AfterValidator, ConfigDict, Field

from lance_bridge.config import Seconds

from .principals import Principal
from .request_counts import RequestCounts

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
    rate: Rate | None = None
    """How many requests a principal may send in a period, to all worker processes together."""
    concurrent_requests: Count | None = None
    """How many requests of a principal may run at once, in all worker processes together."""
    principals: Mapping[str, PrincipalLimits] = field(default_factory=dict)
    """Other limits for some principals, by name."""

    def body_bytes_of(self, principal: Principal) -> int:
        """Return the largest JSON body that a principal may send."""
        return self._limits_of(principal).body_bytes or self.body_bytes

    def rate_of(self, principal: Principal) -> str | None:
        """Return the rate of a principal, or None if it has none."""
        return self._limits_of(principal).rate or self.rate

    def concurrent_requests_of(self, principal: Principal) -> int | None:
        """Return how many requests of a principal may run at once; None for any number."""
        return self._limits_of(principal).concurrent_requests or self.concurrent_requests

    def _limits_of(self, principal: Principal) -> PrincipalLimits:
        return self.principals.get(principal.name, _NONE)


_NONE = PrincipalLimits()


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

    def admit(self, limits: Limits, principal: Principal) -> Slot:
        """Count a request, and return its slot, to leave at its end.

        Raises:
            TooManyRequestsError: (21) the principal sends too many, or too many at once.
            ServiceUnavailableError: (17) as `RequestCounts`.
        """
        key = (principal.method, principal.name)
        most = limits.concurrent_requests_of(principal)
        running = _counter_name("running", *key)
        if most is not None and not self._counts.begin(running, most):
            raise TooManyRequestsError(
                f"{principal.name} already has {most} concurrent requests, the limit; "
                "nothing was done",
                1,
            )
        slot = Slot(partial(self._counts.end, running) if most is not None else _do_nothing)
        rate = limits.rate_of(principal)
        if rate is not None:
            try:
                self._count(rate, principal, key)
            except LanceNamespaceError:
                slot.leave()
                raise
        return slot

    def _count(self, rate: str, principal: Principal, key: tuple[str, str]) -> None:
        requests, seconds = _parse(rate)
        wait = self._counts.add(_counter_name(rate, *key), requests, seconds)
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


def _counter_name(*parts: str) -> str:
    return json.dumps(parts)


def _do_nothing() -> None:
    pass
