"""Columns of blobs: large values that Lance stores apart, and reads as descriptions by default.

A blob of file version 2.1 and earlier is ``large_binary`` with a key in its metadata, a later one
an extension type. Spark reads and writes both as BINARY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow
from lance.blob import BlobType

from .errors import invalid

BLOB = b"lance-encoding:blob"
"""The key in a column's metadata, which Lance accepts for new columns in every file version."""
_EXTENSION = "lance.blob.v2"
_MOST_BYTES = 16 * 1024 * 1024
"""How many bytes of blobs one batch should have: a larger blob is a batch of its own."""
FEW_ROWS = 16
"""How many rows a batch has if the sizes of its blobs are unknown."""
UNKNOWN_SIZE = _MOST_BYTES // FEW_ROWS
"""The bytes that a row's blobs are taken to have if their sizes are unknown."""
_SIZE = "size"
_URI = "blob_uri"
_FIELDS_BY_METADATA = 2
"""How many fields Lance gives to the storage of a blob whose column was created by the metadata."""


def is_blob(field: pa.Field) -> bool:
    """Return whether a field, without those inside it, is a blob."""
    return is_blob_type(field.type) or (field.metadata or {}).get(BLOB) == b"true"


def is_blob_type(dtype: pa.DataType) -> bool:
    """Return whether a type is the extension type of blobs."""
    return isinstance(dtype, pa.BaseExtensionType) and dtype.extension_name == _EXTENSION


def has_blobs(field: pa.Field) -> bool:
    """Return whether a field is a blob, or has one inside it."""
    if is_blob(field):
        return True
    dtype = field.type
    if isinstance(dtype, pa.BaseExtensionType) or not arrow.is_nested(dtype):
        return False
    return any(has_blobs(dtype.field(i)) for i in range(dtype.num_fields))


def columns_with_blobs(schema: pa.Schema, names: Iterable[str]) -> list[str]:
    """Return those of some columns that have blobs at any depth."""
    known = set(schema.names)
    return [name for name in names if name in known and has_blobs(schema.field(name))]


def scan_arguments(schema: pa.Schema, names: Iterable[str]) -> dict[str, Any]:
    """Return the arguments of a scan that reads the bytes of blobs, instead of descriptions."""
    return {"blob_handling": "all_binary"} if columns_with_blobs(schema, names) else {}


