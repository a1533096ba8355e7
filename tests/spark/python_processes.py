"""The Python processes that a driver's JVM has started for the SQL catalog and its scans."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 60.0


DRIVER, SCANS = b"processes\0driver", b"processes\0executor"
"""What the command lines of the processes have: that of the driver, and that of an executor."""


def pids(spark: Any, kind: bytes = DRIVER) -> list[int]:
    """Return the processes of this session's JVM, by what the system says of them."""
    jvm = str(spark._jvm.java.lang.ProcessHandle.current().pid())
    processes = Path("/proc").glob("[0-9]*")
    return [int(each.name) for each in processes if _is_service(each, jvm, kind)]


def the_pid(spark: Any, kind: bytes = DRIVER) -> int:
    """Return the one process that there is."""
    (pid,) = pids(spark, kind)
    return pid


def arguments(pid: int) -> str:
    """Return what any user of the machine can see of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def await_end(pid: int) -> None:
    """Return when a process has ended."""
    deadline = time.monotonic() + SECONDS
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} runs after {SECONDS:g} s"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has only not been waited for does not."""
    return _status(Path(f"/proc/{pid}"))[:1] not in ([], ["Z"])


def _is_service(process: Path, jvm: str, kind: bytes) -> bool:
    try:
        is_ours = kind in (process / "cmdline").read_bytes()
    except OSError:
        return False
    return is_ours and _status(process)[1:2] == [jvm] and is_running(int(process.name))


def _status(process: Path) -> list[str]:
    """Return the state and the parent of a process, or nothing where it has ended."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pid: int) -> None:
    """End a process at once."""
    os.kill(pid, 9)
    await_end(pid)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Let a process do nothing for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
