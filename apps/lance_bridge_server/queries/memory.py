"""The memory that queries may take: each of them, and all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

GIB = 1 << 30

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files with the limit of a container: of control groups 2, and 1."""


def available_memory() -> int:
    """Return the bytes of memory of the machine, or of the container if it has a limit."""
    total = psutil.virtual_memory().total
    for file in map(Path, _CGROUP_LIMITS):
        text = file.read_text().strip() if file.is_file() else ""
        if text.isdigit():  # else "max"
            total = min(total, int(text))
    return total


def default_memory() -> int:
    """Return how much memory a query may take by default: a quarter of all, within bounds."""
    return max(GIB, min(4 * GIB, available_memory() // 4))


def default_total_memory() -> int:
    """Return how much memory all queries may take by default: half of all."""
    return available_memory() // 2


def own_memory(pid: int) -> int:
    """Return the bytes of a process's memory that no other process shares.

    Processes that are forked from one that has loaded Lance share some 200 MB with it.

    Returns:
        0 if the process has ended, or the system does not say it to this user, as on macOS.
    """
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, ValueError):
        return 0


class _Owned(Protocol):
    @property
    def owner(self) -> str:
        """The principal of its query."""


P = TypeVar("P", bound=_Owned)


def find_excess(most: int, idle: Mapping[P, int], running: Mapping[P, int]) -> list[P]:
    """Return the processes that must end so that the others take at most ``most`` bytes.

    They are those without a query, the largest first; and after them the largest of the principal
    whose queries take most. A principal that takes less than its equal part is thus never the one.

    Args:
        idle: The processes without a query, and their sizes in bytes.
        running: The same of the others.
    """
    excess = sum(idle.values()) + sum(running.values()) - most
    idle, running, found = dict(idle), dict(running), list[P]()
    while excess > 0 and (idle or running):
        sizes = idle or _sizes_of_largest_owner(running)
        largest = max(sizes, key=lambda each: sizes[each])
        excess -= sizes[largest]
        found.append(largest)
        idle.pop(largest, None)
        running.pop(largest, None)
    return found


def _sizes_of_largest_owner(running: Mapping[P, int]) -> dict[P, int]:
    taken = _taken_by_owner(running)
    owner = max(taken, key=lambda each: taken[each])
    return {each: size for each, size in running.items() if each.owner == owner}


def find_crowding(most: int, running: Mapping[P, int]) -> frozenset[str]:
    """Return the principals whose next query waits: with queries that take at least three in four.

    It waits if all queries take three in four of ``most`` bytes, and those of the principal at
    least its equal part of that.
    """
    taken = _taken_by_owner(running)
    full = most * 3 // 4
    if not taken or sum(taken.values()) < full:
        return frozenset()
    return frozenset(each for each, size in taken.items() if size * len(taken) >= full)


def _taken_by_owner(running: Mapping[P, int]) -> Counter[str]:
    taken = Counter[str]()
    for each, size in running.items():
        taken[each.owner] += size
    return taken
