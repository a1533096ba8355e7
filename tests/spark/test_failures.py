"""No row is lost and none is doubled, though tasks, workers, executors and machines die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from servers.sparks import CLUSTER, Spark, SparkFailedError
from spark.failure_jobs import ROWS
from spark.kill_helpers import MARK, SESSION

pytestmark = [pytest.mark.spark, pytest.mark.matrix]


def test_rows_are_there_once_though_tasks_workers_and_executors_die(tmp_path: Path) -> None:
    spark = Spark(master=CLUSTER, environment={MARK: str(tmp_path / "mark")})
    found = spark.run(
        "spark.failure_jobs:append_in_spite_of_failures",
        tmp_path,
        seconds=240,
        directory=str(tmp_path),
    )
    # The empty table is a version, and so is what was appended.
    assert found == {
        "raise": [ROWS, ROWS, 2],
        "kill the worker": [ROWS, ROWS, 2],
        "kill the executor": [ROWS, ROWS, 2],
        "kill the writer": [ROWS, ROWS, 2],
    }
    assert len(list(tmp_path.glob("*.failed"))) == 3, "not all tasks have failed"
    assert (tmp_path / "mark").exists(), "no writer has died"


def test_a_stream_that_dies_between_commit_and_checkpoint_goes_on_without_a_row_twice(
    tmp_path: Path,
) -> None:
    source, sink = str(tmp_path / "source.lance"), str(tmp_path / "sink.lance")
    for first in range(0, 40, 10):
        lance.write_dataset(pa.table({"id": list(range(first, first + 10))}), source, mode="append")
    dying = Spark(environment={MARK: str(tmp_path / "mark"), SESSION: str(tmp_path / "session")})
    arguments: dict[str, Any] = {
        "source": source,
        "sink": sink,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    with pytest.raises(SparkFailedError, match="exit code -9"):
        dying.run("spark.failure_jobs:stream", tmp_path, sink_format="powerless", **arguments)
    assert lance.dataset(sink).count_rows() == 20, "it did not die right after its second commit"
    found = Spark().run("spark.failure_jobs:stream", tmp_path, sink_format="lance", **arguments)
    assert found == list(range(40))
