"""Ends what a process has started once that process has ended: ``python -I -S guardian.py MARK``.

It reads standard input to its end: a pipe that only the process can write to, which the system
closes however the process ends. Then it ends all processes with the mark in their environment: by
SIGTERM, so that they may clean up, and by SIGKILL those that are still there after some seconds.
`servers.processes.end_children_with_this_process` starts it, and sets the mark. It is a program of
its own that uses little of the standard library, to start fast.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import repeat

_EVERY_SECONDS = 0.1
_SIGNALS = (signal.SIGTERM, *repeat(0, 50), *repeat(signal.SIGKILL, 600))
"""One at a time; 0 only looks whether a process is there."""


def main(mark: bytes) -> None:
    """Wait for the end of the pipe, and end all processes with a mark."""
    sys.stdin.buffer.read()
    for number in _SIGNALS:
        if not _send(mark, number):
            return
        time.sleep(_EVERY_SECONDS)


def _send(mark: bytes, number: int) -> bool:
    """Send a signal to all processes with a mark; return whether there are any."""
    found = False
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if mark in environment.read():
                    os.kill(int(name), number)
                    found = True
        except OSError:  # it has just ended, or is another user's
            continue
    return found


if __name__ == "__main__":
    main(os.fsencode(sys.argv[1]))
