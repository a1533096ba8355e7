"""Where the jar of the SQL catalog is: in the wheel, or compiled once on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from lance_bridge.errors import unsupported

from .compiling import JAR_NAME, CannotCompileError, compile_jar, digest

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[2]
"""The root of the repository, where this file is in one."""


def path() -> Path:
    """Return the jar of the wheel; in a clone, compile it once and keep it.

    Raises:
        UnsupportedOperationError: (0) it would have to be compiled, and a JDK or PySpark's jars
            are missing. Everything but the SQL catalog works without the jar.
    """
    packaged = _HERE / JAR_NAME
    if packaged.is_file():
        return packaged
    cached = cache_directory() / f"lance-bridge-spark-{digest()}.jar"
    if not cached.is_file():
        try:
            compile_jar(cached)
        except (CannotCompileError, OSError) as error:
            raise unsupported(
                f"The SQL catalog needs its jar, which could not be compiled: {error}. A "
                "release has it, and lance_bridge_spark.register(spark, sql=False) works without"
            ) from error
    return cached


def cache_directory() -> Path:
    """Return where compiled jars are kept: ``.cache`` of a checkout, else the user's cache.

    ``LANCE_BRIDGE_CACHE`` names another place.
    """
    configured = os.environ.get("LANCE_BRIDGE_CACHE")
    if configured:
        return Path(configured).expanduser().absolute() / "spark"
    if (_CHECKOUT / "pyproject.toml").is_file():
        return _CHECKOUT / ".cache" / "spark"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lance-bridge" / "spark"
