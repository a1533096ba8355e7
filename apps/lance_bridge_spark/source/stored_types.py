"""Types that Spark lacks, kept with its columns, so that a copy has the types of its source.

Spark reads a column as a type of its own, such as a time as a number. The Arrow type goes with the
column in Spark's metadata, which a query keeps if it selects the column as it is. A table that is
created from such a column stores it as it was.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as arrow
from lance.blob import BlobType

from lance_bridge.blobs import BLOB, is_blob

KEY = "lance.arrow"
"""The key in a Spark column's metadata: the Arrow schema of the column, as IPC in base64."""

VECTOR_SIZE = "arrow.fixed-size-list.size"
"""The key in a column's metadata for the length of its vectors."""

_KEPT = (BLOB, b"ARROW:extension:")
"""Metadata that belongs to a type: of blobs, and of extension types that no library here knows."""

ReadType = Callable[[pa.DataType], pa.DataType]


def metadata_of(field: pa.Field, read_type: ReadType) -> dict[str, Any]:
    """Return the metadata for a column of Spark; empty if its type in Spark is the stored one."""
    metadata: dict[str, Any] = {}
    own = field.type
    if arrow.is_fixed_size_list(own):
        metadata[VECTOR_SIZE] = own.list_size
        own = own.value_type
    if read_type(own).equals(own) and not _is_special(field):
        return metadata
    text = pa.schema([as_new(field).with_name("")]).serialize().to_pybytes()
    return {**metadata, KEY: base64.b64encode(text).decode()}


def stored_field(text: str | None, given: pa.DataType, read_type: ReadType) -> pa.Field | None:
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
    dtype = field.type
    if isinstance(dtype, pa.BaseExtensionType) or not arrow.is_nested(dtype):
        return False
    return any(_is_special(dtype.field(i)) for i in range(dtype.num_fields))


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
