"""Makes a session know its catalogs: in SQL, and for the data source wherever that runs."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lance_namespace.errors import UnsupportedOperationError

from lance_bridge import engine
from lance_bridge.errors import invalid, unsupported

from .addresses import CATALOG_CLASS, CATALOG_SETTINGS, catalogs_of
from .jobs import SparkEngine
from .jvm import jar
from .redaction import set_patterns, warn_of_secrets, with_patterns
from .source import with_catalogs

logger = logging.getLogger(__name__)

_JARS = "spark.jars"

Catalogs = Mapping[str, Mapping[str, str]]


def register(spark: Any, catalogs: Catalogs | None = None) -> None:
    """Make a session know its Lance catalogs; one of Spark Connect as well.

    Those are the catalogs that the session's settings declare, ``spark.sql.catalog.<name>.impl``
    and properties beside it, and those given here. Call it again for more catalogs; in SQL, a
    catalog that is registered keeps the properties that it has.

    Args:
        spark: A session of Spark 4.1, 4.2 or 4.3. All threads that use it know the catalogs.
        catalogs: Properties by catalog, ``impl`` among them; none for a catalog of that name in
            the configuration file.

    Without the jar of the SQL catalog (see `lance_bridge_spark.jvm.jar`) a warning is logged, and
    everything else works: the data source, the functions and the jobs. Operations of the namespace
    that need a compute engine (backfills, materialized views) use this session from here on.

    Raises:
        InvalidInputError: (13) a name given here is that of another connector's catalog; nothing
            is set.
        UnsupportedOperationError: (0) the Python of Spark's workers (``PYSPARK_PYTHON``) does not
            exist, is of another minor version than this one, or lacks this package.
            Nothing is set.

    Secrets among the settings are a warning: see ``secrets.file``. Spark hides them in its event
    log, its plans and its web pages from here on, for which its redaction patterns are extended.
    """
    if not _is_remote(spark):
        check_python(spark)
    _refuse_others(spark, catalogs or {})
    set_patterns(spark)
    for name, properties in (catalogs or {}).items():
        for key, value in properties.items():
            spark.conf.set(f"{CATALOG_SETTINGS}{name}.{key}", value)
    known = catalogs_of(spark)
    warn_of_secrets(CATALOG_SETTINGS, {name: each.properties for name, each in known.items()})
    names = {*known, *(catalogs or {})}
    if _add_jar(spark):
        for name in sorted(names):
            if spark.conf.get(CATALOG_SETTINGS + name, None) is None:
                spark.conf.set(CATALOG_SETTINGS + name, CATALOG_CLASS)
        _load(spark, catalogs_of(spark))
    spark.dataSource.register(with_catalogs(catalogs_of(spark)))
    engine.use(SparkEngine(spark))


def _refuse_others(spark: Any, names: Iterable[str]) -> None:
    """Keep the properties of a catalog of ours from those of another connector."""
    for name in names:
        kind = spark.conf.get(CATALOG_SETTINGS + name, None)
        if kind not in (None, CATALOG_CLASS):
            raise invalid(f"Catalog '{name}' of this session is a {kind}: give another name")


def settings(
    catalogs: Catalogs | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return settings that start a session with the SQL catalog, for `SparkSession.builder.config`.

    Args:
        catalogs: Properties by catalog, as for `register`.
        base: Settings to add to; jars named there stay.

    Raises:
        UnsupportedOperationError: (0) the jar is missing and could not be compiled.
    """
    merged = with_patterns(base or {})
    warn_of_secrets(CATALOG_SETTINGS, catalogs or {})
    jars = [part for part in merged.get(_JARS, "").split(",") if part]
    ours = str(jar.path())
    merged[_JARS] = ",".join(jars if ours in jars else [*jars, ours])
    for name, properties in (catalogs or {}).items():
        merged[CATALOG_SETTINGS + name] = CATALOG_CLASS
        for key, value in properties.items():
            merged[f"{CATALOG_SETTINGS}{name}.{key}"] = value
    return merged


def _add_jar(spark: Any) -> bool:
    """Give the jar to the session, which may have it from its start."""
    try:
        found = jar.path()
    except UnsupportedOperationError as error:
        logger.warning("No SQL catalog in this session. %s", error)
        return False
    if found.name not in [Path(part).name for part in spark.conf.get(_JARS, "").split(",")]:
        if _is_remote(spark):
            spark.addArtifacts(str(found))
        else:
            escaped = str(found).replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"ADD JAR '{escaped}'")
    return True


def _load(spark: Any, names: Iterable[str]) -> None:
    """Load the catalogs, since Spark finds an added jar only in the thread that has added it.

    A server of Spark Connect finds it in every thread.
    """
    if not _is_remote(spark):
        manager = spark._jsparkSession.sessionState().catalogManager()
        for name in names:
            manager.catalog(name)


def _is_remote(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


logger = logging.getLogger(__name__)

_TIMEOUT = 30.0
"""Seconds that the workers' Python may take to answer."""
_NEEDED = ("lance_bridge", "lance", "pyarrow")
_QUESTION = f"""
import sys
from importlib.util import find_spec
print("%d.%d" % sys.version_info[:2], *[each for each in {_NEEDED} if find_spec(each) is None])
"""


def check_python(spark: Any) -> None:
    """Run the Python of a session's workers once, here, and check its version and its packages.

    The driver needs it, too: Spark plans reads and writes of this data source in such a worker, on
    the driver's machine. What executors on other machines have is not known here.

    Args:
        spark: A session that is no client of Spark Connect, whose server's Python is not known.

    Raises:
        UnsupportedOperationError: (0) it cannot be run, is of another minor version than this one,
            or lacks this package, pylance or pyarrow.
    """
    context = spark.sparkContext
    executable = str(context.pythonExec)
    found = shutil.which(executable)
    if found is None:
        problem = f"{executable}, which does not exist or cannot be run"
        if not context.master.startswith("local"):
            # It may lie in an archive that only executors unpack.
            logger.warning("%s", _message(problem))
            return
        raise unsupported(_message(problem))
    problem = _problem_of(found, _path_of_workers(context))
    if problem:
        raise unsupported(_message(f"{found}, which {problem}"))


def _message(problem: str) -> str:
    given = "PYSPARK_PYTHON" if "PYSPARK_PYTHON" in os.environ else "PYSPARK_PYTHON is not set"
    return (
        f"Spark's Python workers would run {problem} ({given}): set PYSPARK_PYTHON to "
        f"{sys.executable}, or to another Python {_this_version()} with lance-bridge, before the "
        "session is started"
    )


def _this_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _path_of_workers(context: Any) -> str:
    """Return the PYTHONPATH of workers: files added to the session, its setting, and ours."""
    from pyspark import SparkFiles  # noqa: PLC0415 - only where a session is

    root = SparkFiles.getRootDirectory()
    added = [root, *(os.path.join(root, each) for each in context._python_includes)]
    inherited = [context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    return os.pathsep.join([*added, *(each for each in inherited if each)])


@lru_cache(maxsize=16)
def _problem_of(executable: str, path: str) -> str:
    """Return what is wrong with a Python, or nothing."""
    try:
        answer = subprocess.run(
            [executable, "-c", _QUESTION],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        logger.warning("%s has not answered for %g s, and was not checked", executable, _TIMEOUT)
        return ""
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    words = answer.stdout.split()
    if answer.returncode or not words:
        return "is no Python 3 that runs"
    version, *missing = words
    if version != _this_version():
        return f"is Python {version}, and the driver is {_this_version()}"
    return f"has no package {', '.join(missing)}" if missing else ""
