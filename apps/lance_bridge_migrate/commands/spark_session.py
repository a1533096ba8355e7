"""The Spark session of a command, and the log file for Spark's own messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_bridge_migrate as migrations
from lance_bridge.redaction import redact
from lance_bridge_cli.common import exit_on_error, parse_key_values
from lance_bridge_cli.output import message

from .options import SparkSettings

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace

_IMPLEMENTATION = "spark.sql.catalogImplementation"
_REMOTE = "spark.remote"
_LOG = "spark.log"
_MAX_LOG_BYTES = 10_000_000
_STANDARD_ERROR = 2


@contextmanager
def spark_session(
    namespace: LanceBridgeNamespace | None, settings: SparkSettings, state: str | None
) -> Iterator[tuple[Any, migrations.Address]]:
    """Yield a session, which is stopped after the block, and its address.

    Args:
        namespace: A Hive Metastore whose tables Spark reads unless the settings name another.
        state: The state directory, which contains Spark's log.
    """
    given = parse_key_values(settings.spark_conf, "--spark-conf")
    uri = settings.metastore or (None if namespace is None else _metastore_uri(namespace))
    if uri is not None and (settings.metastore or not {_IMPLEMENTATION, _REMOTE} & set(given)):
        given |= {_IMPLEMENTATION: "hive", "spark.hadoop.hive.metastore.uris": uri}
    with exit_on_error():
        # Imported here, because it needs Spark.
        from ..endpoints import SPARK  # noqa: PLC0415 - takes seconds to import
        from ..spark.session import address_of_session, session_at  # noqa: PLC0415

        with ExitStack() as stack:
            with spark_log(migrations.Migrations(state).directory.parent) as log:
                spark = stack.enter_context(session_at(migrations.Address(name=SPARK), given))
            message(f"Spark's own log is {log}")
            yield spark, address_of_session(spark)


def has_temporary_catalog(spark: Any) -> bool:
    """Return whether the session's own catalog is in memory."""
    return bool(spark.conf.get(_IMPLEMENTATION, "in-memory") == "in-memory")


def _metastore_uri(namespace: LanceBridgeNamespace) -> str | None:

    uri = getattr(namespace.connection.config, "uri", "")
    return uri if uri.startswith("thrift://") else None


@contextmanager
def spark_log(state_directory: Path) -> Iterator[Path]:
    """Redirect the standard error of processes that the block starts to a log file.

    Session settings do not suffice: Log4j writes its first lines before they apply, and the JVM
    writes lines itself. The processes stay redirected after the block; this process does not.

    Secrets are redacted line by line. A file that is too large is replaced.

    Raises:
        ServiceUnavailableError: (17) the file cannot be written.
    """
    from ..journal import file_errors  # noqa: PLC0415 - takes seconds to import

    path = state_directory / _LOG
    with file_errors(state_directory):
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
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
    """Copy lines, redacted, until the last process that can write to the pipe has ended."""
    with open(reading, errors="replace") as source, open(log, "w") as target:
        for line in source:
            target.write(redact(line))
            target.flush()
