"""Sessions of Spark in processes of their own, beside a real metastore, that call tests."""

from __future__ import annotations

import inspect
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from servers.sparks import Running, Spark, SparkFailedError

_START_SECONDS = 120.0
_CHECK_SECONDS = 280.0


def beside(uri: str, conf: Mapping[str, str] | None = None) -> Spark:
    """Return Spark with the tables of a metastore for its own, and as few tasks as may be."""
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.default.parallelism": "2",
        "spark.python.daemon.module": "servers.spark_daemon",
        # A machine with more to do than it can is slow, and nothing has failed.
        "spark.python.authenticate.socketTimeout": "60s",
    }
    # So that times without a zone are the same moments here and in Spark.
    return Spark(conf={**settings, **(conf or {})}, environment={"TZ": "UTC"})


class Checker:
    """A session that calls one test after another."""

    def __init__(self, running: Running, peer: socket.socket) -> None:
        self._running = running
        self._peer = peer
        self._lines = peer.makefile("rw", encoding="utf-8")

    def __call__(self, check: Callable[..., None], **parameters: object) -> None:
        """Call a test in the session's process, with a new scene.

        Raises:
            AssertionError: It failed, with its trace; or the session died or took too long.
        """
        self._lines.write(json.dumps([_module_of(check), check.__name__, parameters]) + "\n")
        try:
            self._lines.flush()
            answer = self._lines.readline()
        except OSError as error:
            self._running.kill()
            raise SparkFailedError(
                f"{check.__name__}: {error}\n{self._running.output()}"
            ) from error
        if not answer:
            raise SparkFailedError(f"{check.__name__}: it died\n{self._running.output()}")
        trace = json.loads(answer)
        if trace is not None:
            raise AssertionError(trace)


def _module_of(check: Callable[..., None]) -> str:
    """Return the name by which the session imports a module; pytest has another one for it."""
    return f"migrate.{Path(inspect.getfile(check)).stem}"


@contextmanager
def checker(spark: Spark, uri: str, directory: Path) -> Iterator[Checker]:
    """Start a session for checks; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_START_SECONDS)
        arguments = {"uri": uri, "directory": str(directory), "port": server.getsockname()[1]}
        with spark.start("migrate.sparking:serve", directory, **arguments) as running:
            try:
                peer, _ = server.accept()
            except TimeoutError as error:
                raise SparkFailedError(f"it did not start:\n{running.output()}") from error
            with peer:
                peer.settimeout(_CHECK_SECONDS)
                yield Checker(running, peer)
