"""Reading a table: fragments by the tasks, as Arrow batches that Spark takes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import lance
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lance_bridge.dataset import in_brackets, translate_query_errors

from ..addresses import Access
from . import aggregates, arrays, planning
from .options import BATCH_ROWS, ReadOptions
from .planning import Fragments
from .requests import Aggregate, Scan
from .search import Search
from .types import ROW_ADDRESS, ROW_ID, batch_schema
from .worker_calls import spark_call


@dataclass(frozen=True)
class Reading:
    """What tasks need to read their fragments. Pickles, with the credentials."""

    access: Access
    schema: StructType
    scan: Scan
    options: ReadOptions
    search: Search | None = None
    width: int = 1
    """About how many bytes a row has."""

    def with_width(self, dataset: lance.LanceDataset) -> Reading:
        """Return the same, with the width of what is read of this table."""
        names = set(self.schema.fieldNames())
        return replace(
            self, width=planning.width_of(f.type for f in dataset.schema if f.name in names)
        )

    @property
    def sizes(self) -> planning.Sizes:
        """How much one task is to read."""
        options = self.options
        return planning.Sizes(options.rows_per_task, options.bytes_per_task, self.scan.parallelism)

    @property
    def filter(self) -> str | None:
        """The condition of the SQL catalog and the user's own, both."""
        given = [each for each in (self.scan.filter, self.options.filter) if each]
        return " AND ".join(map(in_brackets, given)) or None

    def plan(self, dataset: lance.LanceDataset) -> list[Fragments]:
        """Return the tasks. There is one at least."""
        limit = self.options.limit
        if self.search is not None:
            # The best of all rows are known to one that has seen all.
            return [Fragments(self.scan.fragments, limit)]
        if limit is not None and self.filter:
            return [Fragments(self.scan.fragments, limit)]
        if self.filter and self._is_little(dataset, self.filter):
            return [Fragments(self.scan.fragments)]
        rows = planning.rows_of(dataset, self.scan.fragments)
        if limit is not None:
            return planning.first_rows(rows, limit) or [Fragments(())]
        return planning.grouped(rows, self.with_width(dataset).width, self.sizes) or [Fragments(())]

    def _is_little(self, dataset: lance.LanceDataset, predicate: str) -> bool:
        """Return whether indices know that so few rows are read that one task is best."""
        rows = planning.rows_by_index(dataset, predicate)
        return rows is not None and rows * self.with_width(dataset).width <= planning.LEAST_BYTES

    def read(self, part: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the schema that Spark expects."""
        expected = batch_schema(self.schema)
        dataset = self.access.open()
        if self.scan.aggregate is not None:
            yield from self._aggregated(dataset, part, self.scan.aggregate, expected)
            return
        if part.ids == ():
            return
        what = f"Table '{self.access.address.name}' could not be read"
        with translate_query_errors(what):
            for batch in self._scanner(dataset, part, expected.names).to_batches():
                yield arrays.to_spark(batch, expected)

    def _aggregated(
        self,
        dataset: lance.LanceDataset,
        part: Fragments,
        wanted: tuple[Aggregate, ...],
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        groups = self.scan.groups
        if not groups:
            yield aggregates.partial(dataset, part.ids, self.filter, wanted, schema)
        elif part.ids != ():
            scanner = self._scanner(dataset, part, aggregates.columns_of(wanted, groups))
            with translate_query_errors("The table could not be aggregated"):
                yield from aggregates.partial_by_group(scanner.to_batches(), groups, wanted, schema)

    def _scanner(
        self, dataset: lance.LanceDataset, part: Fragments, names: list[str]
    ) -> lance.LanceScanner:
        columns = [name for name in names if name not in (ROW_ID, ROW_ADDRESS)]
        return dataset.scanner(
            columns=columns,
            # A scan of no column at all counts rows by their ids.
            with_row_id=ROW_ID in names or not names,
            with_row_address=ROW_ADDRESS in names,
            filter=self.filter,
            limit=self._limit(part),
            fragments=planning.fragments_of(dataset, part.ids),
            batch_size=self.options.batch_size or self._batch_rows(dataset, columns),
            scan_in_order=part.limit is not None,
            **self._searching(),
        )

    def _batch_rows(self, dataset: lance.LanceDataset, columns: list[str]) -> int:
        if self.filter is not None or self.search is not None:
            # Lance reads the columns of a condition in batches of as many rows.
            return BATCH_ROWS
        known = {field.name: field.type for field in dataset.schema}
        return planning.batch_rows(known.get(name, pa.null()) for name in columns)

    def _limit(self, part: Fragments) -> int | None:
        limits = [part.limit, self.scan.limit, self.search.rows if self.search else None]
        given = [each for each in limits if each is not None]
        return min(given) if given else None

    def _searching(self) -> dict[str, Any]:
        if self.search is None:
            return {}
        # Lance is to add its column only where it is asked for.
        return {**self.search.options, "disable_scoring_autoprojection": True}


class LanceReader(DataSourceReader):
    """Reads one version of a table: made on the driver, sent to the tasks."""

    def __init__(self, reading: Reading, dataset: lance.LanceDataset) -> None:
        self._reading = reading
        self._dataset: lance.LanceDataset | None = dataset

    def __getstate__(self) -> dict[str, Any]:
        """Leave the open dataset out: tasks open their own."""
        return {**self.__dict__, "_dataset": None}

    def partitions(self) -> list[InputPartition]:
        with spark_call():
            return list(self._reading.plan(self._dataset or self._reading.access.open()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_call():
            yield from self._reading.read(cast("Fragments", partition))
