"""A child process that never outlives its parent (see ``guard.py``), and the lock on its files."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from .errors import EmbeddedError, directory_errors, directory_in_use

_GUARD = Path(__file__).with_name("guard.py")
_POLL_SECONDS = 0.02
_LAUNCH_SECONDS = 30.0


class GuardedProcess:
    """One running program, with its output in a file.

    Ctrl-C in the terminal does not reach it: its parent decides when it ends. A temporary
    ``directory`` is removed if the parent dies without removing it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        log: Path,
        directory_is_temporary: bool,
    ) -> None:
        pid_file = directory / "pid"
        pid_file.unlink(missing_ok=True)
        remove = "remove" if directory_is_temporary else "keep"
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(pid_file), remove]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [*guard, *command],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._wait_for_pid(pid_file)

    def _wait_for_pid(self, pid_file: Path) -> int:
        deadline = time.monotonic() + _LAUNCH_SECONDS
        while not pid_file.exists():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise EmbeddedError(
                    "The process that guards the metastore did not start it "
                    f"(exit code {self._guard.returncode})"
                )
            time.sleep(_POLL_SECONDS)
        return int(pid_file.read_text(encoding="ascii"))

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128 plus the number of the signal if a signal ended it."""
        return self._guard.poll()

    def stop(self, timeout: float) -> None:
        """End it gracefully; kill it if it has not ended after ``timeout`` seconds."""
        self._guard.send_signal(signal.SIGTERM)
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would, and wait until it has ended."""
        self._guard.send_signal(signal.SIGUSR1)
        self._guard.wait()


class DirectoryLock:
    """Locks a directory for one metastore, from its start to its end."""

    def __init__(self) -> None:
        self._lock: IO[bytes] | None = None

    def acquire(self, directory: Path) -> None:
        """Create and lock the directory, or raise DirectoryError."""
        if self._lock is not None:
            return
        with directory_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "lock").open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise directory_in_use(directory) from None
        self._lock = lock

    def release(self) -> None:
        """Unlock the directory for other metastores."""
        if self._lock is not None:
            # Closing alone would leave the lock with processes that were forked since.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None
