"""The path of the SQL catalog's jar: in the wheel, or compiled once on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from lance_bridge import jvm
from lance_bridge.errors import unsupported
from lance_bridge.jvm import CannotCompileError

from .compiling import JAR_NAME, compile_jar, digest

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[2]
"""The root of the repository, if this file is in a checkout."""


def path() -> Path:
    """Return the jar of the wheel; in a checkout, compile it once and cache it.

    Raises:
        UnsupportedOperationError: (0) it must be compiled, and a compiler or PySpark's jars are
            missing. Everything but the SQL catalog works without the jar.
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
    """Return the directory of compiled jars: ``.cache`` of a checkout, or the user's cache.

    ``LANCE_BRIDGE_CACHE`` overrides it.
    """
    if not os.environ.get(jvm.CACHE_VARIABLE) and (_CHECKOUT / "pyproject.toml").is_file():
        return _CHECKOUT / ".cache" / "spark"
    return jvm.cache_directory() / "spark"
