"""What functions and jobs do in a client of Spark Connect, on tables in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import lance_bridge_spark as lb


def functions(spark: Any, directory: str) -> dict[str, Any]:
    """Write, read and change a table by functions; return what each came to."""
    place = str(Path(directory) / "t.lance")
    rows = spark.range(10).selectExpr("id", "id * 10 AS v", "CAST(id AS STRING) AS s")
    lb.write(rows, place)
    found: dict[str, Any] = {"count": lb.count(spark, place)}
    read = lb.read(spark, place, columns=["id"], filter=lb.col("id") < 3)
    found["read"] = sorted(row.id for row in read.collect())
    found["update"] = lb.update(spark, place, {"v": "v + 1"}, "id >= 8").updated
    found["delete"] = lb.delete(spark, place, "s = '0'").deleted
    source = spark.range(8, 12).selectExpr("id", "-1L AS v", "'new' AS s")
    merged = lb.merge_into(
        source, place, ["id"], when_matched_update="*", when_not_matched_insert="*"
    )
    found["merge"] = [merged.updated, merged.inserted]
    found["rows"] = sorted(lance.dataset(place).to_table()["id"].to_pylist())
    found["versions"] = lb.versions(spark, place).count()
    found["take"] = [row.id for row in lb.take(spark, place, [2, 1], columns=["id"]).collect()]
    lb.restore(spark, place, 2)
    found["restored"] = lb.count(spark, place)
    return found


def searches(spark: Any, directory: str) -> dict[str, Any]:
    """Search a table, for one vector, for words, and for the vectors of a DataFrame."""
    place = str(Path(directory) / "v.lance")
    vectors = pa.array(np.arange(40, dtype=np.float32))
    table = pa.table(
        {
            "id": range(10),
            "t": [f"word{i}" for i in range(10)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
        }
    )
    lance.write_dataset(table, place, max_rows_per_file=5)
    near = lb.nearest(spark, place, "v", [0.0, 1.0, 2.0, 3.0], 1)
    lb.create_index(spark, place, "t", "FTS")
    text = lb.full_text(spark, place, "word3", ["t"])
    queries = spark.createDataFrame([(1, [36.0, 37.0, 38.0, 39.0])], "q int, qv array<double>")
    batch = lb.nearest_batch(queries, place, "v", "qv", 1)
    return {
        name: [row.id for row in frame.collect()]
        for name, frame in {"nearest": near, "full_text": text, "batch": batch}.items()
    }


def jobs(spark: Any, directory: str) -> dict[str, Any]:
    """Maintain a table by every job; return what each came to."""
    place, view = (str(Path(directory) / name) for name in ("j.lance", "view.lance"))
    lance.write_dataset(pa.table({"id": range(10)}), place, max_rows_per_file=2)
    found: dict[str, Any] = {}
    found["compact"] = lb.compact(spark, place).fragments_added
    found["index"] = lb.create_index(spark, place, "id", "BTREE").name
    lb.backfill(spark, place, "twice", "id * 2")
    found["backfill"] = lance.dataset(place).to_table()["twice"].to_pylist()
    lb.create_materialized_view(spark, view, f"SELECT id FROM lance.`{place}` WHERE id > 7")
    lance.write_dataset(pa.table({"id": [90], "twice": [180]}), place, mode="append")
    found["refresh"] = lb.refresh_materialized_view(spark, view).is_full
    found["view"] = sorted(lance.dataset(view).to_table()["id"].to_pylist())
    found["clean_up"] = lb.clean_up(spark, place).versions
    return found
