"""Schemas of Lance tables in Spark: types, names and comments of columns, in both directions.

A new type begins in the table of plain types, `lance_bridge.arrow_types`. This module has what a
table of plain types cannot say: types with parameters and with parts, types that only one side has,
the schema of a new table, and what only SQL has, such as ``varchar(n)``. `source.conversion`
converts the values. Packages that read or write tables with Spark use this module, too.

Spark requires Arrow batches with exactly the types that it derives from its own schema. So each
Lance type is read as the Spark type that can hold all its values, and its values are converted.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow
from lance.blob import BlobType
from lance_namespace.errors import LanceNamespaceError
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from lance_bridge.arrow_types import plain_type
from lance_bridge.blobs import BLOB, has_blobs, is_blob, is_blob_type
from lance_bridge.errors import invalid

COMMENT = "comment"
"""The key of a column's comment, in Spark's metadata and in Arrow's."""
STORED_TYPE = "lance.arrow"
"""The key in a Spark column's metadata: the Arrow schema of the column, as IPC in base64."""
VECTOR_SIZE = "arrow.fixed-size-list.size"
"""The key in a column's metadata for the length of its vectors."""

ROW_ID, ROW_ADDRESS = "_rowid", "_rowaddr"
"""A row's id, which compaction keeps if the table has stable ids, and its address (fragment and
offset) in a version. Any read can return them."""

_LONGEST_VECTOR = 2**31 - 1
_KEPT = (BLOB, b"ARROW:extension:")
"""Metadata that belongs to a type: of blobs, and of extension types that no library here knows."""
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)
"""From 4.2 on, Spark needs the time zone of timestamps; before, it is always UTC."""


# -- reading ---------------------------------------------------------------------------------------


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return Spark's schema for reading a Lance table."""
    read = pa.schema([pa.field(f.name, read_type(f.type), f.nullable) for f in schema])
    fields = []
    # By default, times without a zone would be timestamps in the session's zone.
    converted = from_arrow_schema(read, prefer_timestamp_ntz=True)
    for made, field in zip(converted.fields, schema, strict=True):
        comment = (field.metadata or {}).get(COMMENT.encode())
        metadata = {COMMENT: comment.decode()} if comment else {}
        metadata |= stored_metadata(field)
        fields.append(spark.StructField(made.name, made.dataType, made.nullable, metadata))
    return spark.StructType(fields)


