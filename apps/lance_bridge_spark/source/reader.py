"""The reader of the data source: made on the driver, sent to the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import lance
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from . import local_rows
from .planning import Fragments
from .reading import Reading
from .worker_calls import spark_call


class LanceReader(DataSourceReader):
    """Reads one version of a table: made on the driver, sent to the tasks."""

    def __init__(self, reading: Reading, dataset: lance.LanceDataset) -> None:
        self._reading = reading
        self._dataset: lance.LanceDataset | None = dataset

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open dataset out: tasks open their own."""
        return {**self.__dict__, "_dataset": None}

    def rows_to_read(self) -> int | None:
        """Return how many rows have to be looked at, at most, where that is known."""
        with spark_call():
            return local_rows.rows_to_read(self._reading, self._opened())

    def read_all(self, limit: local_rows.SizeLimit) -> pa.Table | None:
        """Return the rows as tasks would, or None where they take more than that."""
        with spark_call():
            return local_rows.read(self._reading, self._opened(), limit)

    def partitions(self) -> list[InputPartition]:
        with spark_call():
            return list(self._reading.plan(self._opened()))

    def _opened(self) -> lance.LanceDataset:
        return self._dataset or self._reading.access.open()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_call():
            yield from self._reading.read(cast("Fragments", partition))
