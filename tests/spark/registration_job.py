"""What sessions say that were started with other settings; called through `sparks`."""

from __future__ import annotations

from typing import Any

from lance_namespace.errors import UnsupportedOperationError
from pyspark.errors import AnalysisException

from lance_bridge_spark import register


def refusal(spark: Any) -> str:
    """Register a catalog; return why that is refused."""
    try:
        register(spark, {"prod": {"impl": "hive", "uri": "thrift://localhost:1"}})
    except UnsupportedOperationError as error:
        return str(error)
    return ""


def write_and_read(spark: Any, table: str) -> list[int]:
    """Append three rows to a table by its name; return how many there are, and their sum."""
    spark.range(3).write.format("lance").mode("append").save(table)
    rows = spark.read.format("lance").load(table).count()
    return [rows, spark.sql(f"SELECT sum(id) FROM {table}").collect()[0][0]]


def failure_of_search(spark: Any) -> str:
    """Return what a session says of a search without arguments."""
    try:
        spark.sql("SELECT * FROM lance_search()")
    except AnalysisException as error:
        return str(error)
    return ""
