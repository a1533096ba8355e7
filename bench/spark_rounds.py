"""The statements: what is written first, then what reads it, in rounds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from lance_namespace import CreateNamespaceRequest, CreateTableIndexRequest
from pyspark.sql import SparkSession

from bench.spark_data import DIMENSION
from bench.spark_settings import Place, session
from bench.spark_steps import (
    CATALOG,
    NAMESPACE,
    PARQUET,
    TABLE,
    WRITE_BAR,
    lookups,
    reading,
)
from bench.spark_turns import Found, Step, take_turns
from lance_bridge.spark.names import address_of, catalogs_of

Tell = Callable[[str], None]
_WRITES = 2
_VECTORS_FOR_AN_INDEX = 5000


def measure(place: Place, rows: int, rounds: int, tell: Tell) -> list[dict[str, Any]]:
    """Write the tables, read them, look for rows with indices; return what each step took."""
    with session(place) as spark:
        namespace = catalogs_of(spark)[CATALOG].connect()
        namespace.create_namespace(CreateNamespaceRequest(id=[NAMESPACE], mode="exist_ok"))
        tell("writing tables …")
        steps = [_writing(spark, place)]
        found = take_turns(steps, min(rounds, _WRITES), tell)
        spark.read.parquet(place.parquet).createOrReplaceTempView(PARQUET)
        tell("reading …")
        readers = reading(spark, rows)
        found.update(take_turns(readers, rounds, tell))
        tell("building indices …")
        build_indices(spark, rows)
        finders = lookups(spark, rows)
        found.update(take_turns(finders, rounds, tell))
    return [_row(step, found[step.name]) for step in (*steps, *readers, *finders)]


def write_table(spark: SparkSession, source: str, name: str) -> None:
    """Write a Lance table anew, with the vectors as such."""
    options = {"catalog": CATALOG, "vector.vector": str(DIMENSION), "overwrite_schema": "true"}
    frame = spark.read.parquet(source)
    frame.write.format("lance").options(**options).mode("overwrite").save(f"{NAMESPACE}.{name}")


def _writing(spark: SparkSession, place: Place) -> Step:
    def parquet(_: int) -> None:
        shutil.rmtree(place.parquet, ignore_errors=True)
        spark.read.parquet(place.source).write.parquet(place.parquet)

    return Step("write", lambda _: write_table(spark, place.source, "rows"), parquet, WRITE_BAR)


def build_indices(spark: SparkSession, rows: int) -> None:
    """Build what lookups and searches use, through the namespace."""
    address = address_of(spark, TABLE)
    assert address.catalog is not None
    namespace = address.catalog.connect()
    wanted = [("id", "BTREE"), ("score", "BTREE")]
    if rows >= _VECTORS_FOR_AN_INDEX:
        wanted.append(("vector", "IVF_PQ"))
    for column, kind in wanted:
        request = CreateTableIndexRequest(id=list(address.path), column=column, index_type=kind)
        if column == "vector":
            request.distance_type = "l2"
        namespace.create_table_index(request)


def _row(step: Step, found: Found) -> dict[str, Any]:
    return {
        "step": step.name,
        "ours_s": sorted(found.ours)[len(found.ours) // 2],
        "parquet_s": sorted(found.parquet)[len(found.parquet) // 2],
        "ratio": round(found.ratio, 3),
        "bar": step.bar,
        "passed": None if step.bar is None else found.ratio <= step.bar,
        "wrong": found.wrong,
    }