def batch_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema of batches that Spark sends or expects for one of its schemas."""
    return to_arrow_schema(schema, **_ZONE)


def read_type(dtype: pa.DataType) -> pa.DataType:
    """Return the Arrow type as which Spark reads values of ``dtype``."""
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.binary() if is_blob_type(dtype) else read_type(dtype.storage_type)
    if arrow.is_dictionary(dtype):
        return read_type(dtype.value_type)
    if is_list(dtype):
        element = dtype.value_field
        return pa.list_(pa.field("element", read_type(element.type), element.nullable))
    if arrow.is_struct(dtype):
        return pa.struct([pa.field(f.name, read_type(f.type), f.nullable) for f in dtype])
    if arrow.is_map(dtype):
        return pa.map_(
            read_type(dtype.key_type),
            pa.field("value", read_type(dtype.item_type), dtype.item_field.nullable),
        )
    return _plain(dtype)


_READ_AS: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (arrow.is_fixed_size_binary, pa.binary()),
    (arrow.is_time, pa.int64()),
    (arrow.is_duration, pa.duration("us")),
)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if plain := plain_type(dtype):
        return plain.read_as or dtype
    for matches, read in _READ_AS:
        if matches(dtype):
            return read
    if arrow.is_timestamp(dtype):
        return pa.timestamp("us", "UTC" if dtype.tz else None)
    if arrow.is_decimal(dtype) and not arrow.is_decimal128(dtype):
        return pa.decimal128(min(38, dtype.precision), dtype.scale)
    return dtype


def is_list(dtype: pa.DataType) -> bool:
    """Return whether a type is that of lists: of any length, of a fixed one, or large."""
    return bool(
        arrow.is_list(dtype) or arrow.is_large_list(dtype) or arrow.is_fixed_size_list(dtype)
    )


# -- types that Lance lacks ------------------------------------------------------------------------

_UNSTORABLE = {
    "CalendarIntervalType": "cast it to a string, or to an INTERVAL DAY TO SECOND",
    "YearMonthIntervalType": "cast it to its number of months",
    "VariantType": "turn it into a string with to_json",
    "GeometryType": "turn it into binary with ST_AsBinary",
    "GeographyType": "turn it into binary with ST_AsBinary",
    "TimeType": "cast it to a string, or to its number of microseconds",
}
"""Spark types by class name (not every version has all of them), and what to do instead."""


def refuse_unstorable(schema: spark.StructType) -> None:
    """Raise an error if Lance cannot store a column.

    Raises:
        InvalidInputError: (13)
    """
    for field in schema.fields:
        bad = _find_type(field.dataType, _is_unstorable)
        if bad is not None:
            hint = _UNSTORABLE.get(type(bad).__name__, "turn it into another one")
            raise invalid(
                f"Column '{field.name}' has the type {bad.simpleString()}, and Lance has none for "
                f"that: {hint}"
            )


def _refuse_collations(schema: spark.StructType) -> None:
    """Raise an error if a column of a new table has a collation: Lance would compare bytes.

    Raises:
        InvalidInputError: (13)
    """
    for field in schema.fields:
        bad = _find_type(field.dataType, _has_collation)
        if bad is not None:
            raise collation_error(field.name, bad.simpleString())


def collation_error(column: str, type_name: str) -> LanceNamespaceError:
    """Return InvalidInput (13) for a column of a type with a collation."""
    return invalid(
        f"Column '{column}' has the type {type_name}, and Lance has no collations: declare or "
        "cast it as STRING COLLATE UTF8_BINARY, and name the collation in queries"
    )


def _is_unstorable(data_type: spark.DataType) -> bool:
    return type(data_type).__name__ in _UNSTORABLE or isinstance(data_type, spark.UserDefinedType)


def _has_collation(data_type: spark.DataType) -> bool:
    return (
        isinstance(data_type, spark.StringType)
        and data_type.collation != spark.StringType().collation
    )


def _find_type(
    data_type: spark.DataType, matches: Callable[[spark.DataType], bool]
) -> spark.DataType | None:
    """Return the type, or the first of its parts at any depth, that matches."""
    if matches(data_type):
        return data_type
    parts: list[spark.DataType] = []
    if isinstance(data_type, spark.StructType):
        parts = [each.dataType for each in data_type.fields]
    elif isinstance(data_type, spark.ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, spark.MapType):
        parts = [data_type.keyType, data_type.valueType]
    return next((bad for each in parts if (bad := _find_type(each, matches)) is not None), None)


# -- types that Spark lacks ------------------------------------------------------------------------
#
# Spark reads a column as a type of its own, such as a time as a number. The Arrow type goes with
# the column in Spark's metadata, which a query keeps if it selects the column as it is. A table
# that is created from such a column stores it as it was, so that a copy has its types.


def stored_metadata(field: pa.Field) -> dict[str, Any]:
    """Return the metadata for a column of Spark; empty if its type in Spark is the stored one."""
    metadata: dict[str, Any] = {}
    own = field.type
    if arrow.is_fixed_size_list(own):
        metadata[VECTOR_SIZE] = own.list_size
        own = own.value_type
    if read_type(own).equals(own) and not _is_special(field):
        return metadata
    text = pa.schema([as_new(field).with_name("")]).serialize().to_pybytes()
    return {**metadata, STORED_TYPE: base64.b64encode(text).decode()}


def _stored_field(text: str | None, given: pa.DataType) -> pa.Field | None:
    """Return the field for a new column, or None if a query has made another type of the column.

    Args:
        text: The metadata of the column of Spark.
        given: The Arrow type that Spark has for the column.
    """
    if text is None:
        return None
    try:
        field = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))).field(0)
    except (ValueError, IndexError, OSError, pa.ArrowException):
        return None  # another program's metadata
    read = as_new(pa.field("", read_type(field.type))).type
    return field if read.equals(as_new(pa.field("", given)).type) else None


def as_new(field: pa.Field, *, keep_dictionaries: bool = False) -> pa.Field:
    """Return a field for a new table: nullable at every depth, in the way that Lance creates it.

    A dictionary becomes its values: one that is large enough for a column's values need not be
    for those of a query.

    Args:
        keep_dictionaries: For rows that are not those of a query.
    """
    metadata = {k: v for k, v in (field.metadata or {}).items() if k.startswith(_KEPT)}
    if is_blob(field):
        # Lance confuses the columns of a replacement in which metadata declares blobs.
        metadata.pop(BLOB, None)
        return pa.field(field.name, BlobType(), True, metadata or None)
    dtype = _new_type(field.type, keep_dictionaries)
    return pa.field(field.name, dtype, True, metadata or None)


def _is_special(field: pa.Field) -> bool:
    """Return whether a field, or one inside it, is a blob or of an unknown extension type."""
    if is_blob(field) or any(key.startswith(_KEPT) for key in field.metadata or {}):
        return True
    return any(map(_is_special, _fields_in(field.type)))


def _fields_in(dtype: pa.DataType) -> list[pa.Field]:
    if isinstance(dtype, pa.BaseExtensionType) or not arrow.is_nested(dtype):
        return []
    return [dtype.field(i) for i in range(dtype.num_fields)]


def _new_type(dtype: pa.DataType, keep: bool) -> pa.DataType:
    if isinstance(dtype, pa.BaseExtensionType) or (keep and arrow.is_dictionary(dtype)):
        return dtype
    for is_of, new in _NEW:
        if is_of(dtype):
            return new(dtype, keep)
    return dtype


def _new_field(field: pa.Field, keep: bool) -> pa.Field:
    return as_new(field, keep_dictionaries=keep)


_NEW: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, bool], pa.DataType]], ...] = (
    (arrow.is_dictionary, lambda of, keep: _new_type(of.value_type, keep)),
    (arrow.is_string_view, lambda *_: pa.string()),
    (arrow.is_binary_view, lambda *_: pa.binary()),
    (
        arrow.is_fixed_size_list,
        lambda of, keep: pa.list_(_new_field(of.value_field, keep), of.list_size),
    ),
    (arrow.is_large_list, lambda of, keep: pa.large_list(_new_field(of.value_field, keep))),
    (arrow.is_list, lambda of, keep: pa.list_(_new_field(of.value_field, keep))),
    (arrow.is_struct, lambda of, keep: pa.struct([_new_field(each, keep) for each in of])),
    (
        arrow.is_map,
        lambda of, keep: pa.map_(_new_type(of.key_type, keep), _new_field(of.item_field, keep)),
    ),
)


# -- new tables ------------------------------------------------------------------------------------


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
    _refuse_collations(schema)
    names = schema.fieldNames()
    for name in names:
        if _BACKTICK in name:
            raise invalid(f"Column {name!r}: Lance finds no column with a backtick in its name")
    require_one_name(names, vectors or {})
    wanted = {name.lower(): size for name, size in (vectors or {}).items()}
    folded = {name.lower() for name in names}
    for name in wanted:
        if name not in folded:
            raise invalid(
                f"Option 'vector.{name}' names a column that does not exist; existing columns: "
                f"{quote_names(folded)}"
            )
    fields = zip(batch_schema(schema), schema.fields, strict=True)
    return pa.schema([_new_column(f, given, wanted.get(f.name.lower())) for f, given in fields])


def _new_column(field: pa.Field, given: spark.StructField, size: int | None) -> pa.Field:
    metadata = given.metadata or {}
    new = None if size is not None else _stored_field(metadata.get(STORED_TYPE), field.type)
    if new is None:
        size = size or metadata.get(VECTOR_SIZE)
        dtype = field.type if size is None else _vectors(given.name, field.type, int(size))
        new = pa.field(given.name, dtype)
    comment = metadata.get(COMMENT)
    kept = {**(new.metadata or {}), **({COMMENT: comment} if comment else {})}
    return pa.field(given.name, new.type, given.nullable, kept or None)


def require_one_name(names: Sequence[str], vectors: Mapping[str, int]) -> None:
    """Raise InvalidInput (13) for an option, whose letter case Spark loses, that means several."""
    for option in vectors:
        same = [name for name in names if name.lower() == option.lower()]
        if len(same) > 1:
            raise invalid(
                f"Option 'vector.{option}' may mean each of {quote_names(same)}, which differ "
                "only in letter case: rename one"
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


def nullable(schema: spark.StructType) -> spark.StructType:
    """Return a schema whose columns are all nullable, as Spark makes them when it saves data."""
    fields = [spark.StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields]
    return spark.StructType(fields)


# -- schemas in SQL --------------------------------------------------------------------------------
#
# The JSON of Spark's schemas, with what those of the data source lack: the lengths of strings, and
# the comments of nested fields.

LENGTH_TYPE = "spark.type"
"""The key in a column's metadata for ``char(n)`` and ``varchar(n)``; Spark checks the lengths."""
_LENGTH_CHECKED = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's own key for string columns whose lengths it checks."""
_COLLATIONS = "__COLLATIONS"
"""Spark's own key for the collations of a column's strings."""

