"""Ending the processes that tests have started, by nothing but themselves."""

from __future__ import annotations

import subprocess
from typing import Any

_SECONDS = 10.0


def end(process: subprocess.Popen[Any]) -> int:
    """Ask a process to end, make it where it does not, and return its exit code."""
    process.terminate()
    try:
        return process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
