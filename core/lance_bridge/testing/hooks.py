"""What a target adds for `CatalogSuite`: entries without the adapter, and faults."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ..catalog import Catalog


@dataclass(frozen=True)
class RawEntry:
    """A table's entry as the catalog itself holds it, read or written without the adapter."""

    location: str | None
    properties: Mapping[str, str] = field(default_factory=dict)
    """All that the catalog stores besides the location, including its own additions."""
    is_external: bool = True
    """The entry has every mark that keeps the catalog from deleting or moving its files."""


@dataclass(frozen=True)
class Neighbour:
    """An entry that another tool keeps in the catalog: see `Target.inhabit`."""

    name: str
    locations: Sequence[str] = ()
    """Where it may have data, by any field of the entry or of its partitions. The kit writes
    datasets there."""
    is_lance: bool = False
    """Whether it is a Lance table, such as one whose data is lost."""


@dataclass
class HeldChange:
    """A request that is stopped on its way to the server."""

    arrived: threading.Event = field(default_factory=threading.Event)
    """Set when the request has left the adapter."""
    release: threading.Event = field(default_factory=threading.Event)
    """Set it to let the request continue."""


class Faults(ABC):
    """Faults between an adapter and its server, or its library if it has no server.

    Every method except `catalog` is optional; the cases that need a missing one are skipped. Each
    returns a context manager, and the fault ends with it.
    """

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """The catalog whose requests are affected. It should not wait long between retries."""

    def lose_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and lose its reply."""
        raise NotImplementedError

    def stall_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and not reply until the context ends.

        `catalog` should wait for a reply for a second or so, not more.
        """
        raise NotImplementedError

    def fail_next_reply(self) -> AbstractContextManager[None]:
        """Let the server make the next change, and reply as `be_broken` does."""
        raise NotImplementedError

    def reject(self) -> AbstractContextManager[None]:
        """Answer every request as the server answers credentials that are wrong or expired."""
        raise NotImplementedError

    def refuse(self) -> AbstractContextManager[None]:
        """Answer every request as the server answers a caller without permission."""
        raise NotImplementedError

    def be_busy(self) -> AbstractContextManager[None]:
        """Answer every request as the server does when it is overloaded or down for a while.

        A library whose readers never wait raises its error for a reader that cannot be admitted.
        """
        raise NotImplementedError

    def be_broken(self) -> AbstractContextManager[None]:
        """Answer every request as the server does after an internal error."""
        raise NotImplementedError

    def break_listing(self) -> AbstractContextManager[None]:
        """Answer the first request of a listing, and later ones as `be_broken` does."""
        raise NotImplementedError

    def hold_next_change(self) -> AbstractContextManager[HeldChange]:
        """Hold the next request that changes something before it reaches the server."""
        raise NotImplementedError

    def changes_received(self) -> int:
        """Return how many requests that change something have reached the server so far.

        For a database these are commits; a change that a comparison refused does not count.
        """
        raise NotImplementedError

    def lacks(self, need: str) -> str:
        """Return why the method ``need`` is missing; empty if it is not."""
        if getattr(type(self), need) is getattr(Faults, need):
            return f"{type(self).__name__} does not implement {need}"
        return ""
