"""Columns of a DataFrame and of a table: checks that they fit, and conversion of their values.

All checks run before the first task. Errors that depend on values, such as a list that is shorter
than the table's vectors, fail the task that finds them. Values are converted part by part, because
a cast of Arrow refuses many lists, structs and maps.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow
from lance_namespace.errors import (
    LanceNamespaceError,
    TableColumnNotFoundError,
    TableSchemaValidationError,
)
from pyspark.sql.types import FloatType, LongType, StructField, StructType

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

from ..schemas import (
    ROW_ADDRESS,
    ROW_ID,
    batch_schema,
    is_list,
    quote_names,
    read_type,
    refuse_unstorable,
    require_one_name,
    require_readable,
    require_writable,
    spark_schema,
)
from .options import ReadOptions, Search

_ADDED = (ROW_ID, ROW_ADDRESS)
"""Columns that every table has for a read."""

# -- checks of a write -----------------------------------------------------------------------------


def match_columns(schema: StructType, table: pa.Schema, name: str) -> dict[str, str]:
    """Check that a DataFrame has the table's columns, in any order, with types that fit.

    Args:
        name: The table's name in messages.

    Returns:
        The DataFrame's name for each column of the table: they may differ in case.

    Raises:
        TableSchemaValidationError: (20) a column is missing, unknown, or does not fit.
        InvalidInputError: (13) Lance cannot store a type.
    """
    refuse_unstorable(schema)
    require_writable(table.names, name)
    given = {field.name: field for field in batch_schema(schema)}
    if len(given) != len(schema.fields):
        raise _mismatch(name, "the DataFrame has two columns of one name")
    found = {field.name: _match(field.name, given, table.names) for field in table}
    missing = [each for each, match in found.items() if match is None]
    extra = [each for each in given if each not in found.values()]
    if missing or extra:
        lacks = [f"the DataFrame has no {quote_names(missing)}"] if missing else []
        knows = [f"the table has no {quote_names(extra)}"] if extra else []
        raise _mismatch(
            name, f"{' and '.join(lacks + knows)}; the table has {quote_names(table.names)}"
        )
    pairs = {column: match for column, match in found.items() if match is not None}
    for column, match in pairs.items():
        stored = table.field(column).type
        if not fits(given[match].type, stored):
            raise _mismatch(
                name,
                f"column '{column}' is {given[match].type} in the DataFrame and "
                f"{read_type(stored)} in the table: cast it",
            )
    return pairs


def require_vectors(table: pa.Schema, vectors: Mapping[str, int], name: str) -> None:
    """Check that the table's vectors have the lengths in the options.

    Raises:
        TableSchemaValidationError: (20)
        InvalidInputError: (13) an option may mean several columns.
    """
    require_one_name(table.names, vectors)
    dtypes = {f.name.lower(): f.type for f in table}
    for column, size in vectors.items():
        dtype = dtypes.get(column)
        if dtype is None or not arrow.is_fixed_size_list(dtype) or dtype.list_size != size:
            there = "no such column" if dtype is None else f"{column} as {dtype}"
            raise _mismatch(name, f"option 'vector.{column}' is {size}, and the table has {there}")


def _match(name: str, given: Collection[str], known: Collection[str]) -> str | None:
    """Return the DataFrame's column for a table column; their names may differ in case."""
    if name in given:
        return name
    same = [each for each in given if each.lower() == name.lower() and each not in known]
    return same[0] if len(same) == 1 else None


def fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether values of one type can be stored as another without loss."""
    if given.equals(stored) or arrow.is_null(given) or given.equals(read_type(stored)):
        return True
    if isinstance(stored, pa.BaseExtensionType):
        return not is_blob_type(stored) and fits(given, stored.storage_type)
    if arrow.is_dictionary(stored):
        return fits(given, stored.value_type)
    return _parts_fit(given, stored) or _is_wider(given, stored)


def _parts_fit(given: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether two nested types are of the same kind, and the parts of one fit the other."""
    if is_list(given) and is_list(stored):
        return fits(given.value_type, stored.value_type)
    if arrow.is_map(given) and arrow.is_map(stored):
        return fits(given.key_type, stored.key_type) and fits(given.item_type, stored.item_type)
    if arrow.is_struct(given) and arrow.is_struct(stored):
        parts = {each.name: each.type for each in given}
        return set(parts) == {each.name for each in stored} and all(
            fits(parts[each.name], each.type) for each in stored
        )
    return False


def _is_wider(given: pa.DataType, stored: pa.DataType) -> bool:
    if arrow.is_signed_integer(given) and arrow.is_signed_integer(stored):
        return bool(given.bit_width <= stored.bit_width)
    if arrow.is_floating(given) and arrow.is_floating(stored):
        # Spark has no float16: its vectors are written as float32.
        return bool(given.bit_width <= max(stored.bit_width, 32))
    if arrow.is_decimal(given) and arrow.is_decimal(stored):
        return bool(
            given.scale <= stored.scale
            and given.precision - given.scale <= stored.precision - stored.scale
        )
    return False


def _mismatch(table: str, why: str) -> LanceNamespaceError:
    return TableSchemaValidationError(f"The rows do not fit table '{table}': {why}")


# -- checks of a read ------------------------------------------------------------------------------


def read_schema(
    table: pa.Schema, name: str, options: ReadOptions, search: Search | None
) -> StructType:
    """Return the columns of a read without a schema.

    Args:
        name: The table's name in messages.

    Raises:
        TableColumnNotFoundError: (12) an option names a column that does not exist.
        InvalidInputError: (13) a column is named twice.
    """
    schema = spark_schema(table)
    if options.columns is not None:
        for each in options.columns:
            if options.columns.count(each) > 1:
                raise invalid(f"Column '{each}' is listed twice")
        found = [_require_column(schema, each, name) for each in options.columns]
        schema = StructType(found)
    if options.with_row_id and ROW_ID not in schema.fieldNames():
        schema.add(ROW_ID, LongType(), True)
    if search is not None and search.column not in schema.fieldNames():
        schema.add(search.column, FloatType(), True)
    return schema


def check_readable(asked: StructType, table: pa.Schema, name: str, search: Search | None) -> None:
    """Check that each column of a schema can be read with its type.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) a column has another type.
    """
    require_readable(asked.fieldNames(), name)
    schema = spark_schema(table)
    added = (*_ADDED, search.column) if search else _ADDED
    for field in asked.fields:
        if field.name in added and field.name not in schema.fieldNames():
            continue
        there = _require_column(schema, field.name, name)
        if there.dataType.simpleString() != field.dataType.simpleString():
            raise invalid(
                f"Column '{field.name}' of table '{name}' is {there.dataType.simpleString()}, and "
                f"cannot be read as {field.dataType.simpleString()}: read it as it is, and cast it"
            )


def _require_column(schema: StructType, column: str, table: str) -> StructField:
    names = schema.fieldNames()
    if column in names:
        return schema[column]
    if column in _ADDED:
        return StructField(column, LongType(), True)
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"
    raise TableColumnNotFoundError(f"Table '{table}' has no column '{column}': {hint}")


# -- values ----------------------------------------------------------------------------------------


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
    except MemoryError:
        raise  # one of Arrow's errors, and not about the values
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
    except MemoryError:
        raise  # one of Arrow's errors, and not about the values
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


# -- parts of nested values ------------------------------------------------------------------------

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
