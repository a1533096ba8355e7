"""The memory of the processes that this one has started, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path


def peaks_below(pid: int | None = None) -> dict[str, float]:
    """Return the largest peak of resident memory, in MB (10^6 bytes), by program (``java``, …).

    Args:
        pid: The process whose descendants are looked at; this one by default.
    """
    peaks: dict[str, float] = {}
    for each in _descendants(os.getpid() if pid is None else pid):
        fields = _status(each)
        if "VmHWM" in fields:
            name = fields["Name"]
            peaks[name] = max(peaks.get(name, 0.0), int(fields["VmHWM"].split()[0]) * 1024 / 1e6)
    return peaks


def _descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            parents[int(entry.name)] = int(_status(int(entry.name)).get("PPid", "0"))
    found: set[int] = set()
    left = {root}
    while left:
        left = {pid for pid, parent in parents.items() if parent in left} - found
        found |= left
    return found


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
