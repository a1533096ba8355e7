"""What objects must replace in a forked child.

A child has only the thread that forked: a lock that another thread held is never released there,
and a request that another thread made is never answered. Connections are shared with the parent.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Restartable(Protocol):
    """An object with locks, requests or connections of its process."""

    def restart_in_child(self) -> None:
        """Replace locks, and discard requests and connections. Makes no call, raises nothing."""


_objects: weakref.WeakSet[Restartable] = weakref.WeakSet()


def restart_in_children(this: Restartable) -> None:
    """Restart an object in each child that is forked while the object exists."""
    _objects.add(this)


def _after_fork_in_child() -> None:
    for each in list(_objects):
        each.restart_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
