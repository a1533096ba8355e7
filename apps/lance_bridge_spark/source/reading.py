"""Planning a read and reading its rows in tasks, as Arrow batches in Spark's own types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import lance
import pyarrow as pa
from lance.dataset import ColumnOrdering
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lance_bridge import blobs
from lance_bridge.dataset import in_brackets, translate_query_errors

from ..addresses import Access
from ..schemas import ROW_ADDRESS, ROW_ID, batch_schema
from . import conversion, planning
from .options import BATCH_ROWS, Aggregate, ReadOptions, Scan, Search
from .planning import Fragments, columns_of, partial_aggregates, partial_by_group
from .worker_calls import spark_call

# -- scans -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What tasks need to read their fragments. Pickles, with the credentials."""

    access: Access
    schema: StructType
    scan: Scan
    options: ReadOptions
    search: Search | None = None
    width: int = 1
    """Estimated bytes of a row."""

    def with_width(self, dataset: lance.LanceDataset) -> Reading:
        """Return a copy with the width of the columns that are read from a dataset."""
        names = set(self.schema.fieldNames())
        return replace(
            self, width=planning.width_of(f.type for f in dataset.schema if f.name in names)
        )

    @property
    def sizes(self) -> planning.Sizes:
        """How much one task should read."""
        options = self.options
        return planning.Sizes(options.rows_per_task, options.bytes_per_task, self.scan.parallelism)

    @property
    def filter(self) -> str | None:
        """The SQL catalog's condition and the user's own, joined by AND."""
        given = [each for each in (self.scan.filter, self.options.filter) if each]
        return " AND ".join(map(in_brackets, given)) or None

    def plan(self, dataset: lance.LanceDataset) -> list[Fragments]:
        """Return the tasks, at least one."""
        limit = self.options.limit
        if self.search is not None:
            # Only a task that reads all rows knows the best ones.
            return [Fragments(self.scan.fragments, limit)]
        if limit is not None and self.filter:
            return [Fragments(self.scan.fragments, limit)]
        if self.filter and self._fits_one_task(dataset, self.filter):
            return [Fragments(self.scan.fragments)]
        rows = planning.rows_of(dataset, self.scan.fragments)
        tasks = planning.grouped(rows, self.with_width(dataset).width, self.sizes)
        if limit is not None:
            tasks = planning.cut(tasks, rows, 0, limit)
        elif self.scan.offset is not None:
            tasks = planning.cut(tasks, rows, self.scan.offset, self.scan.limit)
        return tasks or [Fragments(())]

    def _fits_one_task(self, dataset: lance.LanceDataset, predicate: str) -> bool:
        """Return whether indices show that so few rows match that one task is enough."""
        rows = planning.rows_by_index(dataset, predicate)
        return rows is not None and rows * self.with_width(dataset).width <= planning.LEAST_BYTES

    def read(self, part: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the schema that Spark expects."""
        yield from self.read_from(self.access.open(), part)

    def read_from(self, dataset: lance.LanceDataset, part: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments of an open dataset, as `read` does."""
        expected = batch_schema(self.schema)
        if self.scan.aggregate is not None:
            yield from self._aggregate(dataset, part, self.scan.aggregate, expected)
            return
        if part.ids == ():
            return
        what = f"Table '{self.access.address.name}' could not be read"
        with translate_query_errors(what):
            for batch in self._scanner(dataset, part, expected.names).to_batches():
                yield conversion.to_spark(batch, expected)

    def _aggregate(
        self,
        dataset: lance.LanceDataset,
        part: Fragments,
        wanted: tuple[Aggregate, ...],
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        groups = self.scan.groups
        if not groups:
            yield partial_aggregates(dataset, part.ids, self.filter, wanted, schema)
        elif part.ids != ():
            scanner = self._scanner(dataset, part, columns_of(wanted, groups))
            with translate_query_errors("The table could not be aggregated"):
                yield from partial_by_group(scanner.to_batches(), groups, wanted, schema)

    def _scanner(
        self, dataset: lance.LanceDataset, part: Fragments, names: list[str]
    ) -> lance.LanceScanner:
        columns = [name for name in names if name not in (ROW_ID, ROW_ADDRESS)]
        return dataset.scanner(
            columns=columns,
            # A scan without columns counts rows by their ids.
            with_row_id=ROW_ID in names or not names,
            with_row_address=ROW_ADDRESS in names,
            # Lance reads the columns that it does not sort by after the sort only with a filter.
            filter=self.filter or ("true" if self.scan.order else None),
            limit=self._limit(part),
            offset=part.offset,
            fragments=planning.fragments_of(dataset, part.ids),
            batch_size=self.options.batch_size or self._batch_rows(dataset, columns, part),
            scan_in_order=part.limit is not None or part.offset is not None,
            **blobs.scan_arguments(dataset.schema, columns),
            **self._search_arguments(),
            **self._sort_arguments(columns),
        )

    def _batch_rows(
        self,
        dataset: lance.LanceDataset,
        columns: list[str],
        part: Fragments,
    ) -> int:
        with_blobs = blobs.columns_with_blobs(dataset.schema, columns)
        if with_blobs and self.search is not None:
            return blobs.FEW_ROWS
        if with_blobs:
            fragments = planning.fragments_of(dataset, part.ids)
            chosen = {"filter": self.filter, "fragments": fragments}
            return blobs.batch_rows(dataset, with_blobs, BATCH_ROWS, **chosen)
        if self.filter is not None or self.search is not None:
            # Lance reads the columns of a filter in batches of the same number of rows.
            return BATCH_ROWS
        known = {field.name: field.type for field in dataset.schema}
        return planning.batch_rows(known.get(name, pa.null()) for name in columns)

    def _limit(self, part: Fragments) -> int | None:
        limits = [part.limit, self.scan.limit, self.search.rows if self.search else None]
        given = [each for each in limits if each is not None]
        return min(given) if given else None

    def _sort_arguments(self, columns: list[str]) -> dict[str, Any]:
        keys = self.scan.order
        if not keys:
            return {}
        return {
            "order_by": [ColumnOrdering(k.column, not k.descending, k.nulls_first) for k in keys],
            "late_materialization": list({*columns} - {key.column for key in keys}),
        }

    def _search_arguments(self) -> dict[str, Any]:
        if self.search is None:
            return {}
        # Lance should add the score or distance only if it is requested.
        return {**self.search.options, "disable_scoring_autoprojection": True}

    # -- rows for the driver -----------------------------------------------------------------------

    def rows_to_read(self, dataset: lance.LanceDataset) -> int | None:
        """Return the maximum number of rows to scan, or None if it is unknown."""
        if self.scan.fragments is not None:
            return None
        everything = looked_at = int(dataset.count_rows())
        if self.filter is not None:
            by_index = planning.rows_by_index(dataset, self.filter)
            looked_at = everything if by_index is None else by_index
        if self.search is not None:
            if looked_at == everything and self.filter is not None:
                return everything
            found = self.search.most_rows
            unindexed = planning.rows_not_indexed(dataset, self.search)
            return everything if found is None else found + unindexed
        if self.filter is None and not self.scan.aggregate and not self.scan.order:
            looked_at = max(looked_at - (self.scan.offset or 0), 0)
            limits = [self.options.limit, self.scan.limit]
            looked_at = min([looked_at, *(each for each in limits if each is not None)])
        return looked_at

    def read_all(self, dataset: lance.LanceDataset, rows: int, most: int) -> pa.Table | None:
        """Return all rows, in the schema that Spark expects; None if they exceed ``most`` bytes.

        Args:
            rows: The maximum number of rows to scan.

        Raises:
            LanceNamespaceError: The same errors as in a task that reads them.
        """
        if rows * self._largest_width(dataset) > most:
            return None
        found, size = list[pa.RecordBatch](), 0
        everything = Fragments(None, self.options.limit, self.scan.offset)
        for batch in self.read_from(dataset, everything):
            found.append(batch)
            size += batch.nbytes
            if size > most:
                # The estimate was too low: the stored values are compressed.
                return None
        return pa.Table.from_batches(found, batch_schema(self.schema))

    def _largest_width(self, dataset: lance.LanceDataset) -> int:
        """Return the estimated bytes of a row, by its types or its files, whichever is larger."""
        rows = max(int(dataset.count_rows()), 1)
        return max(self.with_width(dataset).width, planning.stored_bytes(dataset) // rows)


# -- reader ----------------------------------------------------------------------------------------


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
            return self._reading.rows_to_read(self._open())

    def read_all(self, rows: int, most: int) -> pa.Table | None:
        """Return the rows that tasks would read, or None if they exceed ``most`` bytes."""
        with spark_call():
            return self._reading.read_all(self._open(), rows, most)

    def partitions(self) -> list[InputPartition]:
        with spark_call():
            return list(self._reading.plan(self._open()))

    def _open(self) -> lance.LanceDataset:
        return self._dataset or self._reading.access.open()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_call():
            yield from self._reading.read(cast("Fragments", partition))
