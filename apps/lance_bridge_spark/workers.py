"""Checks, before anything runs, that the Python of Spark's workers is one that can read Lance.

Spark starts workers with the Python that ``PYSPARK_PYTHON`` names, or with whatever ``python3`` is
on the path: often another than the driver's, and without this package. It says so only when the
first table is read, with a traceback out of the JVM.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import Any

from lance_bridge.errors import unsupported

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
        problem = f"{executable}, which is not there or cannot be run"
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
