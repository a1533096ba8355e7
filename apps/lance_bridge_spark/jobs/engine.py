"""Spark as the compute engine of the namespaces of this process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import LanceNamespace

from lance_bridge import engine as port
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.registry import require_lance_bridge
from lance_bridge.requests import Ref

from ..addresses import CatalogAddress, TableAddress
from ..lookup import find_table
from ..spark_tables import SparkTable
from . import views
from .backfill import BATCH_ROWS, Backfill, LanceSql, fill
from .tasks import phases


class SparkEngine:
    """Runs the jobs of namespace operations in one Spark session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

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
                batch_size=request.batch_rows or BATCH_ROWS,
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
