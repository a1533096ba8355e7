"""A cache of credentials: one request for many callers, renewed after half of their life."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from .options import half_life

_MOST = 4096


@dataclass(frozen=True)
class _Entry:
    options: Mapping[str, str] = field(repr=False)
    good_until: float


class CredentialCache:
    """Keeps credentials for half of their life. Safe to share between threads.

    Options without a time of expiry are not kept, and neither are failures.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._requests: dict[Hashable, Future[Mapping[str, str]]] = {}

    def get(self, key: Hashable, vend: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
        """Return the options for a key; of callers that need new ones, one asks for all.

        Raises what ``vend`` does, to all callers that waited for it.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and time.time() < entry.good_until:
                self._entries.move_to_end(key)
                return entry.options
            request = self._requests.get(key)
            if request is None:
                mine = self._requests[key] = Future()
        if request is not None:
            return request.result()
        return self._ask(key, vend, mine)

    def _ask(
        self,
        key: Hashable,
        vend: Callable[[], Mapping[str, str]],
        request: Future[Mapping[str, str]],
    ) -> Mapping[str, str]:
        try:
            options = vend()
        except BaseException as error:
            with self._lock:
                del self._requests[key]
            request.set_exception(error)
            raise
        with self._lock:
            del self._requests[key]
            self._entries[key] = _Entry(options, half_life(options))
            self._entries.move_to_end(key)
            if len(self._entries) > _MOST:
                self._entries.popitem(last=False)
        request.set_result(options)
        return options
