"""Spark as the engine of other parts: of namespace operations, and of ``lance-bridge maintain``.

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

import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import ServiceUnavailableError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lance_bridge import engine as port
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.dataset import Cleaned
from lance_bridge.dotted_names import written
from lance_bridge.errors import first_line, unsupported
from lance_bridge.registry import require_lance_bridge
from lance_bridge.requests import Ref

from ..addresses import CATALOG_SETTINGS, CatalogAddress, TableAddress
from ..environment import set_java_home
from ..lookup import find_table
from ..spark_tables import SparkTable
from . import views
from .backfill import Backfill, LanceSql, fill
from .indexing import create_index
from .maintenance import Compacted, clean_up, compact
from .tasks import phases

# -- operations of namespaces ----------------------------------------------------------------------


class SparkEngine:
    """Runs the jobs of namespace operations in one Spark session, or in the one after it."""

    def __init__(self, spark: Any) -> None:
        self._registered = spark

    @property
    def _spark(self) -> Any:
        """The session that was registered; if it was stopped, the active one.

        Raises:
            UnsupportedOperationError: (0) there is none.
        """
        context = getattr(self._registered, "_sc", None)
        if context is None or getattr(context, "_jsc", context) is not None:
            return self._registered
        active = SparkSession.getActiveSession()
        if active is None:
            raise unsupported(
                "The Spark session that runs jobs was stopped: start another one, and call "
                "lance_bridge_spark.register(spark)"
            )
        return active

    def backfill(
        self,
        namespace: LanceNamespace,
        record: TableRecord,
        ref: Ref,
        request: port.Backfill,
    ) -> str:
        """Fill a computed column. Source: `lance_bridge.engine.Engine`."""
        address = address_in(namespace, record.path)
        connection = require_lance_bridge(namespace, type(namespace).__name__).connection
        table = SparkTable(connection, record, address)
        with phases(f"backfill {address.name}.{request.column}", 3) as progress:
            progress.begin("plan")
            job = Backfill(
                self._spark,
                table,
                ref,
                request.column,
                LanceSql(request.expression),
                where=request.where,
                parallelism=request.parallelism,
                batch_size=request.batch_rows,
            )
            return fill(job, progress).transaction_id

    def create_materialized_view(
        self,
        namespace: LanceNamespace,
        path: Path,
        query: str,
        schema: pa.Schema,
        *,
        with_data: bool,
    ) -> port.ViewMade:
        """Create a view. Source: `lance_bridge.engine.Engine`."""
        address = address_in(namespace, path)
        with phases(f"create view {address.name}", 4 if with_data else 1) as progress:
            progress.begin("plan")
            views.create(self._spark, address, query, schema)
            version = int(find_table(address).open().version)
            if not with_data:
                return port.ViewMade(version)
            made = views.refresh(self._spark, address, full=True, progress=progress)
        return port.ViewMade(version, made.transaction_id)

    def refresh_materialized_view(
        self,
        namespace: LanceNamespace,
        path: Path,
        *,
        source_version: int | None,
        max_rows_per_fragment: int | None,
    ) -> str:
        """Refresh a view. Source: `lance_bridge.engine.Engine`."""
        address = address_in(namespace, path)
        with phases(f"refresh view {address.name}", 3) as progress:
            made = views.refresh(
                self._spark,
                address,
                full=source_version is not None,
                rows=max_rows_per_fragment,
                source_version=source_version,
                progress=progress,
            )
        return made.transaction_id or ""


def address_in(namespace: LanceNamespace, path: Path) -> TableAddress:
    """Return the address of a namespace's table, from which executors can connect themselves.

    Raises:
        InvalidInputError: (13) the namespace is pylance's own.
    """
    own = require_lance_bridge(namespace, type(namespace).__name__)
    cls = type(own)
    impl = f"{cls.__module__}.{cls.__qualname__}"
    properties = {"impl": impl, **own.properties}
    return TableAddress(CatalogAddress(own.configured_name or cls.impl, properties), path)


# -- maintenance for the command line --------------------------------------------------------------

_SETTINGS = {
    # The session's settings contain the catalog's properties, which the UI would show.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class SparkMaintenance:
    """Jobs on the tables of one catalog, with the options of their functions."""

    session: Any
    catalog: str

    def compact(self, table: Sequence[str], *, target_rows: int) -> Compacted:
        """Join small fragments."""
        name = self._name(table)
        return compact(self.session, name, target_rows_per_fragment=target_rows)

    def create_index(self, table: Sequence[str], column: str, kind: str, **options: Any) -> None:
        """Build an index."""
        create_index(self.session, self._name(table), column, kind, **options)

    def clean_up(self, table: Sequence[str], **options: Any) -> Cleaned:
        """Delete old versions."""
        return clean_up(self.session, self._name(table), **options)

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
