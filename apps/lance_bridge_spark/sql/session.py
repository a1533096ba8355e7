"""The session of a statement, in the Python process of the driver, for procedures with Spark jobs.

The process has no JVM of its own: it connects to the driver's, as a PySpark program does that
`spark-submit` has started.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

_CLASSIC = "org.apache.spark.sql.classic.SparkSession"
_REMOTE = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables that make PySpark a client of Spark Connect: this process is at its server."""

_lock = threading.Lock()
_connected: tuple[Any, Any] | None = None
"""The gateway, and PySpark's context, whose typed interface lacks what is used here."""


@contextmanager
def session(access: Mapping[str, Any]) -> Iterator[SparkSession]:
    """Return the session that ``SessionGateway`` of the jar has opened, for this thread.

    Args:
        access: ``{port, secret, session, properties, python, archives}``
    """
    with _lock:
        gateway, context = _connect(access)
    found = SparkSession(context, gateway.entry_point.session(access["session"]))
    try:
        for key, value in access["properties"].items():
            context.setLocalProperty(key, value)
        yield found
    finally:
        for key in access["properties"]:
            context.setLocalProperty(key, None)


def _connect(access: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the connection of this process to its JVM, and the context there."""
    global _connected  # noqa: PLW0603 - the one connection of the process, under the lock
    if _connected is None:
        gateway = _launch(access)
    else:
        gateway, context = _connected
        if not context._jsc.sc().isStopped():
            return _connected
        context.stop()
    _connected = gateway, _context(gateway, access)
    return _connected


def _context(gateway: Any, access: Mapping[str, Any]) -> Any:
    session = gateway.entry_point.session(access["session"])
    java = gateway.jvm.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=session.sparkContext().getConf())
    context: Any = SparkContext(conf=conf, gateway=gateway, jsc=java)
    # What Spark's own Python workers of this session run.
    context.pythonExec = access["python"]
    context._python_includes = list(access["archives"])
    _keep_default_session(gateway, context, session)
    return context


def _launch(access: Mapping[str, Any]) -> Any:
    for name in _REMOTE:
        os.environ.pop(name, None)
    os.environ["PYSPARK_PIN_THREAD"] = "true"  # the server of the jar is made for it
    os.environ["PYSPARK_GATEWAY_PORT"] = str(access["port"])
    os.environ["PYSPARK_GATEWAY_SECRET"] = access["secret"]
    try:
        launch: Any = launch_gateway  # untyped
        return launch()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _keep_default_session(gateway: Any, context: Any, session: Any) -> None:
    """Create the first session of this process: PySpark makes it the default one of the JVM."""
    classic = getattr(gateway.jvm, _CLASSIC)
    default = classic.getDefaultSession()
    SparkSession(context, default.get() if default.isDefined() else session)
    if not default.isDefined():
        classic.clearDefaultSession()
