"""Splits batches of a result: the server holds each of them several times while it sends it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lance_bridge.errors import invalid

BATCH_BYTES = 16 << 20
"""The size of the largest batch without its dictionaries, unless it is a single row."""
DICTIONARY_BYTES = 64 << 20
"""The size of the dictionaries of a large batch: they are sent as a whole."""


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in batches that are not too large.

    Raises:
        InvalidInputError: (13) a large batch has large dictionaries, or views inside of other
            values, which Arrow cannot split.
    """
    if batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    # A part of an array of views would have the bytes of the whole array.
    plain = pa.schema([field.with_type(_without_views(field)) for field in batch.schema])
    most = BATCH_BYTES + _require_small_dictionaries(batch)
    if plain == batch.schema:
        yield from _split(batch, most)
    else:
        # Copied by `take`, because views also share the bytes of texts that they were cast from.
        parts = _split(batch.cast(plain), most)
        yield from (each.take(pa.array(range(each.num_rows))).cast(batch.schema) for each in parts)


def _split(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= most or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half), most)
    yield from _split(batch.slice(half), most)


def _require_small_dictionaries(batch: pa.RecordBatch) -> int:
    """Return the size of all dictionaries."""
    total = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total += sum(each.nbytes for each in _dictionaries(column))
        if total > DICTIONARY_BYTES:
            raise invalid(
                f"The dictionary of column {name!r} is too large: ask for fewer rows, or cast the "
                "column to the type of its values"
            )
    return total


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        yield array.dictionary
    elif pa.types.is_struct(dtype):
        for number in range(dtype.num_fields):
            yield from _dictionaries(array.field(number))
    elif hasattr(array, "values"):  # of a list or a map
        yield from _dictionaries(array.values)


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
