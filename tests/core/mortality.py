"""A client that dies at one of its steps: at a change of the storage or of an entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lance_bridge.storage.table_files import TableFiles

from .memory_catalog import MemoryServer


class Death(BaseException):
    """Ends a client at one of its steps."""


def die() -> None:
    """End the client."""
    raise Death


class Mortal:
    """Dies before one of its changes of the storage or of an entry; later ones fail too."""

    def __init__(self, server: MemoryServer, patch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        server.fault = lambda *_: self.step()
        for name in ("put_new", "put_over", "remove"):
            patch.setattr(TableFiles, name, self.counted(getattr(TableFiles, name)))

    def step(self) -> None:
        """Count a step, and die at the last one."""
        self.left -= 1
        if self.left < 0:
            die()

    def counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """Return a change that is a step."""

        def counted(*args: Any) -> Any:
            self.step()
            return change(*args)

        return counted
