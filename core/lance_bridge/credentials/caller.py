"""On whose behalf an operation runs, where one process serves many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """The principal of a request: it gets credentials in its own name, for what it may do."""

    principal: str
    allows: Callable[[bool], bool]
    """Whether it may have credentials for the tables of the request, to write (True) or to read."""


CALLER: ContextVar[Caller | None] = ContextVar("lance_bridge_caller", default=None)
"""On whose behalf this thread works; None where the process works for itself."""


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Answer with credentials for a caller, and never with this process's own rights."""
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)


PRINCIPAL = "lance_bridge.principal"
"""The property of a transaction that names on whose behalf a server made it."""
