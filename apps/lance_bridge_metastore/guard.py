"""Runs one program and ends it when the parent process has ended.

It is a separate program that uses only the standard library, to start fast and with one thread:
``python -I -S guard.py PARENT_PID PID_FILE remove|keep COMMAND...``. SIGTERM ends the program
gracefully, SIGUSR1 kills it. Because signals are sent to the guard, the program's parent, they
never reach another process that reuses the program's process id.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_SIGNALS = {signal.SIGTERM, signal.SIGUSR1}


def _prepare_child(guard: int) -> Callable[[], None]:
    """Return what the child does first; on Linux, it then ends with a killed guard."""
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(1)

    return prepare


def _forward_signals(child: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: child.kill())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def main(parent: int, pid_file: str, orphaned: str, command: list[str]) -> int:
    """Run ``command`` until it ends or process ``parent`` does; return its exit code.

    If the parent ends first, ``orphaned="remove"`` removes the directory of ``pid_file``.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if os.getppid() != parent:
        return 1
    # preexec_fn is unsafe with threads; this process has only one.
    prepare = _prepare_child(os.getpid())
    child = subprocess.Popen(command, preexec_fn=prepare)  # noqa: PLW1509 - this process has one thread
    with open(f"{pid_file}.part", "w", encoding="ascii") as file:
        file.write(str(child.pid))
    os.replace(f"{pid_file}.part", pid_file)
    _forward_signals(child)
    while os.getppid() == parent:
        try:
            return child.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    child.kill()
    code = child.wait()
    if orphaned == "remove":
        shutil.rmtree(os.path.dirname(pid_file), ignore_errors=True)
    return code


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
    sys.exit(code if code >= 0 else 128 - code)
