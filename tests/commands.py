"""Runs programs to their end."""

from __future__ import annotations

import subprocess
from typing import Any


def run_command(
    *command: object, code: int | None = 0, seconds: float = 300.0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, and check its exit code.

    Args:
        command: The program and its arguments.
        code: The exit code that it must have; any where it is None.
        seconds: When it is ended at the latest.
        options: Those of ``subprocess.run``.
    """
    words = [str(each) for each in command]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=seconds, **options
    )
    message = f"{words}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    assert code in (None, done.returncode), message
    return done
