"""Settings of the C library's allocator, so that freed memory returns to the system."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Parameters of ``mallopt``. Source: malloc.h of glibc."""
_ARENAS = 2
_LARGE_BYTES = 4 << 20


def limit_heaps() -> None:
    """Make glibc keep little freed memory. Do nothing with other C libraries.

    By default, glibc has up to eight heaps for each processor, and serves increasingly large
    allocations from them: after some large batches, a server kept 100 MB of freed memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_M_ARENA_MAX, _ARENAS)
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
