"""Splits batches of a result: the server holds each of them several times while it sends it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lance_bridge.errors import invalid

BATCH_BYTES = 16 << 20
"""The size of the largest batch, unless it is a single row."""


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in batches that are not too large.

    Raises:
        InvalidInputError: (13) a large batch has views inside of other values, which Arrow cannot
            split.
    """
    if batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    # A part of an array of views would have the bytes of the whole array.
    plain = pa.schema([field.with_type(_without_views(field)) for field in batch.schema])
    if plain == batch.schema:
        yield from _split(batch)
    else:
        # Copied by `take`, because views also share the bytes of texts that they were cast from.
        parts = _split(batch.cast(plain))
        yield from (each.take(pa.array(range(each.num_rows))).cast(batch.schema) for each in parts)


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BATCH_BYTES or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half))
    yield from _split(batch.slice(half))


def _without_views(field: pa.Field) -> pa.DataType:
    dtype = field.type
    if pa.types.is_string_view(dtype):
        return pa.large_string()
    if pa.types.is_binary_view(dtype):
        return pa.large_binary()
    if "_view" in str(dtype):
        raise invalid(
            f"The column {field.name!r} has too many values of type {dtype} at once: ask for fewer "
            "rows, or cast its values to another type"
        )
    return dtype
