"""InsertIntoTable: fragments are written first, and made visible in one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import lance
import pyarrow as pa
from lance.fragment import write_fragments
from lance_namespace.errors import (
    InvalidTableStateError,
    TableAlreadyExistsError,
    TableSchemaValidationError,
)

from ..errors import LANCE_ERRORS, concurrent_modification, first_line, panics_as_errors
from ..requests import Ref
from ..table import Table
from .arrow_compat import no_rows
from .create import write_first
from .rows import Rows

ResultT = TypeVar("ResultT")


class InsertMode(Enum):
    """Whether existing rows are kept. Source: InsertIntoTable."""

    APPEND = "Append"
    OVERWRITE = "Overwrite"


@dataclass(frozen=True)
class Inserted:
    """What an insert did. The first version of a table has no transaction here."""

    rows: int
    version: int
    transaction_id: str | None = None


def insert(table: Table, rows: Rows, mode: InsertMode, ref: Ref) -> Inserted:
    """Append rows to a table, or replace all its rows. Source: InsertIntoTable.

    The table keeps its schema in either mode. Columns can be in any order, and nullable ones can be
    left out. A declared table gets its first version, with the schema of the rows. Overwrite also
    replaces what other writers committed since the table was opened.

    Raises:
        InvalidInputError: (13) bad rows.
        ConcurrentModificationError: (14) the table was overwritten concurrently.
        TableSchemaValidationError: (20) the rows do not fit the table's schema.
        TableBranchNotFoundError: (22)
    """
    dataset = open_or_none(table, ref)
    if dataset is None:
        return write_first_or_retry(table, rows, lambda now: insert(now, rows, mode, ref), Inserted)
    if mode is InsertMode.OVERWRITE:
        require_fit(table, rows.schema, dataset.schema)  # Lance would change the table's
        reader = _complete_rows(rows, dataset.schema)
    else:
        reader = rows.reader(into=dataset.schema)
    with table.committing(
        dataset,
        rows=rows,
        check_input=lambda: require_fit(table, rows.schema, dataset.schema),
    ):
        transaction = write_fragments(
            reader, dataset, mode=mode.value.lower(), return_transaction=True
        )
    options = table.storage_options(write=True)
    with table.committing(dataset):
        committed = lance.LanceDataset.commit(dataset, transaction, storage_options=options)
    return Inserted(rows.count, int(committed.version), transaction.uuid)


def open_or_none(table: Table, ref: Ref) -> lance.LanceDataset | None:
    """Return a table's dataset to write to, or None if the table is only declared."""
    try:
        return table.open(ref, write=True)
    except InvalidTableStateError:
        if ref.branch is not None or (table.managed is not None and table.managed.version):
            raise
        return None


def write_first_or_retry(
    table: Table,
    rows: Rows,
    retry: Callable[[Table], ResultT],
    make_result: Callable[[int, int], ResultT],
) -> ResultT:
    """Create the first version of a declared table, or start again if another writer was first.

    Raises:
        InvalidInputError: (13) bad rows.
        ConcurrentModificationError: (14) another writer was first, and the rows cannot be read
            again.
    """
    rows.require_storable()
    try:
        version = write_first(table, rows)
    except TableAlreadyExistsError as error:
        if not rows.is_readable:
            raise concurrent_modification(table.path) from error
        return retry(table.refreshed())
    return make_result(rows.count, version)


def require_fit(table: Table, rows: pa.Schema, schema: pa.Schema) -> None:
    """Check that rows of one schema can be appended to a table of another. Nothing is read.

    Raises TableSchemaValidation (20).
    """
    if rows.equals(schema, check_metadata=True):
        return
    like_table = lance.write_dataset(no_rows(schema), "memory://")
    try:
        with panics_as_errors():
            write_fragments(no_rows(rows), like_table, mode="append")
    except LANCE_ERRORS as error:
        raise TableSchemaValidationError(
            f"The rows do not fit table '{table.name}': {first_line(error)}"
        ) from error


# -- overwriting -----------------------------------------------------------------------------------


def _complete_rows(rows: Rows, table: pa.Schema) -> pa.RecordBatchReader:
    """Return rows in the schema of a table, with null for columns that they lack."""
    reader = rows.reader(into=table)

    def complete(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        filled = [_fill(columns.get(each.name), each.type, batch.num_rows) for each in table]
        return pa.record_batch(filled, schema=table)

    return pa.RecordBatchReader.from_batches(table, map(complete, reader))


def _fill(array: pa.Array | None, kind: pa.DataType, length: int) -> pa.Array:
    if array is None:
        return pa.nulls(length, kind)
    if array.type.equals(kind):
        return array
    if not pa.types.is_struct(kind):
        return array.cast(kind)  # such as a string view, which Lance stores as a string
    given = [array.type.field(i).name for i in range(array.type.num_fields)]
    parts = dict(zip(given, array.flatten(), strict=True))
    fields = [kind.field(i) for i in range(kind.num_fields)]
    filled = [_fill(parts.get(each.name), each.type, length) for each in fields]
    return pa.StructArray.from_arrays(filled, fields=fields, mask=array.is_null())
