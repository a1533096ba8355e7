"""A Spark session of this machine, for one command that asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from lance_bridge.names import written

from .common import pairs

_SETTINGS = {
    # Properties of the catalog are among the session's settings, and the UI would show them.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@contextmanager
def spark_on(
    catalog: str, properties: Sequence[str] | None
) -> Iterator[tuple[Any, ModuleType, str]]:
    """Start Spark for a catalog; yield the session, the module of jobs, and the catalog's name.

    Raises:
        UnsupportedOperationError: (0) PySpark is not installed.
    """
    from lance_bridge.extras import require  # noqa: PLC0415 - takes seconds to import

    require("spark", "pyspark")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds to import, and optional

    from lance_bridge_spark import jobs  # noqa: PLC0415 - the same
    from lance_bridge_spark.addresses import CATALOG_SETTINGS  # noqa: PLC0415 - the same

    name = "catalog" if "." in catalog else catalog
    # Workers need what this process has installed, and would be whatever python3 is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    shown = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    builder: Any = SparkSession.builder
    session = builder.master("local[*]").config(map={**_SETTINGS, **shown}).getOrCreate()
    try:
        # A configured catalog is found by its name; what is given goes before what it says.
        session.conf.set(f"{CATALOG_SETTINGS}{name}.impl", catalog)
        for key, value in pairs(properties).items():
            session.conf.set(f"{CATALOG_SETTINGS}{name}.{key}", value)
        yield session, jobs, written([name])
    finally:
        session.stop()
