"""The clock of a process: what Python's code in it takes for the time."""

from __future__ import annotations

import time

_real, _real_ns = time.time, time.time_ns


def put_ahead(seconds: float) -> None:
    """Have this process see a time that many seconds from now, from now on.

    Not what Lance writes into a manifest, and not what AWS's requests are signed with: neither
    decides about a commit.
    """
    time.time = lambda: _real() + seconds
    time.time_ns = lambda: _real_ns() + int(seconds * 1e9)
