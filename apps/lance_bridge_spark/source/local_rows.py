"""Reads that the driver executes without tasks, because they scan few rows.

Lance finds a row by an index in about a millisecond; a Spark task takes a hundred times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import lance
import pyarrow as pa

from . import planning
from .planning import Fragments
from .reading import Reading
from .types import batch_schema


@dataclass(frozen=True)
class SizeLimit:
    """The maximum number of rows to read, and of their bytes."""

    rows: int
    bytes: int


def read(reading: Reading, dataset: lance.LanceDataset, limit: SizeLimit) -> pa.Table | None:
    """Return all rows of a read, in the schema that Spark expects; None if they exceed the limit.

    Raises:
        LanceNamespaceError: The same errors as in a task that reads them.
    """
    if limit.rows * _width(reading, dataset) > limit.bytes:
        return None
    found, size = list[pa.RecordBatch](), 0
    everything = Fragments(None, reading.options.limit, reading.scan.offset)
    for batch in reading.read_from(dataset, everything):
        found.append(batch)
        size += batch.nbytes
        if size > limit.bytes:
            # The estimate was too low: the stored values are compressed.
            return None
    return pa.Table.from_batches(found, batch_schema(reading.schema))


def _width(reading: Reading, dataset: lance.LanceDataset) -> int:
    """Return the estimated bytes of a row, by its types or by its files, whichever is larger."""
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    stored = sum(file.file_size_bytes or 0 for file in files)
    return max(reading.with_width(dataset).width, stored // max(int(dataset.count_rows()), 1))


def rows_to_read(reading: Reading, dataset: lance.LanceDataset) -> int | None:
    """Return the maximum number of rows to scan, or None if it is unknown."""
    if reading.scan.fragments is not None:
        return None
    everything = int(dataset.count_rows())
    looked_at = everything
    if reading.filter is not None:
        by_index = planning.rows_by_index(dataset, reading.filter)
        looked_at = everything if by_index is None else by_index
    if reading.search is not None:
        if looked_at == everything and reading.filter is not None:
            return everything
        found = reading.search.most_rows
        unindexed = planning.rows_not_indexed(dataset, reading.search)
        return everything if found is None else found + unindexed
    if reading.filter is None and not reading.scan.aggregate and not reading.scan.order:
        looked_at = max(looked_at - (reading.scan.offset or 0), 0)
        limits = [reading.options.limit, reading.scan.limit]
        looked_at = min([looked_at, *(each for each in limits if each is not None)])
    return looked_at
