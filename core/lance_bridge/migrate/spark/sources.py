"""Tables and directories that Spark reads: what they are, which state of them, and their rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lance_namespace.errors import TableNotFoundError, UnsupportedOperationError
from py4j.protocol import Py4JError
from pydantic import Field
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ...errors import display, invalid, unsupported
from ...names import quoted
from ..plan import Model
from .session import is_secret, told_by_spark

DELTA, ICEBERG = "delta", "iceberg"
OWN_CATALOG = "spark_catalog"
"""The catalog that every session has."""
FORMATS = ("parquet", "orc", "avro", "csv", "json", DELTA, ICEBERG)
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13 of the session's release",
    DELTA: "io.delta:delta-spark_2.13 (for Spark 4.1: io.delta:delta-spark_4.1_2.13)",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime of the session's release, such as "
    "iceberg-spark-runtime-4.1_2.13",
}
_MISSING = ("DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1139", "Failed to find data source",
            "DELTA_CONFIGURE", "ClassNotFoundException")  # fmt: skip
_INFERRED = ("csv", "json")
_UNKNOWN_SIZE = 2**60
"""Spark's guess for what it has no statistics of is more."""


class SourceTable(Model):
    """One source, with all that is needed to read the same rows again.

    Attributes:
        catalog: Spark's name of the catalog; "" for a path.
        names: Those of its namespace and its own, or the location alone.
        format: As Spark calls it; for a table of Hive's, that of its files.
        location: Where it lies, as far as Spark tells.
        read_options: Those of Spark's reader, for a path.
        snapshot: The version of Delta or the snapshot of Iceberg that is read; None for formats
            that have none, and for tables without a snapshot.
        columns: The schema that Spark reads, in JSON.
    """

    catalog: str = ""
    names: tuple[str, ...]
    format: str
    location: str = ""
    partitions: tuple[str, ...] = ()
    read_options: dict[str, str] = Field(default_factory=dict)
    snapshot: int | None = None
    columns: str = ""

    @property
    def name(self) -> str:
        return display(self.names)

    @property
    def sql_name(self) -> str:
        return quoted((self.catalog, *self.names))

    @property
    def schema_read(self) -> StructType:
        return StructType.fromJson(json.loads(self.columns))

    @property
    def has_snapshots(self) -> bool:
        return self.format in (DELTA, ICEBERG)

    def fingerprint(self) -> str:
        """Return a digest of all that the plan rests on."""
        parts = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def read(self, spark: Any) -> DataFrame:
        """Return the rows, of the pinned snapshot where there is one.

        Raises:
            TableNotFoundError: (4)
            InvalidInputError: (13) Spark cannot read it.
            UnsupportedOperationError: (0) the session lacks what reads the format.
        """
        with told_by_spark(f"'{self.name}' cannot be read"), needing(self.format, self.name):
            return self._read(spark)

    def _read(self, spark: Any) -> DataFrame:
        found: DataFrame
        if self.catalog == OWN_CATALOG:
            # Spark keeps the list of a table's files, and others may have written since.
            spark.catalog.refreshTable(self.sql_name)
        if self.catalog:
            if self.snapshot is None:
                found = spark.table(self.sql_name)
            else:
                found = spark.sql(f"SELECT * FROM {self.sql_name} VERSION AS OF {self.snapshot}")
            return found
        reader = spark.read.format(self.format).options(**self.read_options)
        if self.columns and self.format in _INFERRED:
            reader = reader.schema(self.schema_read)
        if self.snapshot is not None:
            key = "versionAsOf" if self.format == DELTA else "snapshot-id"
            reader = reader.option(key, str(self.snapshot))
        found = reader.load(self.location)
        return found


@contextmanager
def needing(format: str, name: str) -> Iterator[None]:
    """Tell which package a session lacks that cannot read a format (0)."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = f"{error}"
        if format in _PACKAGES and any(sign in said for sign in _MISSING):
            raise missing_package(format, name) from error
        raise


def missing_package(format: str, name: str) -> UnsupportedOperationError:
    """Return the error for a session that cannot read a format."""
    return unsupported(
        f"'{name}' is in {format}, which this session cannot read: start it with the package "
        f"{_PACKAGES[format]} (spark.jars.packages)"
    )


def at_path(spark: Any, path: str, format: str, read_options: Mapping[str, str]) -> SourceTable:
    """Return a directory or file as a source.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) not a format that is known, or Spark cannot read it.
        UnsupportedOperationError: (0) the session lacks what reads the format.
    """
    if format not in FORMATS:
        raise invalid(f"'{format}' is no format of these: {', '.join(FORMATS)}")
    secret = [key for key in read_options if is_secret(key)]
    if secret:
        raise invalid(
            f"A plan keeps no secrets, such as the option {secret[0]}: set it in the session "
            "(spark.hadoop.…)"
        )
    table = SourceTable(names=(path,), format=format, location=path,
                        read_options=dict(read_options))  # fmt: skip
    return with_schema(spark, pinned(spark, table))


def with_schema(spark: Any, table: SourceTable) -> SourceTable:
    """Return a source with the schema that it has."""
    return table.model_copy(update={"columns": table.read(spark).schema.json()})


def pinned(spark: Any, table: SourceTable) -> SourceTable:
    """Return a source with its latest snapshot, where its format has such."""
    if not table.has_snapshots:
        return table
    with (
        told_by_spark(f"The snapshots of '{table.name}' cannot be read"),
        needing(table.format, table.name),
    ):
        find = _delta_version if table.format == DELTA else _iceberg_snapshot
        return table.model_copy(update={"snapshot": find(spark, table)})


def _delta_version(spark: Any, table: SourceTable) -> int:
    name = table.sql_name if table.catalog else f"delta.{quoted((table.location,))}"
    return int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"])


def _iceberg_snapshot(spark: Any, table: SourceTable) -> int | None:
    if table.catalog:
        refs = spark.table(f"{table.sql_name}.refs")
    else:
        refs = spark.read.format(ICEBERG).load(f"{table.location}#refs")
    found = refs.where("name = 'main'").select("snapshot_id").collect()
    return int(found[0][0]) if found else None


def size_of(frame: DataFrame) -> int | None:
    """Return the bytes of the files that Spark would read, or None where it cannot tell."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    size = int(str(plan.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return size if size < _UNKNOWN_SIZE else None


def described_again(spark: Any, table: SourceTable) -> SourceTable:
    """Return a source as it is now, at the snapshot that it was pinned to.

    Raises:
        TableNotFoundError: (4) it is gone.
    """
    from .listing import described  # noqa: PLC0415 - it needs this module

    if not table.catalog:
        return with_schema(spark, table.model_copy(update={"columns": ""}))
    now = described(spark, table.catalog, table.names)
    if now is None:
        raise TableNotFoundError(f"'{table.name}' is not a table of the kind that it was")
    return with_schema(spark, now.model_copy(update={"snapshot": table.snapshot}))
