"""How much one request, and one principal, may take."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated

import limits as rates
from lance_namespace.errors import LanceNamespaceError, ThrottlingError
from pydantic import AfterValidator, ConfigDict, Field

from lance_bridge.config import Seconds

from .principals import Principal
from .request_counts import RequestCounts


def _check_rate(text: str) -> str:
    rates.parse(text)  # raises ValueError
    return text


Rate = Annotated[str, Field(max_length=40), AfterValidator(_check_rate)]
"""A number and a time: ``100/second``, ``1000/minute``, ``10 per 2 seconds``."""
Count = Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class PrincipalLimits:
    """Limits of one principal that differ from those of all."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    rate: Rate | None = None
    concurrent_requests: Count | None = None
    body_bytes: Count | None = None


@dataclass(frozen=True)
class Limits:
    """How much one request may take. Its fields are keys of the configuration."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    body_bytes: Count = 16 << 20
    """The largest JSON body."""
    batch_entries: Count = 1000
    """How many entries a batch of operations may have."""
    batch_bytes: Count = 256 << 20
    """The largest batch of rows that is sent, without compression: each is held as a whole."""
    stall_seconds: Seconds = 120.0
    """How long a client may send or read nothing while rows are sent, and send a JSON body."""
    operation_seconds: Seconds = 3600.0
    """How long an operation may take until the answer is that its outcome is unknown."""
    connections: Count | None = None
    """How many connections may be open in a process. By default half of the files that may be."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 64
    """How many operations are carried out at once, and to how many clients rows are sent."""
    rate: Rate | None = None
    """How many requests a principal may make in a time, of all worker processes together."""
    concurrent_requests: Count | None = None
    """How many requests of a principal are answered at once, by all of them together."""
    principals: Mapping[str, PrincipalLimits] = field(default_factory=dict)
    """Other limits for some principals, by name."""

    def body_bytes_of(self, principal: Principal) -> int:
        """Return the largest JSON body that a principal may send."""
        return self._own(principal).body_bytes or self.body_bytes

    def rate_of(self, principal: Principal) -> str | None:
        """Return the rate of a principal; None for none."""
        return self._own(principal).rate or self.rate

    def concurrent_requests_of(self, principal: Principal) -> int | None:
        """Return how many requests of a principal are answered at once; None for any number."""
        return self._own(principal).concurrent_requests or self.concurrent_requests

    def _own(self, principal: Principal) -> PrincipalLimits:
        return self.principals.get(principal.name, _NONE)


_NONE = PrincipalLimits()


class TooManyRequestsError(ThrottlingError):
    """A principal makes more requests than it may. Nothing was done."""

    def __init__(self, message: str, seconds: float) -> None:
        """Args: seconds: After which another request may be made."""
        super().__init__(message)
        self.retry_after = max(1, math.ceil(seconds))


_parse = cache(rates.parse)


class Admission:
    """Counts the requests of principals. For one thread: that of the event loop."""

    def __init__(self, counts: RequestCounts | None = None) -> None:
        """Args: counts: Those of all worker processes; by default those of this one."""
        self._counts = counts or RequestCounts()

    def admit(self, limits: Limits, principal: Principal) -> Callable[[], None]:
        """Count a request; return a function to call when it was answered.

        Raises:
            TooManyRequestsError: (21) the principal has too many, or too many at once.
            ServiceUnavailableError: (17) as `RequestCounts`.
        """
        key = (principal.method, principal.name)
        most = limits.concurrent_requests_of(principal)
        running = _counter("running", *key)
        if most is not None and not self._counts.begin(running, most):
            raise TooManyRequestsError(
                f"{principal.name} already has {most} concurrent requests, the limit; "
                "nothing was done",
                1,
            )
        release = partial(self._counts.end, running) if most is not None else _do_nothing
        rate = limits.rate_of(principal)
        if rate is not None:
            try:
                self._count(rate, principal, key)
            except LanceNamespaceError:
                release()
                raise
        return release

    def _count(self, rate: str, principal: Principal, key: tuple[str, str]) -> None:
        item = _parse(rate)
        wait = self._counts.add(_counter(rate, *key), item.amount, item.get_expiry())
        if wait:
            raise TooManyRequestsError(
                f"{principal.name} exceeded {item.amount} requests per {item.get_expiry()} s; "
                "nothing was done",
                wait,
            )

    def check_failures(self, rate: str, address: str) -> None:
        """Refuse another attempt to sign in from an address where too many have failed.

        Raises:
            TooManyRequestsError: (21)
            ServiceUnavailableError: (17) as `RequestCounts`.
        """
        wait = self._counts.wait(_counter("failures", rate, address), _parse(rate).amount)
        if wait:
            raise TooManyRequestsError("Too many attempts to sign in have failed", wait)

    def count_failure(self, rate: str, address: str) -> None:
        """Count an attempt to sign in that has failed."""
        item = _parse(rate)
        self._counts.add(_counter("failures", rate, address), item.amount, item.get_expiry())


def _counter(*parts: str) -> str:
    return json.dumps(parts)


def _do_nothing() -> None:
    pass
