"""How much one request, and one principal, may take."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated

import limits as rates
from lance_namespace.errors import ThrottlingError
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from pydantic import AfterValidator, ConfigDict, Field

from lance_bridge.config import Seconds

from .principals import Principal


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
    """How many requests a principal may make in a time; each process counts for itself."""
    concurrent_requests: Count | None = None
    """How many requests of a principal are answered at once; each process counts for itself."""
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

    def __init__(self) -> None:
        self._rates = MovingWindowRateLimiter(MemoryStorage())
        self._running: Counter[tuple[str, str]] = Counter()

    def admit(self, limits: Limits, principal: Principal) -> Callable[[], None]:
        """Count a request; return a function to call when it was answered.

        Raises:
            TooManyRequestsError: (21) the principal has too many, or too many at once.
        """
        key = (principal.method, principal.name)
        most = limits.concurrent_requests_of(principal)
        if most is not None and self._running[key] >= most:
            raise TooManyRequestsError(
                f"{principal.name} has {most} requests that are being answered, and may not have "
                "more at once; nothing was done",
                1,
            )
        rate = limits.rate_of(principal)
        if rate is not None:
            self._count(rate, principal, key)
        self._running[key] += 1
        return lambda: self._release(key)

    def _count(self, rate: str, principal: Principal, key: tuple[str, str]) -> None:
        item = _parse(rate)
        if not self._rates.hit(item, *key):
            wait = self._rates.get_window_stats(item, *key).reset_time - time.time()
            raise TooManyRequestsError(
                f"{principal.name} may make {item.amount} requests in "
                f"{item.get_expiry()} s; nothing was done",
                wait,
            )

    def _release(self, key: tuple[str, str]) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
