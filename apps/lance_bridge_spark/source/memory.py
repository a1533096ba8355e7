"""The memory of scans: what the tasks of one executor may hold together of large rows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from lance_bridge.dataset import SCAN_BYTES
from lance_bridge.errors import invalid

MEMORY = "spark.lance_bridge.scan.memory"
MASTER, CORES, CPUS = "spark.master", "spark.executor.cores", "spark.task.cpus"
SETTINGS = (MEMORY, MASTER, CORES, CPUS)
"""The settings of a session by which `scan_memory` divides its memory."""

_LEAST = 16 * 2**20
"""The least memory of a task: batches of 1 MiB."""
_SIZE = re.compile(r"(\d+)([kmgt]?)b?")
_LOCAL = re.compile(r"local(?:-cluster\[\s*\d+\s*,\s*|\[\s*)?(\d+|\*)?")


def scan_memory(settings: Mapping[str, str | None]) -> int:
    """Return about how many bytes the scan of one task may hold.

    Args:
        settings: Those of `SETTINGS` that the session has.

    Raises:
        InvalidInputError: (13) the memory is not a size, such as ``512m``.
    """
    given = settings.get(MEMORY)
    if not given:
        return SCAN_BYTES
    found = _SIZE.fullmatch(given.strip().lower())
    if found is None:
        raise invalid(f"Setting {MEMORY} is {given[:60]!r}, and not a size such as 512m")
    size = int(found[1]) << (10 * " kmgt".index(found[2] or " "))
    return max(size // _tasks_at_once(settings), _LEAST)


def _tasks_at_once(settings: Mapping[str, str | None]) -> int:
    """Return how many tasks an executor runs at once; 1 if its settings do not say so."""
    local = _LOCAL.match(settings.get(MASTER) or "")
    if local and local[1] == "*":
        cores: str | int | None = os.cpu_count()
    else:
        cores = local[1] if local else settings.get(CORES)
    return max(int(cores or 1) // int(settings.get(CPUS) or 1), 1)
