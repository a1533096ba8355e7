"""Faults of servers: what all have in common, and those that are reached through an `HttpProxy`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from servers.http_proxy import Answer, Delay, Fault, HttpProxy, Request

from lance_bridge.catalog import Catalog
from lance_bridge.testing import Faults, HeldChange

_ALWAYS = float("inf")


class AnsweredFaults(Faults):
    """Faults of a server that can be made to answer all requests alike."""

    refusal: Any
    busy: Any
    failure: Any

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @abstractmethod
    def answered(self, answer: Any, passing: int = 0) -> AbstractContextManager[None]:
        """Answer all requests like this, but for so many at first."""

    def refuse(self) -> AbstractContextManager[None]:
        return self.answered(self.refusal)

    def be_busy(self) -> AbstractContextManager[None]:
        return self.answered(self.busy)

    def be_broken(self) -> AbstractContextManager[None]:
        return self.answered(self.failure)

    def break_listing(self) -> AbstractContextManager[None]:
        return self.answered(self.failure, passing=1)


class HttpFaults(AnsweredFaults):
    """What all such servers have in common; a subclass knows their answers and their changes."""

    rejection: Answer

    def __init__(self, proxy: HttpProxy, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._proxy = proxy

    @abstractmethod
    def concerns(self, request: Request) -> bool:
        """Return whether a request is one to the catalog, and not to log in."""

    @abstractmethod
    def is_change(self, request: Request) -> bool:
        """Return whether a request changes something."""

    @contextmanager
    def answered(self, answer: Answer, passing: int = 0) -> Iterator[None]:
        left = passing

        def fits(request: Request) -> bool:
            nonlocal left
            left -= self.concerns(request)
            return self.concerns(request) and left < 0

        self._proxy.fail_next(fits, answer, times=_ALWAYS)
        try:
            yield
        finally:
            self._proxy.reset()

    def reject(self) -> AbstractContextManager[None]:
        return self.answered(self.rejection)

    @contextmanager
    def lose_next_reply(self) -> Iterator[None]:
        self._proxy.fail_next(self.is_change, Fault.LOSE_REPLY)
        yield

    @contextmanager
    def hold_next_change(self) -> Iterator[HeldChange]:
        held = HeldChange()

        def fits(request: Request) -> bool:
            if self.is_change(request):
                held.arrived.set()
                return True
            return False

        self._proxy.fail_next(fits, Delay(release=held.release))
        yield held

    def changes_received(self) -> int:
        return sum(self.is_change(request) for request in self._proxy.requests)