def as_written(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which rows are written to a table.

    Lance calls both kinds of blobs the same when it reads a schema, except for the number of fields
    of their storage, but it takes no list of one kind where the table has the other.
    """
    return pa.schema([_as_written(field) for field in schema], metadata=schema.metadata)


def refuse_overwrite(schema: pa.Schema, table: str) -> None:
    """Raise InvalidInput (13) for a column of which Lance commits no other rows in place of all."""
    for field in schema:
        if not is_blob(field) and _as_written(field) != field and _has_list(field.type):
            raise invalid(
                f"Column '{field.name}' of table '{table}' has a list with blobs that metadata "
                "declares, and Lance cannot overwrite it: DELETE the rows, and INSERT the new ones"
            )


def _has_list(dtype: pa.DataType) -> bool:
    if arrow.is_struct(dtype):
        return any(_has_list(each.type) for each in dtype)
    return bool(arrow.is_nested(dtype))


def _as_written(field: pa.Field) -> pa.Field:
    dtype = field.type
    if is_blob_type(dtype) and dtype.storage_type.num_fields == _FIELDS_BY_METADATA:
        return field.with_type(pa.large_binary()).with_metadata(
            {**(field.metadata or {}), BLOB: b"true"}
        )
    if not has_blobs(field):
        return field
    if arrow.is_struct(dtype):
        return field.with_type(pa.struct([_as_written(each) for each in dtype]))
    if arrow.is_large_list(dtype):
        return field.with_type(pa.large_list(_as_written(dtype.value_field)))
    if arrow.is_list(dtype):
        return field.with_type(pa.list_(_as_written(dtype.value_field)))
    return field


def as_extensions(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which blobs that metadata declares have the extension type.

    Lance makes it of them, but refuses the first commit of a struct with such blobs. Those that are
    elements of lists are left, because Lance takes no other rows of their kind later.
    """
    return pa.schema([_as_extension(field) for field in schema], metadata=schema.metadata)


def _as_extension(field: pa.Field) -> pa.Field:
    dtype, metadata = field.type, dict(field.metadata or {})
    if metadata.pop(BLOB, None) == b"true" and not is_blob_type(dtype):
        return field.with_type(BlobType()).with_metadata(metadata or None)
    if not has_blobs(field):
        return field
    if arrow.is_struct(dtype):
        return field.with_type(pa.struct([_as_extension(each) for each in dtype]))
    if not (arrow.is_list(dtype) or arrow.is_large_list(dtype)) or is_blob(dtype.value_field):
        return field
    make = pa.large_list if arrow.is_large_list(dtype) else pa.list_
    return field.with_type(make(_as_extension(dtype.value_field)))


def to_extensions(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Return rows in the schema that `as_extensions` made of theirs."""

    def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = map(to_extension, batch.columns, schema.types)
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(convert, reader))


def to_extension(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return values with binary ones in the extension type of blobs where a type has that."""
    if array.type.equals(dtype):
        return array
    if is_blob_type(dtype):
        return dtype.wrap_array(to_storage(array, dtype.storage_type))
    mask = array.is_null() if array.null_count else None
    if arrow.is_struct(dtype):
        given = dict(zip([each.name for each in array.type], array.flatten(), strict=True))
        parts = [to_extension(given[each.name], each.type) for each in dtype]
        return pa.StructArray.from_arrays(parts, fields=list(dtype), mask=mask)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = to_extension(array.flatten(), dtype.value_type)
    of = pa.LargeListArray if arrow.is_large_list(dtype) else pa.ListArray
    places = offsets.astype(np.int64 if arrow.is_large_list(dtype) else np.int32)
    return of.from_arrays(pa.array(places), values, type=dtype, mask=mask)


def to_storage(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return binary values in the storage type of the extension type of blobs."""
    fields = list(dtype)
    parts = [
        array.cast(field.type) if field.name == "data" else pa.nulls(len(array), field.type)
        for field in fields
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


# -- sizes -----------------------------------------------------------------------------------------


def batch_rows(dataset: lance.LanceDataset, columns: Sequence[str], most: int, **rows: Any) -> int:
    """Return how many rows a batch may have, so that its blobs fit in memory.

    Args:
        columns: Columns with blobs; only the descriptions of their blobs are read.
        most: The number of rows if the blobs are small.
        rows: The arguments of a scan that choose rows, such as ``fragments`` and ``filter``.
    """
    largest = 0
    for batch in dataset.scanner(columns=list(columns), **rows).to_batches():
        sizes = row_sizes(batch.columns)
        if sizes is None:
            return min(FEW_ROWS, most)
        largest = max(largest, int(sizes.max(initial=0)))
    return min(max(_MOST_BYTES // max(largest, 1), 1), most)


def row_sizes(descriptions: Iterable[pa.Array]) -> np.ndarray[Any, Any] | None:
    """Return the bytes of the blobs of each row, or None if they are inside of other types."""
    total: np.ndarray[Any, Any] | None = None
    for array in descriptions:
        if not arrow.is_struct(array.type) or array.type.get_field_index(_SIZE) < 0:
            return None
        sizes = pc.fill_null(array.field(array.type.get_field_index(_SIZE)), 0)
        found = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
        total = found if total is None else total + found
    return total


def slices(sizes: np.ndarray[Any, Any] | None, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the length of runs of rows whose blobs fit in memory."""
    start, filled = 0, 0
    for row in range(rows):
        size = UNKNOWN_SIZE if sizes is None else int(sizes[row])
        if row > start and filled + size > _MOST_BYTES:
            yield start, row - start
            start, filled = row, 0
        filled += size
    if rows > start:
        yield start, rows - start


def take_rows(
    dataset: lance.LanceDataset, ids: pa.Array, columns: Sequence[str]
) -> dict[str, pa.ChunkedArray]:
    """Return columns of rows by their ids, in this order, with the bytes of blobs.

    Args:
        ids: Row ids as ``uint64``; each is of a row that exists.
    """
    with_blobs = columns_with_blobs(dataset.schema, columns)
    rest = [name for name in columns if name not in with_blobs]
    found = {}
    if rest:
        taken = dataset._take_rows(ids, columns=rest)
        found = {name: taken.column(name) for name in rest}
    if with_blobs:
        read = _read_by_ids(dataset, ids, with_blobs)
        found |= {name: read.column(name) for name in with_blobs}
    return found


def _read_by_ids(dataset: lance.LanceDataset, ids: pa.Array, columns: list[str]) -> pa.Table:
    wanted = ", ".join(map(str, ids.to_pylist()))
    read = dataset.scanner(
        columns=columns,
        filter=f"_rowid IN ({wanted})",
        with_row_id=True,
        blob_handling="all_binary",
    ).to_table()
    return read.take(pc.index_in(ids, read.column("_rowid").combine_chunks()))


def rows_inside(dataset: lance.LanceDataset, column: str, ids: Sequence[int]) -> list[int]:
    """Return those of some rows, by their ids, whose blob is not a reference to a file elsewhere.

    Args:
        column: A top-level column of blobs.
    """
    found = dataset._take_rows(pa.array(ids, pa.uint64()), columns=[column]).column(column)
    uris = [(each or {}).get(_URI) for each in found.to_pylist()]
    return [row for row, uri in zip(ids, uris, strict=True) if not uri]
