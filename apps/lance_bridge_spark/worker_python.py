"""Checks the Python of Spark's workers, on the driver's machine and on executors."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError

from lance_bridge.errors import unsupported

logger = logging.getLogger(__name__)

_TAG = "lance-bridge-check-python"
_EXECUTOR_TIMEOUT = 60.0
"""Seconds to wait for an executor, which a cluster may have to find first."""
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
    the driver's machine.

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


def check_executors(spark: Any) -> None:
    """Run the Python of a session's workers on each executor that there is, and check the same.

    It is a job of its own, once for each application and the files added to it; none on masters
    that have all executors on this machine. Executors that start later are not checked.

    Args:
        spark: A session that is no client of Spark Connect.

    Raises:
        UnsupportedOperationError: (0) as for `check_python`; the message names the host.
    """
    context = spark.sparkContext
    key = (context.applicationId, context.pythonExec, *context._python_includes)
    if context.master.startswith("local") or key in _checked:
        return
    executors = 0
    while executors < (executors := _count_executors(context)):
        problem = _problem_of_executors(context)
        if problem:
            raise unsupported(_message(problem))
    _checked.add(key)


_checked: set[tuple[str, ...]] = set()
"""What was found to be right, by application."""


def _count_executors(context: Any) -> int:
    """Return how many there are, and the driver; those of a new session come one by one."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size())


def _problem_of_executors(context: Any) -> str:
    """Return what is wrong with the first Python that is not right, or nothing."""
    needed = _NEEDED

    def ask(_: Iterable[int]) -> Iterator[tuple[str, str, list[str]]]:
        # By value, as it is not a function of the module, which executors may lack.
        import socket  # noqa: PLC0415 - on the executor
        import sys  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415

        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield socket.gethostname(), version, [each for each in needed if find_spec(each) is None]

    tasks = context.defaultParallelism
    context.addJobTag(_TAG)
    timer = threading.Timer(_EXECUTOR_TIMEOUT, context.cancelJobsWithTag, [_TAG])
    timer.start()
    try:
        answers = context.parallelize(range(tasks), tasks).mapPartitions(ask).collect()
    except Py4JJavaError as error:
        return _problem_of_job(context.pythonExec, str(error))
    finally:
        timer.cancel()
        context.removeJobTag(_TAG)
    for host, version, missing in answers:
        if version != _this_version() or missing:
            problem = _problem(version, missing)
            return f"{context.pythonExec}, which {problem}, on executors such as {host}"
    return ""


def _problem_of_job(executable: str, text: str) -> str:
    """Return what made a job fail that only asks for versions, or nothing where it was ended."""
    if _TAG in text and "cancelled" in text:
        logger.warning(
            "No executor has answered for %g s: %s was not checked there",
            _EXECUTOR_TIMEOUT,
            executable,
        )
        return ""
    found = re.search(r"\(TID \d+\) \((\S+) executor", text)
    where = f"on executors such as {found[1]}" if found else "on executors"
    other = re.search(r"different version: (\S+) than", text)
    if other:
        return f"{executable}, which {_problem(other[1], [])}, {where}"
    if "Cannot run program" in text:
        return f"{executable}, which does not exist or cannot be run, {where}"
    return f"{executable}, which is no Python 3 that runs, {where}"


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
    return _problem(version, missing)


def _problem(version: str, missing: Sequence[str]) -> str:
    if version != _this_version():
        return f"is Python {version}, and the driver is {_this_version()}"
    return f"has no package {', '.join(missing)}" if missing else ""