Json = dict[str, Any]


def schema_to_json(schema: pa.Schema) -> str:
    """Return the JSON text of the ``StructType`` for Spark."""
    struct = spark_schema(schema).jsonValue()
    return json.dumps(_add_metadata(struct, list(schema)))


def _add_metadata(struct: Any, fields: list[pa.Field]) -> Any:
    """Return the JSON of a struct with the metadata of its fields, at every depth."""
    pairs = zip(struct["fields"], fields, strict=True)
    return {**struct, "fields": [_add_field_metadata(each, field) for each, field in pairs]}


def _add_field_metadata(spark_json: Json, field: pa.Field) -> Json:
    metadata: Json = {}
    comment = (field.metadata or {}).get(COMMENT.encode())
    if comment is not None:
        metadata[COMMENT] = comment.decode(errors="replace")
    metadata |= stored_metadata(field)
    exact = (field.metadata or {}).get(LENGTH_TYPE.encode())
    if exact is not None:
        metadata[_LENGTH_CHECKED] = exact.decode(errors="replace")
    return {
        **spark_json,
        "type": _add_type_metadata(spark_json["type"], field.type),
        "metadata": metadata,
    }


def _add_type_metadata(spark_json: Any, dtype: pa.DataType) -> Any:
    if not isinstance(spark_json, dict):
        return spark_json
    if arrow.is_struct(dtype):
        return _add_metadata(spark_json, [dtype.field(i) for i in range(dtype.num_fields)])
    if spark_json.get("type") == "array":
        return {
            **spark_json,
            "elementType": _add_type_metadata(spark_json["elementType"], dtype.value_type),
        }
    return spark_json


