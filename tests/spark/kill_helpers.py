"""Tasks and jobs that fail or die once, on purpose, in the middle of what they do.

A file of the test's says that it has happened: what is tried again after that goes well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lance_bridge_spark.source import LanceSource
from lance_bridge_spark.source.writer import LanceWriter

RAISE, KILL_WORKER, KILL_EXECUTOR = "raise", "kill the worker", "kill the executor"
MARK = "LANCE_BRIDGE_TEST_MARK"
"""The environment variable that names the file, where no argument can."""
SESSION = "LANCE_BRIDGE_TEST_SESSION"
"""The environment variable that names the file with the process group of the session."""


def once(mark: str) -> bool:
    """Say whether this is the first call of all processes."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def failing(how: str, mark: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that lets rows pass, and fails once after some."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if once(mark):
                fail(how)

    return pass_on


def fail(how: str) -> None:
    """Raise, or kill what runs this: the Python worker, or the executor that it belongs to."""
    if how == RAISE:
        raise RuntimeError("a task fails once, as the test wants")
    process = os.getpid() if how == KILL_WORKER else executor_of(os.getpid())
    os.kill(process, signal.SIGKILL)


def executor_of(process: int) -> int:
    """Return the Java process above a Python worker (Linux)."""
    while Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip() != "java":
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        process = int(status.rpartition(")")[2].split()[1])
    return process


class DyingSource(LanceSource):
    """The data source, whose writer is killed once when it has written its files."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        made = super().writer(schema, overwrite)
        made.__class__ = _DyingWriter
        return made


class _DyingWriter(LanceWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        written = super().write(iterator)
        if once(os.environ[MARK]):
            os.kill(os.getpid(), signal.SIGKILL)
        return written


class PowerlessSource(LanceSource):
    """The data source, whose stream loses its machine once, right after a commit."""

    @classmethod
    def name(cls) -> str:
        return "powerless"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        made = super().streamWriter(schema, overwrite)
        kind = type(made)

        def commit(self: Any, messages: list[Any], batchId: int) -> None:
            kind.commit(self, messages, batchId)
            if batchId == 1 and once(os.environ[MARK]):
                session = int(Path(os.environ[SESSION]).read_text(encoding="ascii"))
                os.killpg(session, signal.SIGKILL)

        made.__class__ = type("PowerlessWriter", (kind,), {"commit": commit})
        return made
