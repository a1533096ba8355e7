"""Processes that are measured: new ones, and CPU time and memory as Linux has them in /proc."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def tree(root: int) -> list[int]:
    """Return a process and all below it."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(each.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(each.name))
    found = [root]
    for pid in found:  # which grows meanwhile
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a tree so far; a process that has ended counts with its parent."""
    # Of itself and of the children that it has waited for, as user and for the system.
    return sum(int(ticks) for pid in tree(root) for ticks in _stat(pid)[11:15]) / _TICKS


def memory_mb(pid: int, *, peak: bool = False) -> float:
    """Return the resident memory of a process, now or at its largest, in MB (10^6 bytes)."""
    value = _status(pid).get("VmHWM" if peak else "VmRSS", "0")
    return int(value.split()[0]) * 1024 / 1e6


def name_of(pid: int) -> str:
    """Return the name of a process's program."""
    return _status(pid).get("Name", "").strip()


def _stat(pid: int) -> list[str]:
    """Return the fields after the program's name."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _status(pid: int) -> dict[str, str]:
    lines = _read(pid, "status").splitlines()
    return dict(line.split(":", 1) for line in lines)


def _read(pid: int, file: str) -> str:
    """Return a file of a process, or nothing if the process has just ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
