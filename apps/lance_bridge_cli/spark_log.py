"""Where a Spark that a command starts writes its own messages: to a file, and not among ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lance_bridge.redaction import redact
from lance_bridge_migrate.journal import file_errors

_LOG = "spark.log"
_MOST_BYTES = 10_000_000
_STANDARD_ERROR = 2


@contextmanager
def spark_log(state_directory: Path) -> Iterator[Path]:
    """Have the standard error of processes that the block starts go to a log file, for good.

    Log4j writes its first lines before any setting of the session counts, and the JVM writes lines
    of its own. This process writes to its standard error again when the block is left.

    Secrets are replaced, line by line. A file that has grown too large is begun again.

    Raises:
        ServiceUnavailableError: (17) the file cannot be written.
    """
    path = state_directory / _LOG
    with file_errors(state_directory):
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            path.unlink()
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), name="spark-log", daemon=True)
    thread.start()
    before = os.dup(_STANDARD_ERROR)
    os.dup2(writing, _STANDARD_ERROR)
    os.close(writing)
    try:
        yield path
    finally:
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


def _copy(reading: int, log: int) -> None:
    """Write what comes until the last process has ended that could write more."""
    with open(reading, errors="replace") as source, open(log, "w") as target:
        for line in source:
            target.write(redact(line))
            target.flush()
