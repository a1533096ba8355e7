"""Arrow arrays from Lance to Spark and back, with as few copies as their types allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow

from lance_bridge.dataset import align
from lance_bridge.errors import (
    LANCE_ERRORS,
    ErrorCapturingReader,
    as_namespace_error,
    first_line,
    invalid,
    is_refusal,
)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of Lance in the schema that Spark expects, its columns by name.

    Raises:
        InvalidInputError: (13) a value that Spark's type does not hold, such as a nanosecond.
    """
    if not len(schema):
        # A batch of rows without columns.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    columns = [_read(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return _as(array, field.type)
    except pa.ArrowException as error:
        raise invalid(f"Column '{field.name}' cannot be read: {first_line(error)}") from error


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if arrow.is_fixed_size_list(array.type) and arrow.is_list(kind):
        return _to_list(array, kind)
    if arrow.is_time32(array.type):
        array = array.cast(pa.int32())  # Arrow has no way to 64 bits
    return array.cast(kind)


def _to_list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return vectors as lists; where none is null, their numbers are not copied."""
    size = array.type.list_size
    if array.null_count:
        return array.cast(kind)
    values = _as(array.values.slice(array.offset * size, len(array) * size), kind.value_type)
    offsets = pa.array(np.arange(len(array) + 1, dtype=np.int32) * np.int32(size))
    return pa.ListArray.from_arrays(offsets, values, type=kind)


class ToLance(ErrorCapturingReader):
    """The batches of a task in the schema of the table, and what went wrong on the way."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, names: Mapping[str, str]
    ) -> None:
        """Take batches as they come.

        Args:
            names: What the batches call each column of the schema.
        """
        # Spark's batches without rows have no offsets where Lance looks for some.
        super().__init__(self._converted(batch) for batch in batches if batch.num_rows)
        self._schema = schema
        self._names = names
        self.count = 0
        """Rows so far."""

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [stored(batch.column(self._names[f.name]), f) for f in self._schema]
        self.count += batch.num_rows
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Raise what was wrong with the rows in place of what pylance makes of it.

        Raises:
            InvalidInputError: (13) Lance refuses the rows.
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


def stored(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column as the table stores it.

    Raises:
        InvalidInputError: (13) a value that the column cannot hold.
    """
    if array.null_count and not field.nullable:
        raise invalid(f"Column '{field.name}' must not be null, and is in some rows")
    try:
        return align(_converted(array, field.type, field.name))
    except pa.ArrowException as error:
        raise invalid(f"Column '{field.name}' cannot be stored: {first_line(error)}") from error


def _converted(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if array.type.equals(kind):
        return array
    if arrow.is_list(array.type):
        if arrow.is_fixed_size_list(kind):
            return _to_vectors(array, kind, name)
        if arrow.is_list(kind):
            return _with_elements(array, kind, name)
    if arrow.is_struct(array.type) and arrow.is_struct(kind):
        parts = dict(zip([each.name for each in array.type], array.flatten(), strict=True))
        fields = list(kind)
        columns = [_converted(parts[each.name], each.type, name) for each in fields]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())
    return array.cast(kind)


def _with_elements(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    elements = _converted(array.flatten(), kind.value_type, name)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), elements, type=kind, mask=array.is_null() if array.null_count else None
    )


def _to_vectors(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return lists as vectors; where none is null, their numbers are not copied.

    By hand, because pyarrow's own cast ends the process where all lists are null.
    """
    size = kind.list_size
    if pc.any(pc.not_equal(pc.list_value_length(array), size)).as_py():
        raise invalid(f"Column '{name}' has lists whose length is not {size}")
    numbers = _converted(array.flatten(), kind.value_type, name)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=kind)
    if not array.null_count:
        return vectors
    valid = array.is_valid()
    places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return vectors.take(pc.if_else(valid, places, pa.scalar(None, pa.int64())))
