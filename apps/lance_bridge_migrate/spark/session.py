"""A Spark session as source or target, which later runs recreate and many threads use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from lance_namespace.errors import (
    ConcurrentModificationError,
    ServiceUnavailableError,
    TableNotFoundError,
)
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lance_bridge import extras
from lance_bridge.dotted_names import quoted
from lance_bridge.errors import invalid
from lance_bridge.redaction import contains_secret, is_secret, redact
from lance_bridge_spark import set_java_home
from lance_bridge_spark.redaction import redact_logs, with_patterns
from lance_bridge_spark.rows import spark_failures

from ..endpoints import SPARK
from ..migration import Stopped
from ..plan import Address

_KEPT = ("spark.sql.", "spark.hadoop.", "spark.jars", "spark.master", "spark.driver.memory",
         "spark.executor.", "spark.dynamicAllocation.", "spark.default.parallelism",
         "spark.remote")  # fmt: skip
_NEVER_KEPT = "extraJavaOptions"
"""The suffix of settings with Java options, any of which may be secret."""
_PACKAGES = ("pandas", "pyarrow")
"""Packages that PySpark needs to run Python functions, but does not install."""
_TIME_ZONE = "spark.sql.session.timeZone"
_MASTER, _REMOTE = "spark.master", "spark.remote"
_URIS = "spark.hadoop.hive.metastore.uris"
_CANCELLED = "[SPARK_JOB_CANCELLED]"
_FILES_GONE = ("[FAILED_READ_FILE.FILE_NOT_EXIST]", "[DELTA_FILE_NOT_FOUND",
               "org.apache.iceberg.exceptions.NotFoundException")  # fmt: skip
_UNREADABLE = ("[FAILED_READ_FILE", "[CANNOT_MERGE_SCHEMAS]")
_OTHER_HEADER = ("CSV header does not conform", "Number of column in CSV header")
_NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PATH_NOT_FOUND")


def address_of_session(spark: SparkSession) -> Address:
    """Return the address of a session: the settings to recreate it, without secrets."""
    settings: dict[str, str] = dict(spark.conf.getAll)
    # Its default is the zone of the process, which may be another one in a later run.
    settings[_TIME_ZONE] = str(spark.conf.get(_TIME_ZONE))
    if _REMOTE in settings:
        # The parameters after the address may contain a token.
        settings[_REMOTE] = settings[_REMOTE].partition(";")[0]
    kept = {key: value for key, value in sorted(settings.items()) if _is_kept(key, str(value))}
    return Address(name=SPARK, properties=kept, connection=_connection(spark))


def _is_kept(key: str, value: str) -> bool:
    if not key.startswith(_KEPT) or key.endswith(_NEVER_KEPT):
        return False
    return not is_secret(key) and not contains_secret(value)


def _connection(spark: SparkSession) -> str:
    """Return what identifies the tables of a session."""
    uris = spark.conf.get(_URIS, "") or ""
    hive = spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"
    location = uris if hive and uris else spark.conf.get("spark.sql.warehouse.dir", "")
    return f"Spark at {location}"


@contextmanager
def session_at(address: Address, secrets: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield the active session of this process, or a new one with the settings of a plan.

    A new session is stopped after the block.

    Args:
        secrets: Settings that the plan does not contain.

    Raises:
        InvalidInputError: (13) the session has other tables than that of the plan.
        MissingExtraError: (0) a package that Spark needs to run Python is missing.
    """
    extras.require("spark", *_PACKAGES)
    existing: SparkSession | None = None
    with suppress(PySparkException):
        existing = SparkSession.active()
    spark = existing or _new_session({**address.properties, **secrets})
    try:
        found = _connection(spark)
        if address.connection not in ("", found):
            raise invalid(
                f"The plan was made for {address.connection}, and this session is {found}: run it "
                "in a session with the same metastore and warehouse, or plan again"
            )
        yield spark
    finally:
        if existing is None:
            spark.stop()


def _new_session(settings: Mapping[str, str]) -> SparkSession:
    builder: Any = SparkSession.builder.config("spark.log.level", "ERROR")
    # Its progress bars would overwrite the messages of the command.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if settings.get(_MASTER, "local").startswith("local") and _REMOTE not in settings:
        # Local workers use this interpreter; the default is the python3 on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _REMOTE not in settings:
        set_java_home()
        # Clients of Spark Connect cannot change the server's redaction patterns.
        settings = with_patterns(settings)
    redact_logs()
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise ServiceUnavailableError(
            f"Spark did not start ({_first_line(error)}): it needs Java 17 or later (JAVA_HOME), "
            "and settings that are right (--spark-conf)"
        ) from error
    return session


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[1] if len(lines) > 1 and isinstance(error, Py4JError) else "".join(lines[:1])
    return redact(first)[:300]


def become_active(spark: Any) -> None:
    """Make a session the active one of this thread, which Spark uses to find data sources.

    Spark Connect does not need it.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def java_class(spark: Any, name: str) -> Any:
    """Return a class of the JVM by its full name.

    Attribute access on `_jvm` would call the JVM for each part of the name, every time.
    """
    return JavaClass(name, spark._jvm._gateway_client)


def col(name: str) -> Column:
    """Return a column by its name, which may have any characters."""
    return F.col(quoted((name,)))


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Translate Spark errors into errors of the Lance namespace.

    Args:
        what: What failed, as the start of the message.

    Raises:
        Stopped: The job was cancelled, by others or by Spark, which cancels all jobs on Ctrl-C.
        TableNotFoundError: (4) the table, its database or its path does not exist.
        TableColumnNotFoundError: (12)
        InvalidInputError: (13)
        ConcurrentModificationError: (14) files were deleted while Spark read them.
        ServiceUnavailableError: (17)
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _CANCELLED in str(error):
            raise Stopped(what) from error
        _raise_for(error, what)


def _raise_for(error: PySparkException | Py4JError, what: str) -> NoReturn:
    if any(sign in str(error) for sign in _FILES_GONE):
        raise ConcurrentModificationError(
            f"{what}: files that it reads were vacuumed, expired or overwritten. Plan again; "
            "or convert it again, if they are of the snapshot of the last increment"
        ) from error
    if any(sign in str(error) for sign in _OTHER_HEADER):
        raise invalid(
            f"{what}: the header of a CSV file has other columns ({_first_line(error)}). Move the "
            "files of each header to a directory of their own; or give the read option "
            "enforceSchema=true, with which Spark reads all columns by their position"
        ) from error
    if any(sign in str(error) for sign in _UNREADABLE):
        raise invalid(f"{what}: {_first_line(error)}") from error
    if isinstance(error, PySparkException):
        if (error.getCondition() or "").startswith(_NOT_FOUND):
            raise TableNotFoundError(f"{what}: it does not exist") from error
        with spark_failures(what):
            raise error
    raise ServiceUnavailableError(f"{what}: {_first_line(error)}") from error