def converted_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose values in Spark differ from the stored ones, at any depth.

    A type that differs only in layout, such as ``large_string``, is not converted.
    """
    return [f.name for f in schema if has_blobs(f) or _is_converted(f.type)]


def _is_converted(dtype: pa.DataType) -> bool:
    if isinstance(dtype, pa.BaseExtensionType):
        return True
    if arrow.is_map(dtype):
        return _is_converted(dtype.key_type) or _is_converted(dtype.item_type)
    if arrow.is_nested(dtype):
        return any(_is_converted(dtype.field(i).type) for i in range(dtype.num_fields))
    if arrow.is_duration(dtype):
        return True  # its literals differ between Lance and Spark
    return bool(read_type(dtype) != dtype and not any(same(dtype) for same in _SAME_VALUES))


_SAME_VALUES = (
    arrow.is_large_string,
    arrow.is_string_view,
    arrow.is_large_binary,
    arrow.is_binary_view,
)


def schema_from_json(text: str, vectors: Mapping[str, int] | None = None) -> pa.Schema:
    """Return the Arrow schema of a table with these columns.

    Args:
        text: The JSON text of a ``StructType``.
        vectors: The length of vectors by column, as for `new_schema`.

    Raises:
        InvalidInputError: (13) a type that Lance does not have, or an invalid vector.
    """
    parsed = json.loads(text)
    _refuse_collations_of_lengths(parsed)
    struct = spark.StructType.fromJson(parsed)
    schema = new_schema(_without_lengths(struct), vectors)
    return pa.schema([_with_metadata(field, struct[field.name]) for field in schema])


def type_from_json(text: str) -> pa.DataType:
    """Return the Arrow type for the JSON text of a type of Spark.

    Raises:
        InvalidInputError: (13) Lance has no such type.
    """
    spark_json = {"name": "value", "type": json.loads(text), "nullable": True, "metadata": {}}
    return schema_from_json(json.dumps({"type": "struct", "fields": [spark_json]})).field(0).type


def length_in(text: str) -> str | None:
    """Return ``varchar(10)`` or ``char(3)`` if that is the JSON text of a type, or None."""
    found = json.loads(text)
    return found if str(found).startswith(("char(", "varchar(")) else None


def _without_lengths(struct: spark.StructType) -> spark.StructType:
    """Return the columns with ``char(n)`` and ``varchar(n)`` as strings: Arrow lacks them."""
    return spark.StructType(
        [
            spark.StructField(each.name, spark.StringType(), each.nullable, each.metadata)
            if isinstance(each.dataType, spark.CharType | spark.VarcharType)
            else each
            for each in struct.fields
        ]
    )


def _refuse_collations_of_lengths(struct: Json) -> None:
    """Raise InvalidInput (13) for a ``char(n)`` with a collation, which PySpark's type loses."""
    for each in struct["fields"]:
        type_json = json.dumps(each["type"])
        has_collation = _COLLATIONS in (each.get("metadata") or {}) or " collate " in type_json
        if has_collation and "char(" in type_json:
            raise collation_error(each["name"], type_json.strip('"'))


