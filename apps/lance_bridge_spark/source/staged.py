"""Writing the rows of a table that is being made or replaced: the SQL catalog commits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lance_bridge.errors import invalid

from ..addresses import TableAddress
from ..sql.staging import Stage, access, keep
from . import fit
from .errors import as_spark
from .options import WriteOptions
from .requests import Write
from .writer import Target, fragments_of


class StagedWriter(DataSourceArrowWriter):
    """Writes files at the place of a stage, and leaves word there of what it has written."""

    def __init__(
        self, address: TableAddress, schema: StructType, write: Write, options: WriteOptions
    ) -> None:
        """Take up a stage. No table is looked for.

        Raises:
            InvalidInputError: (13) no stage, or no catalog.
            TableSchemaValidationError: (20)
        """
        if write.stage is None or address.catalog is None:
            raise invalid("A staged write needs the stage and its catalog")
        self._catalog = address.catalog
        self._stage = Stage.of(write.stage)
        stored = self._stage.schema()
        place = access(self._catalog, self._stage)
        self._target = Target(
            place,
            place.location,
            stored.serialize().to_pybytes(),
            fit.require_fit(schema, stored, address.name),
            self._stage.write_mode,
            options.for_lance(),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with as_spark():
            return self._target.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Keep the fragments for the commit of the stage."""
        with as_spark():
            keep(self._catalog, self._stage, fragments_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files to `abort_staged`, or to the clean-up."""
