"""Keeps a SIGHUP that arrives before the process can reload its configuration.

The default action of SIGHUP would end the process. This module imports nothing that takes long.
"""

from __future__ import annotations

import signal

_received: list[int] = []


def record_reloads() -> None:
    """Record SIGHUP from now on, until another handler replaces this one."""
    signal.signal(signal.SIGHUP, lambda number, _: _received.append(number))


def take_recorded_reload() -> bool:
    """Return whether SIGHUP has been recorded since the last call.

    Call after another handler was installed, so that none is lost in between.
    """
    is_recorded = bool(_received)
    _received.clear()
    return is_recorded
