"""Checks of columns against a table: those of a DataFrame to write, and those to read.

All checks run before the first task. Errors that depend on values, such as a list that is shorter
than the table's vectors, fail the task that finds them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.types as arrow
from lance_namespace.errors import (
    LanceNamespaceError,
    TableColumnNotFoundError,
    TableSchemaValidationError,
)
from pyspark.sql.types import FloatType, LongType, StructField, StructType

from lance_bridge.blobs import is_blob_type
from lance_bridge.errors import invalid

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

# -- writes ----------------------------------------------------------------------------------------


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


# -- reads -----------------------------------------------------------------------------------------


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
