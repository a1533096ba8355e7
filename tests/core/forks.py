"""Runs a function in a forked child."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def returns_in_child(work: Callable[[], object], seconds: int = 20) -> bool:
    """Return whether a function returns in a forked child, within a time."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)  # ends a child that waits for ever
            work()
            status = 0
        except Exception:  # noqa: BLE001 - the exit status says it
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0
