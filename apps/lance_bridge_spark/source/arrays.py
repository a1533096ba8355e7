"""Conversion of the parts of lists, structs and maps, many of which a cast of Arrow refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow

from lance_bridge.blobs import is_blob_type, to_storage
from lance_bridge.dataset import align
from lance_bridge.errors import (
    LANCE_ERRORS,
    ErrorCapturingReader,
    as_namespace_error,
    first_line,
    invalid,
    is_refusal,
)

from ..schemas import is_list

# -- nested arrays ---------------------------------------------------------------------------------

Convert = Callable[[pa.Array, pa.DataType], pa.Array]
"""Returns an array as another type."""


def convert_parts(array: pa.Array, dtype: pa.DataType, convert: Convert) -> pa.Array | None:
    """Return an array of another nested type with its parts converted; None if it is not nested."""
    found = array.type
    if is_list(found) and (arrow.is_list(dtype) or arrow.is_large_list(dtype)):
        return with_elements(array, convert(array.flatten(), dtype.value_type), dtype)
    if arrow.is_map(found) and arrow.is_map(dtype):
        return _convert_map(array, dtype, convert)
    if arrow.is_struct(found) and arrow.is_struct(dtype) and dtype.num_fields:
        parts = dict(zip([each.name for each in found], array.flatten(), strict=True))
        columns = [convert(parts[each.name], each.type) for each in dtype]
        return pa.StructArray.from_arrays(columns, fields=list(dtype), mask=_mask(array))
    return None


def with_elements(array: pa.Array, elements: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return lists with other elements in place of those that `flatten` gives."""
    offsets = _offsets(pc.list_value_length(array))
    if arrow.is_large_list(dtype):
        places, of = pa.array(offsets.astype(np.int64)), pa.LargeListArray
    else:
        places, of = pa.array(offsets.astype(np.int32)), pa.ListArray
    return of.from_arrays(places, elements, type=dtype, mask=_mask(array))


def _convert_map(array: pa.MapArray, dtype: pa.DataType, convert: Convert) -> pa.Array:
    entry = pa.struct([array.type.key_field, array.type.item_field])
    lists = array.cast(pa.list_(entry))
    keys, items = lists.flatten().flatten()
    offsets = _offsets(pc.list_value_length(lists)).astype(np.int32)
    converted = convert(keys, dtype.key_type), convert(items, dtype.item_type)
    return pa.MapArray.from_arrays(pa.array(offsets), *converted, type=dtype, mask=_mask(array))


def _offsets(lengths: pa.Array) -> np.ndarray[Any, Any]:
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(counts)])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


# -- batches ---------------------------------------------------------------------------------------


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch from Lance in the schema that Spark expects; columns are matched by name.

    Raises:
        InvalidInputError: (13) Spark's type cannot hold a value, such as a nanosecond.
    """
    if not len(schema):
        # A batch without columns still has a number of rows.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    columns = [_read(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return _cast(array, field.type)
    except pa.ArrowException as error:
        raise invalid(f"Column '{field.name}' cannot be read: {first_line(error)}") from error


def _cast(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return stored values as another type, also inside of nested types."""
    found = array.type
    if found.equals(dtype):
        return array
    if isinstance(found, pa.BaseExtensionType):
        return _cast(array.storage, dtype)
    if arrow.is_dictionary(found):
        return _cast(array.dictionary_decode(), dtype)
    if arrow.is_fixed_size_list(found) and arrow.is_list(dtype) and not array.null_count:
        return _to_list(array, dtype)
    nested = convert_parts(array, dtype, _cast)
    if nested is not None:
        return nested
    if arrow.is_time32(found):
        array = array.cast(pa.int32())  # Arrow cannot cast it to 64 bits directly
    return array.cast(dtype)


def _to_list(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return vectors, none of which is null, as lists, without copying their numbers."""
    size = array.type.list_size
    values = _cast(array.values.slice(array.offset * size, len(array) * size), dtype.value_type)
    offsets = pa.array(np.arange(len(array) + 1, dtype=np.int32) * np.int32(size))
    return pa.ListArray.from_arrays(offsets, values, type=dtype)


class ToLance(ErrorCapturingReader):
    """The batches of a task in the schema of the table, and the error of their conversion."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, names: Mapping[str, str]
    ) -> None:
        """Convert batches lazily.

        Args:
            names: The name in the batches of each column of the schema.
        """
        # Spark's empty batches lack the offsets that Lance reads.
        super().__init__(self._convert_batch(batch) for batch in batches if batch.num_rows)
        self._schema = schema
        self._names = names
        self.count = 0
        """The number of rows converted so far."""

    def _convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [to_lance(batch.column(self._names[f.name]), f) for f in self._schema]
        self.count += batch.num_rows
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Raise the original error of the rows instead of the one that pylance makes of it.

        Raises:
            InvalidInputError: (13) Lance rejects the rows.
            ServiceUnavailableError: (17) the storage failed.
            InternalError: (18) Lance panicked.
        """
        try:
            with self.reraise_source_error():
                yield
        except LANCE_ERRORS as error:
            if error is self.failure:
                raise
            if is_refusal(error):
                raise invalid(f"{what}: {first_line(error)}") from error
            raise as_namespace_error(what, error) from error


def to_lance(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column in the type that the table stores.

    Raises:
        InvalidInputError: (13) the column cannot hold a value.
    """
    if array.null_count and not field.nullable:
        raise invalid(f"Column '{field.name}' must not be null, and is in some rows")
    try:
        return align(_convert(array, field.type, field.name))
    except pa.ArrowException as error:
        raise invalid(f"Column '{field.name}' cannot be stored: {first_line(error)}") from error


def _convert(array: pa.Array, dtype: pa.DataType, name: str) -> pa.Array:
    found = array.type
    if found.equals(dtype):
        return array
    if arrow.is_null(found):
        return pa.nulls(len(array), dtype)
    if isinstance(dtype, pa.BaseExtensionType):
        if is_blob_type(dtype):
            return dtype.wrap_array(to_storage(array, dtype.storage_type))
        return dtype.wrap_array(_convert(array, dtype.storage_type, name))
    if arrow.is_list(found) and arrow.is_fixed_size_list(dtype):
        return _to_vectors(array, dtype, name)
    nested = convert_parts(array, dtype, lambda part, of: _convert(part, of, name))
    return _convert_plain(array, dtype, name) if nested is None else nested


def _convert_plain(array: pa.Array, dtype: pa.DataType, name: str) -> pa.Array:
    if arrow.is_dictionary(dtype):
        return _convert(array, dtype.value_type, name).cast(dtype)
    if arrow.is_time32(dtype) and arrow.is_integer(array.type):
        array = array.cast(pa.int32())  # Arrow cannot cast 64 bits to it directly
    return array.cast(dtype)


def _to_vectors(array: pa.Array, dtype: pa.DataType, name: str) -> pa.Array:
    """Return lists as vectors, without copying their numbers if none is null.

    pyarrow's own cast crashes the process if all lists are null.
    """
    size = dtype.list_size
    if pc.any(pc.not_equal(pc.list_value_length(array), size)).as_py():
        raise invalid(f"Column '{name}' has lists whose length is not {size}")
    numbers = _convert(array.flatten(), dtype.value_type, name)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=dtype)
    if not array.null_count:
        return vectors
    return spread(vectors, array.is_valid())


def spread(values: pa.Array, chosen: pa.Array) -> pa.Array:
    """Return an array with the values where ``chosen`` is true, in order, and null elsewhere."""
    places = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
    return values.take(pc.if_else(chosen, places, pa.scalar(None, pa.int64())))
