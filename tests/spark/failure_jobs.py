"""What the failure tests let Spark do: tasks that fail or die once, in the middle of what they do.

A file of the test's says that it has happened: what is tried again after that goes well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lance_bridge_spark.registration import register
from lance_bridge_spark.source import LanceSource
from lance_bridge_spark.source.writer import LanceWriter

ROWS = 2000
RAISE, KILL_WORKER, KILL_EXECUTOR = "raise", "kill the worker", "kill the executor"
MARK = "LANCE_BRIDGE_TEST_MARK"
"""The environment variable that names the file, where no argument can."""


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


def append_in_spite_of_failures(spark: Any, directory: str) -> dict[str, Any]:
    """Append while a task raises, a worker is killed and an executor is; once in each way."""
    register(spark)
    spark.dataSource.register(DyingSource)
    found = {}
    for how in (RAISE, KILL_WORKER, KILL_EXECUTOR):
        place = f"{directory}/{how.replace(' ', '-')}.lance"
        rows = spark.range(0, ROWS, 1, 4).mapInArrow(failing(how, f"{place}.failed"), "id long")
        rows.write.format("lance").mode("append").save(place)
        found[how] = seen(spark, place)
    place = f"{directory}/writer.lance"
    spark.range(0, ROWS, 1, 4).write.format("dying").mode("append").save(place)
    found["kill the writer"] = seen(spark, place)
    return found


def seen(spark: Any, place: str) -> list[int]:
    """Return how many rows a table has, how many different ones, and its versions."""
    ids = [row.id for row in spark.read.format("lance").load(place).collect()]
    return [
        len(ids),
        len({*ids} & {*range(ROWS)}),
        len(list(Path(place, "_versions").glob("*.manifest"))),
    ]
