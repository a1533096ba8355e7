"""Table maintenance in a local Spark session, for ``lance-bridge maintain --spark``.

The command line finds `open_session` through the entry point ``spark`` of
``lance_bridge.maintenance``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import ServiceUnavailableError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lance_bridge.errors import first_line
from lance_bridge.names import written

from . import jobs
from .addresses import CATALOG_SETTINGS
from .environment import set_java_home

_SETTINGS = {
    # The session's settings contain the catalog's properties, which the UI would show.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class SparkMaintenance:
    """Jobs on the tables of one catalog, with the options of the functions in `jobs`."""

    session: Any
    catalog: str

    def compact(self, table: Sequence[str], *, target_rows: int) -> jobs.Compacted:
        """Join small fragments."""
        name = self._name(table)
        return jobs.compact(self.session, name, target_rows_per_fragment=target_rows)

    def create_index(self, table: Sequence[str], column: str, kind: str, **options: Any) -> None:
        """Build an index."""
        jobs.create_index(self.session, self._name(table), column, kind, **options)

    def clean_up(self, table: Sequence[str], **options: Any) -> jobs.Cleaned:
        """Delete old versions."""
        return jobs.clean_up(self.session, self._name(table), **options)

    def _name(self, table: Sequence[str]) -> str:
        return written([self.catalog, *table])


@contextmanager
def open_session(catalog: str, properties: Mapping[str, str]) -> Iterator[SparkMaintenance]:
    """Start Spark on this machine for one catalog, and stop it at the end of the block.

    Raises:
        ServiceUnavailableError: (17) Spark did not start.
    """
    name = "catalog" if "." in catalog else catalog
    # Workers need the packages of this process; by default Spark runs the python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    set_java_home()
    progress = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    builder: Any = SparkSession.builder
    try:
        session = builder.master("local[*]").config(map={**_SETTINGS, **progress}).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise ServiceUnavailableError(
            f"Spark did not start ({first_line(error)}): it needs Java 17 or later, see JAVA_HOME"
        ) from error
    try:
        # A configured catalog is found by name; given properties override its own.
        session.conf.set(f"{CATALOG_SETTINGS}{name}.impl", catalog)
        for key, value in properties.items():
            session.conf.set(f"{CATALOG_SETTINGS}{name}.{key}", value)
        yield SparkMaintenance(session, name)
    finally:
        session.stop()
