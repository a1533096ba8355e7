"""How long credentials are valid, and a cache of them: renewed after half of their lifetime."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from lance_namespace.errors import ServiceUnavailableError

from ..forks import restart_in_children
from ..records import TableCredentials

EXPIRES_AT = "expires_at_millis"
"""The storage option with the expiry time of the others (milliseconds since 1970)."""
REFRESH_OFFSET = "refresh_offset_millis"
"""The storage option that says how long before that time a client requests new ones."""

_LONGEST_OFFSET = 300.0
_MOST = 4096


def expiring_options(options: Mapping[str, str], expires: float) -> TableCredentials:
    """Return a table's credentials with their expiry time (seconds since 1970).

    Clients refresh them when a quarter of their lifetime is left, or five minutes if that is
    shorter. `CredentialCache` replaces credentials after half of their lifetime, so that clients
    then always get newer ones.
    """
    offset = min(_LONGEST_OFFSET, max(expires - time.time(), 0.0) / 4)
    times = {EXPIRES_AT: str(int(expires * 1000)), REFRESH_OFFSET: str(int(offset * 1000))}
    return TableCredentials({**options, **times})


def remaining_seconds(options: Mapping[str, str]) -> float:
    """Return how long options are valid, by this machine's clock; 0 without an expiry time."""
    if EXPIRES_AT not in options:
        return 0.0
    return max(int(options[EXPIRES_AT]) / 1000 - time.time(), 0.0)


def limit_refresh_offset(options: Mapping[str, str], most_seconds: float) -> Mapping[str, str]:
    """Return options with a refresh offset of at most a quarter of ``most_seconds``.

    If this machine's clock is behind, the lifetime seems longer: clients would refresh them before
    `CredentialCache` has newer ones.
    """
    most = int(most_seconds / 4 * 1000)
    if int(options.get(REFRESH_OFFSET, 0)) <= most:
        return options
    return TableCredentials({**options, REFRESH_OFFSET: str(most)})


@dataclass(frozen=True)
class _Entry:
    """Credentials, and when to renew them, by both clocks of this machine.

    The wall clock may be set back, and the monotonic clock may stop while the machine sleeps.
    """

    options: Mapping[str, str] = field(repr=False)
    until: float
    until_monotonic: float

    @classmethod
    def valid_for(cls, options: Mapping[str, str], seconds: float) -> _Entry:
        return cls(options, time.time() + seconds, time.monotonic() + seconds)

    def is_valid(self) -> bool:
        return time.time() < self.until and time.monotonic() < self.until_monotonic


class CredentialCache:
    """Keeps credentials for half of their lifetime. Safe to share between threads.

    A forked child has the credentials that its parent has cached, and requests its own later.

    The lifetime is measured by this machine's clock, which may be behind, so the caller passes an
    upper limit.

    Options without an expiry time are not kept, nor are failures.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`."""
        self._lock = threading.Lock()
        self._requests: dict[Hashable, Future[Mapping[str, str]]] = {}

    def get(
        self, key: Hashable, vend: Callable[[], Mapping[str, str]], *, most_seconds: float
    ) -> Mapping[str, str]:
        """Return the options for a key; one request serves all callers that need new ones.

        Args:
            most_seconds: The maximum lifetime, whatever the clocks say.

        Raises the errors of ``vend``, in all callers that waited for it, and ValueError if the
        expiry time is not an integer.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.is_valid():
                self._entries.move_to_end(key)
                return entry.options
            request = self._requests.get(key)
            if request is None:
                mine = self._requests[key] = Future()
        if request is not None:
            return request.result()
        return self._vend(key, vend, mine, most_seconds)

    def _vend(
        self,
        key: Hashable,
        vend: Callable[[], Mapping[str, str]],
        request: Future[Mapping[str, str]],
        most_seconds: float,
    ) -> Mapping[str, str]:
        try:
            options = vend()
            life = min(remaining_seconds(options), most_seconds)
        except BaseException as error:
            with self._lock:
                self._requests.pop(key, None)
            # An interrupt, such as Ctrl-C, is for this thread only.
            request.set_exception(error if isinstance(error, Exception) else _interrupted())
            raise
        with self._lock:
            self._requests.pop(key, None)
            if life > 0:
                self._entries[key] = _Entry.valid_for(options, life / 2)
                self._entries.move_to_end(key)
                if len(self._entries) > _MOST:
                    self._entries.popitem(last=False)
        request.set_result(options)
        return options


def _interrupted() -> ServiceUnavailableError:
    return ServiceUnavailableError("The request for credentials was interrupted: retry")
