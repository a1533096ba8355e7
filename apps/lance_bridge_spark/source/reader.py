"""The reader of the data source."""

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
    """Reads one version of a table; created on the driver and sent to the tasks."""

    def __init__(self, reading: Reading, dataset: lance.LanceDataset) -> None:
        self._reading = reading
        self._dataset: lance.LanceDataset | None = dataset

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open dataset: tasks open their own."""
        return {**self.__dict__, "_dataset": None}

    def rows_to_read(self) -> int | None:
        """Return the maximum number of rows to scan, or None if it is unknown."""
        with spark_call():
            return local_rows.rows_to_read(self._reading, self._open())

    def read_all(self, limit: local_rows.SizeLimit) -> pa.Table | None:
        """Return the rows that tasks would read, or None if they exceed the limit."""
        with spark_call():
            return local_rows.read(self._reading, self._open(), limit)

    def partitions(self) -> list[InputPartition]:
        with spark_call():
            return list(self._reading.plan(self._open()))

    def _open(self) -> lance.LanceDataset:
        return self._dataset or self._reading.access.open()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_call():
            yield from self._reading.read(cast("Fragments", partition))
