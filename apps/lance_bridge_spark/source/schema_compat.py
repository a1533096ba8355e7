"""Checks of a DataFrame's columns against a table, by name, and the schema of a new table.

All checks run before the first task. Errors that depend on values, such as a list that is shorter
than the table's vectors, fail the task that finds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as arrow
from lance_namespace.errors import LanceNamespaceError, TableSchemaValidationError
from pyspark.sql import types as spark

from lance_bridge.blobs import is_blob_type
from lance_bridge.errors import invalid

from . import stored_types
from .column_names import require_writable
from .types import (
    COMMENT,
    batch_schema,
    is_list,
    read_type,
    refuse_collations,
    refuse_unstorable,
)

_LONGEST_VECTOR = 2**31 - 1


# -- a new table -----------------------------------------------------------------------------------


def new_schema(schema: spark.StructType, vectors: Mapping[str, int] | None = None) -> pa.Schema:
    """Return the schema of a new table for the rows of a DataFrame.

    A column's metadata may contain the length of its vectors, and a comment.

    Args:
        vectors: Lengths of vectors by column (case-insensitive); they override the metadata.

    Raises:
        InvalidInputError: (13) Lance cannot store a type or a collation, or a vector column is
            invalid.
    """
    refuse_unstorable(schema)
    refuse_collations(schema)
    _require_names(schema.fieldNames(), vectors or {})
    wanted = {name.lower(): size for name, size in (vectors or {}).items()}
    names = {each.name.lower() for each in schema.fields}
    for name in wanted:
        if name not in names:
            raise invalid(
                f"Option 'vector.{name}' names a column that does not exist; existing columns: "
                f"{_list(names)}"
            )
    fields = []
    for field, given in zip(batch_schema(schema), schema.fields, strict=True):
        metadata = given.metadata or {}
        size = wanted.get(given.name.lower())
        stored = stored_types.stored_field(metadata.get(stored_types.KEY), field.type, read_type)
        if size is None and stored is not None:
            new = stored
        else:
            size = size or metadata.get(stored_types.VECTOR_SIZE)
            dtype = field.type if size is None else _vectors(given.name, field.type, int(size))
            new = pa.field(given.name, dtype)
        comment = metadata.get(COMMENT)
        kept = {**(new.metadata or {}), **({COMMENT: comment} if comment else {})}
        fields.append(pa.field(given.name, new.type, given.nullable, kept or None))
    return pa.schema(fields)


def _require_names(names: Sequence[str], vectors: Mapping[str, int]) -> None:
    """Check that Lance finds columns by their names, and that an option names one column only.

    Raises InvalidInput (13).
    """
    for name in names:
        if "`" in name:
            raise invalid(f"Column {name!r}: Lance finds no column with a backtick in its name")
    _require_one_name(names, vectors)


def _require_one_name(names: Sequence[str], vectors: Mapping[str, int]) -> None:
    """Raise InvalidInput (13) for an option, whose letter case Spark loses, that means several."""
    for option in vectors:
        same = [name for name in names if name.lower() == option.lower()]
        if len(same) > 1:
            raise invalid(
                f"Option 'vector.{option}' may mean each of {_list(same)}, which differ only in "
                "letter case: rename one"
            )


def _vectors(name: str, dtype: pa.DataType, size: int) -> pa.DataType:
    if not 1 <= size <= _LONGEST_VECTOR:
        raise invalid(
            f"The vectors of column '{name}' must have 1 to {_LONGEST_VECTOR} numbers, not {size}"
        )
    if not arrow.is_list(dtype) or not (
        arrow.is_floating(dtype.value_type) or arrow.is_integer(dtype.value_type)
    ):
        raise invalid(f"Column '{name}' cannot hold vectors: it is not an array of numbers")
    return pa.list_(pa.field("item", dtype.value_type), size)


# -- an existing table ---------------------------------------------------------------------------


def match_columns(schema: spark.StructType, table: pa.Schema, name: str) -> dict[str, str]:
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
        lacks = [f"the DataFrame has no {_list(missing)}"] if missing else []
        knows = [f"the table has no {_list(extra)}"] if extra else []
        raise _mismatch(name, f"{' and '.join(lacks + knows)}; the table has {_list(table.names)}")
    pairs = {column: match for column, match in found.items() if match is not None}
    for column, match in pairs.items():
        _require_type(given[match].type, table.field(column).type, column, name)
    return pairs


def require_vectors(table: pa.Schema, vectors: Mapping[str, int], name: str) -> None:
    """Check that the table's vectors have the lengths in the options.

    Raises:
        TableSchemaValidationError: (20)
        InvalidInputError: (13) an option may mean several columns.
    """
    _require_one_name(table.names, vectors)
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


def _require_type(given: pa.DataType, stored: pa.DataType, column: str, table: str) -> None:
    if not fits(given, stored):
        raise _mismatch(
            table,
            f"column '{column}' is {given} in the DataFrame and {read_type(stored)}"
            " in the table: cast it",
        )


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


def _list(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f"'{each}'" for each in names) or "no columns"


def _mismatch(table: str, why: str) -> LanceNamespaceError:
    return TableSchemaValidationError(f"The rows do not fit table '{table}': {why}")
