"""External Parquet tables that a migration creates in Spark, each recognised by its mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError
from pyspark.sql.types import StructType

from lance_bridge.errors import display
from lance_bridge.names import quoted
from lance_bridge_spark.schemas import read_type, spark_schema

from ..plan import Problem, blocker, warning
from ..targets import MARK
from .session import spark_errors
from .sources import OWN_CATALOG

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_LOCK = Lock()
_WRITERS: dict[Any, int] = {}
"""How many threads write with each session whose setting is changed for them."""


def column_problems(columns: pa.Schema) -> list[Problem]:
    """Return problems of columns that Parquet cannot store or stores with another type."""
    found: list[Problem] = []
    for field in columns:
        try:
            [shown] = spark_schema(pa.schema([field])).fields
        except LanceNamespaceError as error:
            found.append(blocker(str(error), field.name))
            continue
        if _has(field.type, pa.types.is_null):
            found.append(blocker(f"Parquet has no type for {field.type}", field.name))
        elif _has(field.type, pa.types.is_duration):
            text = f"{field.type} is written as {shown.dataType.simpleString()}: for readers other"
            found.append(warning(f"{text} than Spark, a number of microseconds", field.name))
        elif not read_type(field.type).equals(field.type) and not _is_plain_list(field.type):
            text = f"{field.type} is written as {shown.dataType.simpleString()}"
            found.append(warning(text, field.name))
    return found


def _has(of: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type is one of a kind, or has it inside."""
    if isinstance(of, pa.BaseExtensionType):
        return _has(of.storage_type, is_one)
    return is_one(of) or any(_has(of.field(n).type, is_one) for n in range(of.num_fields))


def _is_plain_list(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(data_type) and read_type(data_type.value_type).equals(data_type.value_type)
    )


@contextmanager
def exact_timestamps(spark: Any) -> Iterator[None]:
    """Write timestamps in microseconds while any of a session's threads is here.

    Spark's default is a type that pyarrow reads as nanoseconds, which overflow from the year 2262
    on. A setting of the session is kept.
    """
    with _LOCK:
        if spark not in _WRITERS and spark.conf.get(_TIMESTAMPS, None) is None:
            spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
            _WRITERS[spark] = 0
        is_ours = spark in _WRITERS
        if is_ours:
            _WRITERS[spark] += 1
    try:
        yield
    finally:
        with _LOCK:
            if is_ours:
                _WRITERS[spark] -= 1
                if not _WRITERS[spark]:
                    del _WRITERS[spark]
                    spark.conf.unset(_TIMESTAMPS)


def partition_problems(columns: pa.Schema, by: Sequence[str]) -> list[Problem]:
    """Return problems of partitioning a table by columns."""
    missing = [name for name in by if name not in columns.names]
    if missing:
        lacks = ", ".join(missing)
        return [warning(f"It is not partitioned: it has no column {lacks}")]
    if len(by) == len(columns):
        return [blocker("All of its columns would be partitions: leave one to the files")]
    found: list[Problem] = []
    for name in by:
        data_type = read_type(columns.field(name).type)
        if pa.types.is_nested(data_type):
            found.append(blocker(f"{data_type} cannot be in the names of directories", name))
        elif pa.types.is_binary(data_type):
            found.append(blocker("Binary values cannot be in the names of directories", name))
        elif pa.types.is_timestamp(data_type) and data_type.tz is not None:
            found.append(
                warning(
                    "The names of its directories are times of the session's zone "
                    "(spark.sql.session.timeZone): read them in the same one",
                    name,
                )
            )
        elif pa.types.is_string(data_type):
            found.append(
                warning("An empty text becomes null, as in all partitions of Spark's", name)
            )
    return found


def table_problems(spark: Any, database: str, table: str) -> list[Problem]:
    """Return problems that prevent creating a table."""
    with spark_errors(f"Database '{database}' cannot be read"):
        if not spark.catalog.databaseExists(f"{OWN_CATALOG}.{quoted((database,))}"):
            return [blocker(f"Database '{database}' does not exist: create it first")]
        if spark.catalog.tableExists(quoted((OWN_CATALOG, database, table))):
            return [blocker(f"'{database}.{table}' already exists: choose another name")]
    return []


def create_table(
    spark: Any,
    path: Sequence[str],
    columns: StructType,
    location: str,
    *,
    partition_by: Sequence[str],
    mark: str,
) -> None:
    """Create an external table for existing Parquet files, without adding its partitions.

    Raises:
        InvalidInputError: (13) the table already exists, or Spark refuses a name or type.
        ServiceUnavailableError: (17)
    """
    name = quoted((OWN_CATALOG, *path))
    parts = f"PARTITIONED BY ({', '.join(quoted((c,)) for c in partition_by)})"
    escaped = location.replace("\\", "\\\\").replace("'", "\\'")
    with spark_errors(f"Table '{display(tuple(path))}' is not created"):
        spark.sql(
            f"CREATE TABLE {name} ({columns.toDDL()}) USING parquet "
            f"{parts if partition_by else ''} LOCATION '{escaped}' "
            f"TBLPROPERTIES ('{MARK}' = '{mark}')"
        )


def add_partitions(spark: Any, path: Sequence[str]) -> None:
    """Add all partitions in a table's directory to the table. Idempotent.

    Raises:
        ServiceUnavailableError: (17)
    """
    with spark_errors(f"The partitions of table '{display(tuple(path))}' are not added"):
        spark.sql(f"MSCK REPAIR TABLE {quoted((OWN_CATALOG, *path))}")


def mark_of(spark: Any, path: Sequence[str]) -> str | None:
    """Return the mark of a table, "" if it has none, or None if the table does not exist."""
    name = quoted((OWN_CATALOG, *path))
    with spark_errors(f"Table '{display(tuple(path))}' cannot be read"):
        if not spark.catalog.tableExists(name):
            return None
        rows = spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
    return next((row["value"] for row in rows if row["key"] == MARK), "")
