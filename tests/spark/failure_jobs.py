"""What the failure tests let Spark do in processes of its own: functions of a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from spark.kill_helpers import (
    KILL_EXECUTOR,
    KILL_WORKER,
    RAISE,
    SESSION,
    DyingSource,
    PowerlessSource,
    failing,
)

from lance_bridge_spark.registration import register

ROWS = 2000


def append_in_spite_of_failures(spark: Any, directory: str) -> dict[str, Any]:
    """Append while a task raises, a worker is killed and an executor is; once in each way."""
    register(spark)
    spark.dataSource.register(DyingSource)
    found = {}
    for how in (RAISE, KILL_WORKER, KILL_EXECUTOR):
        place = f"{directory}/{how.replace(' ', '-')}.lance"
        rows = spark.range(0, ROWS, 1, 4).mapInArrow(failing(how, f"{place}.failed"), "id long")
        rows.write.format("lance").mode("append").save(place)
        found[how] = seen(spark, place)
    place = f"{directory}/writer.lance"
    spark.range(0, ROWS, 1, 4).write.format("dying").mode("append").save(place)
    found["kill the writer"] = seen(spark, place)
    return found


def seen(spark: Any, place: str) -> list[int]:
    """Return how many rows a table has, how many different ones, and its versions."""
    ids = [row.id for row in spark.read.format("lance").load(place).collect()]
    return [
        len(ids),
        len({*ids} & {*range(ROWS)}),
        len(list(Path(place, "_versions").glob("*.manifest"))),
    ]


def stream(spark: Any, sink_format: str, source: str, sink: str, checkpoint: str) -> list[int]:
    """Stream a table into another in batches of few rows, to the end of what there is."""
    register(spark)
    spark.dataSource.register(PowerlessSource)
    if SESSION in os.environ:
        Path(os.environ[SESSION]).write_text(str(os.getpgid(0)), encoding="ascii")
    frame = spark.readStream.format("lance").option("max_rows_per_batch", "10").load(source)
    writer = frame.writeStream.format(sink_format).option("checkpointLocation", checkpoint)
    query = writer.option("path", sink).trigger(availableNow=True).start()
    assert query.awaitTermination(90), "the stream did not end"
    return sorted(row.id for row in spark.read.format("lance").load(sink).collect())