def _with_metadata(field: pa.Field, given: spark.StructField) -> pa.Field:
    """Return a column with the lengths of strings and the comments of fields as metadata."""
    metadata = dict(field.metadata or {})
    if isinstance(given.dataType, spark.CharType | spark.VarcharType):
        metadata[LENGTH_TYPE.encode()] = given.dataType.simpleString().encode()
    dtype = _add_comments(field.type, given.dataType)
    return field.with_type(dtype).with_metadata(metadata or None)


def _add_comments(dtype: pa.DataType, given: spark.DataType) -> pa.DataType:
    if isinstance(given, spark.StructType) and arrow.is_struct(dtype):
        children = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([_add_comment(child, given[child.name]) for child in children])
    if isinstance(given, spark.ArrayType) and arrow.is_list(dtype):
        inner = dtype.value_field
        return pa.list_(inner.with_type(_add_comments(inner.type, given.elementType)))
    return dtype


def _add_comment(field: pa.Field, given: spark.StructField) -> pa.Field:
    comment = (given.metadata or {}).get(COMMENT)
    dtype = _add_comments(field.type, given.dataType)
    metadata = {**(field.metadata or {}), **({COMMENT: comment} if comment else {})}
    return field.with_type(dtype).with_metadata(metadata or None)


# -- names of columns ------------------------------------------------------------------------------
#
# Lance finds no top-level column with a backtick in its name: it neither reads its values nor
# writes rows beside it. And Lance tells names apart by letter case, which Spark does not by
# default.

_BACKTICK = "`"


def require_readable(names: Iterable[str], table: str) -> None:
    """Raise InvalidInput (13) if Lance cannot read one of the columns."""
    for name in names:
        if _BACKTICK in name:
            raise invalid(
                f"Column {name!r} of table '{table}' has a backtick in its name, by which Lance "
                "does not find it: rename the column, or leave it out of the query"
            )


def require_writable(names: Iterable[str], table: str) -> None:
    """Raise InvalidInput (13) if Lance cannot write rows with all of the columns."""
    for name in names:
        if _BACKTICK in name:
            raise invalid(
                f"Column {name!r} of table '{table}' has a backtick in its name, and Lance writes "
                "no rows to such a table: rename the column"
            )


def require_distinct(spark: Any, schema: pa.Schema, table: str) -> None:
    """Raise InvalidInput (13) if Spark takes one column or field of a table for another."""
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return
    alike = _find_alike(schema)
    if alike is not None:
        raise invalid(
            f"Columns or fields '{alike[0]}' and '{alike[1]}' of table '{table}' differ only in "
            "letter case, and Spark takes one for the other: SET spark.sql.caseSensitive=true, or "
            "rename one"
        )


def _find_alike(fields: Iterable[pa.Field]) -> tuple[str, str] | None:
    """Return the names of two fields of one struct that differ only in letter case, or None."""
    known: dict[str, str] = {}
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            return other, field.name
        inside = _find_alike(_fields_in(field.type))
        if inside is not None:
            return inside
    return None


def quote_names(names: Sequence[str] | set[str]) -> str:
    return ", ".join(f"'{each}'" for each in names) or "no columns"
