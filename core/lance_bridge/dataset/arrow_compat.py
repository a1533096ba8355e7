"""Arrow data that Lance accepts: schemas that it can store, and arrays with aligned buffers.

Buffers that point into a caller's bytes can start anywhere, and Arrow's format guarantees an
alignment of at most 8 bytes. Rust panics if the alignment is less than the size of a number, which
is 16 bytes for decimals and for views of text. pyarrow can align what it reads from a stream, but
aligns decimals to 8 bytes, and batches that the caller has read already may be unaligned too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow

from ..errors import LANCE_ERRORS, first_line, invalid, panics_as_errors

_ANYWHERE = (pa.null(), pa.bool_(), pa.binary(1))
_NUMBERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
    *(pa.timestamp("us"), pa.duration("us"), pa.month_day_nano_interval()),
    *(pa.decimal32(1), pa.decimal64(1)),
)
_OFFSETS = {
    **{dtype.id: 4 for dtype in (pa.string(), pa.binary())},
    **{dtype.id: 8 for dtype in (pa.large_string(), pa.large_binary())},
}
_LAYOUTS = {
    **{dtype.id: (1, 1) for dtype in _ANYWHERE},
    **{dtype.id: (dtype.bit_width // 8, min(dtype.bit_width // 8, 8)) for dtype in _NUMBERS},
    **{dtype.id: (dtype.bit_width // 8, 16) for dtype in (pa.decimal128(1), pa.decimal256(1))},
    **{dtype.id: (16, 16) for dtype in (pa.string_view(), pa.binary_view())},
    **{dtype: (size, size) for dtype, size in _OFFSETS.items()},
}
"""For each type that is not nested: the bytes of an item in its second buffer, which holds numbers,
offsets or views, and the alignment of that buffer in bytes."""


def align_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that Lance can read: itself, or one with unaligned buffers copied."""
    columns = batch.columns
    aligned = [align(column) for column in columns]
    if all(new is old for new, old in zip(aligned, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(aligned, schema=batch.schema)


def align(array: pa.Array) -> pa.Array:
    """Return an array that Lance can read: the array itself, or one with unaligned buffers copied.

    Nested types that Lance does not store (unions, views of lists, run-end encoded) are returned
    unchanged.
    """
    dtype = array.type
    if dtype.id in _LAYOUTS:
        return _align_values(array)
    if isinstance(dtype, pa.BaseExtensionType):
        return _align_extension(array)
    for is_of, align_nested in _NESTED:
        if is_of(dtype):
            return align_nested(array)
    return array


def _align_values(array: pa.Array) -> pa.Array:
    """Align the second buffer. The others hold bits and bytes, which need no alignment."""
    dtype = array.type
    size, alignment = _LAYOUTS[dtype.id]
    if alignment == 1:
        return array
    validity, values, *rest = array.buffers()
    if not len(array):
        # Arrow allows an empty array to omit even its one offset, which Lance reads.
        is_whole = values is not None and (values.size or dtype.id not in _OFFSETS)
        return array if is_whole and not values.address % alignment else pa.array([], dtype)
    if not values.address % alignment:
        return array
    # Only the slice is copied, not the whole buffer; validity can be cut at whole bytes only.
    skipped, offset = array.offset // 8 * 8, array.offset % 8
    count = offset + len(array) + (dtype.id in _OFFSETS)
    return pa.Array.from_buffers(
        dtype,
        len(array),
        [
            validity.slice(skipped // 8) if validity is not None else None,
            _copy(values.slice(skipped * size, count * size)),
            *rest,
        ],
        offset=offset,
    )


def _copy(buffer: pa.Buffer) -> pa.Buffer:
    copy = pa.allocate_buffer(buffer.size)  # at a multiple of 64 bytes
    memoryview(copy)[:] = memoryview(buffer)
    return copy


def _align_extension(array: pa.ExtensionArray) -> pa.Array:
    storage = array.storage
    aligned = align(storage)
    return array if aligned is storage else array.type.wrap_array(aligned)


def _align_dictionary(array: pa.DictionaryArray) -> pa.Array:
    indices, values = array.indices, array.dictionary
    aligned = align(indices), align(values)
    if aligned[0] is indices and aligned[1] is values:
        return array
    return pa.DictionaryArray.from_arrays(*aligned, ordered=array.type.ordered, safe=False)


def _align_struct(array: pa.StructArray) -> pa.Array:
    fields = list(array.type)
    children = [array.field(i) for i in range(len(fields))]
    aligned = [align(child) for child in children]
    if all(new is old for new, old in zip(aligned, children, strict=True)):
        return array
    return pa.StructArray.from_arrays(aligned, fields=fields, mask=_null_mask(array))


def _align_vectors(array: pa.FixedSizeListArray) -> pa.Array:
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    aligned = align(values)
    if aligned is values or not size:
        return array
    return pa.FixedSizeListArray.from_arrays(aligned, type=array.type, mask=_null_mask(array))


def _align_list(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> pa.Array:
    dtype = array.type
    stored = array.buffers()[1]
    if len(array) or (stored is not None and stored.size):
        offsets = array.offsets
        aligned_offsets = _align_values(offsets)
    else:
        offsets = None  # omitted, as in `_align_values`
        aligned_offsets = pa.array([0], pa.int64() if arrow.is_large_list(dtype) else pa.int32())
    start, end = aligned_offsets[0], aligned_offsets[-1]
    values = array.values.slice(start.as_py(), end.as_py() - start.as_py())
    aligned = align(values)
    if aligned is values and aligned_offsets is offsets:
        return array
    # Only the values of the slice are copied, so the offsets start at 0.
    from_start = pc.subtract(aligned_offsets, start)
    if arrow.is_map(dtype):
        parts = aligned.field(0), aligned.field(1)
        return pa.MapArray.from_arrays(from_start, *parts, type=dtype, mask=_null_mask(array))
    factory = pa.LargeListArray if arrow.is_large_list(dtype) else pa.ListArray
    return factory.from_arrays(from_start, aligned, type=dtype, mask=_null_mask(array))


def _null_mask(array: pa.Array) -> pa.Array | None:
    """Return the mask of null values in pyarrow's form for a nested array."""
    return array.is_null() if array.null_count else None


_NESTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], pa.Array]], ...] = (
    (arrow.is_dictionary, _align_dictionary),
    (arrow.is_struct, _align_struct),
    (arrow.is_fixed_size_list, _align_vectors),
    (arrow.is_list, _align_list),
    (arrow.is_large_list, _align_list),
    (arrow.is_map, _align_list),
)


def require_storable(schema: pa.Schema) -> None:
    """Check that Lance can create a table of a schema. Raises InvalidInput (13)."""
    error = _try_create(schema)
    if error is None:
        return
    for field in schema:
        if _try_create(pa.schema([field])) is not None:
            raise invalid(
                f"Lance cannot store {format_field(field)}: {first_line(error)}"
            ) from error
    raise invalid(f"Lance cannot store this schema: {first_line(error)}") from error


def empty_reader(schema: pa.Schema) -> pa.RecordBatchReader:
    """Return a reader without batches. pyarrow cannot make an empty table of some types."""
    return pa.RecordBatchReader.from_batches(schema, [])


def format_field(field: pa.Field) -> str:
    """Return a column's name and type, for messages."""
    return f"column {field.name!r} of type {field.type}"


def _try_create(schema: pa.Schema) -> Exception | None:
    """Return Lance's error for creating an empty table of a schema, or None."""
    try:
        with panics_as_errors():
            lance.write_dataset(empty_reader(schema), "memory://")
    except (*LANCE_ERRORS, pa.ArrowException) as error:
        return error
    return None
