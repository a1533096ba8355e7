"""The principal of an operation, in a process that serves several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """The principal of a request, who gets credentials in its own name, with its own rights."""

    principal: str
    allows: Callable[[bool], bool]
    """Returns whether it may have credentials for the tables, to write (True) or to read."""


CALLER: ContextVar[Caller | None] = ContextVar("lance_bridge_caller", default=None)
"""The caller that this thread works for; None if the process works for itself."""


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Run the block for a caller: credentials are then its own, never this process's."""
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)


PRINCIPAL = "lance_bridge.principal"
"""The property of a transaction that names the principal for whom a server made it."""
