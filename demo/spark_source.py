"""A small Spark data source for Lance tables that a namespace knows by name.

    spark.read.format("lance_by_name").options(uri="thrift://…", table="shop.vectors").load()

It shows what a namespace is enough for: the driver and the executors get the connection's
properties, find the table by its name, and read or write its fragments side by side. Everything
travels as Arrow record batches; no process ever holds the whole table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance_namespace import LanceNamespace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import lance_bridge

DIMENSIONS = 32
LANCE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("category", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("title", pa.string()),
        pa.field("embedding", pa.list_(pa.float32(), DIMENSIONS)),
    ]
)
SPARK_SCHEMA = "id bigint, category string, price double, title string, embedding array<float>"


class LanceByName(DataSource):
    """Options: ``uri`` of the metastore, ``table`` as ``database.table``, and ``version``."""

    @classmethod
    def name(cls) -> str:
        """Return what to give to ``format``."""
        return "lance_by_name"

    def schema(self) -> str:
        """Return the columns, which in this demo are always the same."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> Reader:  # noqa: ARG002 - Spark's signature
        """Return what reads the table."""
        return Reader(self._table())

    def writer(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: ARG002 - Spark's
        """Return what appends to the table."""
        if overwrite:
            raise NotImplementedError("this source only appends: use .mode('append')")
        return Writer(self._table())

    def _table(self) -> NamedTable:
        version = self.options.get("version")
        namespace = lance_bridge.connect("hive", {"uri": self.options["uri"]})
        table_id = self.options["table"].split(".")
        return NamedTable(namespace, table_id, int(version) if version else None)


@dataclass(frozen=True)
class NamedTable:
    """A table by its name; pickled, the namespace reconnects on the other side."""

    namespace: LanceNamespace
    table_id: list[str]
    version: int | None

    def open(self) -> lance.LanceDataset:
        """Ask the namespace where the table is, and open it."""
        return lance.dataset(
            namespace_client=self.namespace, table_id=self.table_id, version=self.version
        )


class Reader(DataSourceReader):
    """One partition per fragment."""

    def __init__(self, table: NamedTable) -> None:
        self._table = table

    def partitions(self) -> list[InputPartition]:
        """Return the numbers of the fragments; runs once, for the driver."""
        return [
            InputPartition(fragment.fragment_id) for fragment in self._table.open().get_fragments()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one fragment; runs on an executor."""
        dataset = self._table.open()
        fragments = [f for f in dataset.get_fragments() if f.fragment_id == partition.value]
        for batch in dataset.scanner(fragments=fragments).to_batches():
            lists = batch.column("embedding").cast(pa.list_(pa.float32()))
            columns = [*batch.columns[:-1], lists]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@dataclass
class Written(WriterCommitMessage):
    """The fragments that one task wrote, as JSON; they belong to no version yet."""

    fragments: list[str]


class Writer(DataSourceArrowWriter):
    """Each task writes fragments; the driver makes one version of them all."""

    def __init__(self, table: NamedTable) -> None:
        self._table = table

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one partition; runs on an executor."""
        rows = pa.RecordBatchReader.from_batches(LANCE_SCHEMA, map(_with_vectors, iterator))
        fragments = lance.fragment.write_fragments(rows, self._table.open(), schema=LANCE_SCHEMA)
        return Written([json.dumps(fragment.to_json()) for fragment in fragments])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add all fragments in one commit; runs once, for the driver."""
        texts = [text for m in messages if isinstance(m, Written) for text in m.fragments]
        fragments = [lance.FragmentMetadata.from_json(text) for text in texts]
        dataset = self._table.open()
        append = lance.LanceOperation.Append(fragments)
        lance.LanceDataset.commit(dataset, append, read_version=dataset.version)


def _with_vectors(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Spark has lists of any length; Lance searches vectors of one.
    vectors = pa.FixedSizeListArray.from_arrays(batch.column("embedding").flatten(), DIMENSIONS)
    return pa.RecordBatch.from_arrays([*batch.columns[:-1], vectors], schema=LANCE_SCHEMA)
