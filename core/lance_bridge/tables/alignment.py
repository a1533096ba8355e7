"""Arrays as Lance's Rust code reads them in place: numbers at multiples of their own size.

Buffers that pointed into a caller's bytes are wherever those are, and Arrow's own format promises
multiples of 8 bytes at most. Rust panics below the size of a number, which is 16 bytes for decimals
and for views of text. pyarrow can align what it reads from a stream, but takes 8 bytes to be enough
for decimals, and what a caller has read already is as unaligned.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow


def align_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that Lance can read: itself, or one with copies of what was unaligned."""
    columns = batch.columns
    aligned = [align(column) for column in columns]
    if all(new is old for new, old in zip(aligned, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(aligned, schema=batch.schema)


def align(array: pa.Array) -> pa.Array:
    """Return an array that Lance can read: itself, or one with copies of what was unaligned.

    Of nested types, those that Lance does not store (unions, views of lists, run-end encoded) are
    returned as they are.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = array.storage
        aligned = align(storage)
        return array if aligned is storage else kind.wrap_array(aligned)
    if arrow.is_dictionary(kind):
        return _align_dictionary(array)
    if arrow.is_struct(kind):
        return _align_struct(array)
    if arrow.is_fixed_size_list(kind):
        return _align_vectors(array)
    if arrow.is_list(kind) or arrow.is_large_list(kind) or arrow.is_map(kind):
        return _align_list(array)
    return array if arrow.is_nested(kind) or kind.num_fields else _align_values(array)


def _align_values(array: pa.Array) -> pa.Array:
    """Align what has no arrays inside: the second of its buffers holds numbers, offsets or views.

    The first is bits, and those after the second are bytes: they can be anywhere.
    """
    kind = array.type
    size, alignment = _size_and_alignment(kind)
    if alignment == 1:
        return array
    validity, values, *rest = array.buffers()
    if not len(array):
        # Without values Arrow allows to leave out even the one offset, which Lance reads.
        is_whole = values is not None and (values.size or not _has_offsets(kind))
        return array if is_whole and not values.address % alignment else pa.array([], kind)
    if not values.address % alignment:
        return array
    # A slice is copied, and not all it is a slice of; validity can be cut at whole bytes only.
    skipped, offset = array.offset // 8 * 8, array.offset % 8
    count = offset + len(array) + _has_offsets(kind)
    return pa.Array.from_buffers(
        kind,
        len(array),
        [
            validity.slice(skipped // 8) if validity is not None else None,
            _copy(values.slice(skipped * size, count * size)),
            *rest,
        ],
        offset=offset,
    )


def _size_and_alignment(kind: pa.DataType) -> tuple[int, int]:
    """Return the bytes of an item in the second buffer, and what its address is a multiple of."""
    if _has_offsets(kind):
        size = 8 if arrow.is_large_string(kind) or arrow.is_large_binary(kind) else 4
        return size, size
    if arrow.is_string_view(kind) or arrow.is_binary_view(kind):
        return 16, 16
    if arrow.is_null(kind) or arrow.is_boolean(kind) or arrow.is_fixed_size_binary(kind):
        return 1, 1
    size = kind.bit_width // 8
    return size, 16 if arrow.is_decimal(kind) and size > 8 else min(size, 8)


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(
        arrow.is_string(kind)
        or arrow.is_binary(kind)
        or arrow.is_large_string(kind)
        or arrow.is_large_binary(kind)
    )


def _copy(buffer: pa.Buffer) -> pa.Buffer:
    copy = pa.allocate_buffer(buffer.size)  # at a multiple of 64
    memoryview(copy)[:] = memoryview(buffer)
    return copy


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
    return pa.StructArray.from_arrays(aligned, fields=fields, mask=_mask(array))


def _align_vectors(array: pa.FixedSizeListArray) -> pa.Array:
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    aligned = align(values)
    if aligned is values or not size:
        return array
    return pa.FixedSizeListArray.from_arrays(aligned, type=array.type, mask=_mask(array))


def _align_list(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> pa.Array:
    kind = array.type
    stored = array.buffers()[1]
    if len(array) or (stored is not None and stored.size):
        offsets = array.offsets
        aligned_offsets = _align_values(offsets)
    else:
        offsets = None  # left out, as in `_align_values`
        aligned_offsets = pa.array([0], pa.int64() if arrow.is_large_list(kind) else pa.int32())
    start, end = aligned_offsets[0], aligned_offsets[-1]
    values = array.values.slice(start.as_py(), end.as_py() - start.as_py())
    aligned = align(values)
    if aligned is values and aligned_offsets is offsets:
        return array
    # The values of a slice are copied, and not all they are a slice of: it begins at 0 then.
    from_start = pc.subtract(aligned_offsets, start)
    if arrow.is_map(kind):
        parts = aligned.field(0), aligned.field(1)
        return pa.MapArray.from_arrays(from_start, *parts, type=kind, mask=_mask(array))
    factory = pa.LargeListArray if arrow.is_large_list(kind) else pa.ListArray
    return factory.from_arrays(from_start, aligned, type=kind, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    """Return where the values are null, as pyarrow takes it for a nested array."""
    return array.is_null() if array.null_count else None
