"""Commands of an installed wheel that are killed at random moments, and what their journal says."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from install.environments import Environment

_RUN_SECONDS = 600.0


class Command:
    """One command of the wheel, in a process group with all that it starts."""

    def __init__(self, clean: Environment, arguments: list[str], output: Path) -> None:
        self._begun = time.monotonic()
        self._output = output
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as error:
            self._process = subprocess.Popen(
                [str(clean.bin / "lance-bridge"), *arguments],
                cwd=clean.directory,
                env=clean.variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def shown(self) -> str:
        return self._output.read_text() + self._output.with_suffix(".err").read_text()

    @property
    def messages(self) -> str:
        """What it has said on standard error."""
        return self._output.with_suffix(".err").read_text()

    def kill(self) -> bool:
        """End it and Spark's JVM at once; return whether it was still running."""
        was_running = self.is_running
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._process.wait()
        return was_running

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self._process.wait(_RUN_SECONDS)

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds; return False where the command ended before."""
        deadline = time.monotonic() + _RUN_SECONDS
        while not holds():
            if not self.is_running:
                return False
            assert time.monotonic() < deadline, self.shown[-3000:]
            time.sleep(0.005)
        return True


@contextmanager
def started(clean: Environment, arguments: list[str], output: Path) -> Iterator[Command]:
    """Start a command; it ends with the block."""
    command = Command(clean, arguments, output)
    try:
        yield command
    finally:
        command.kill()


def events(journal: Path) -> int:
    """Return how many events of items a journal has."""
    if not journal.exists():
        return 0
    return sum('"item"' in line for line in journal.read_text(errors="replace").splitlines())


def failures(journal: Path) -> dict[str, str]:
    """Return the items that have failed in any run, with the last message of each."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return {e["item"]: e["error"]["message"] for e in lines if e["event"] == "failed"}


def kill_at_random(command: Command, journal: Path, chance: random.Random) -> bool:
    """Kill a command after some more events of its journal, or while it prepares for them.

    Returns:
        Whether it was killed, and had not ended before.
    """
    wanted = max(0, chance.randint(-3, 9))
    before = events(journal)
    if wanted == 0:
        after = chance.uniform(1.0, 15.0)
        command.wait_until(lambda: command.seconds >= after)
        return command.kill()
    if not command.wait_until(lambda: events(journal) >= before + wanted):
        return False
    later = command.seconds + chance.uniform(0.0, 0.4)
    command.wait_until(lambda: command.seconds >= later)
    return command.kill()
