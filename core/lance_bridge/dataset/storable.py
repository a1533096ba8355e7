"""Which columns Lance can store: what it refuses itself, and what it would write and not read back.

Lance's check of a schema lets some types pass whose rows it panics on, cannot read back, or loses
together with those of other columns. They are refused by name here, before anything is written.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.types as arrow

from ..errors import invalid
from ..lance_errors import LANCE_ERRORS, first_line, panics_as_errors


def check_types(schema: pa.Schema) -> None:
    """Check that no column is of a type whose rows Lance would lose.

    Raises:
        InvalidInputError: (13)
    """
    for field in schema:
        reason = _why_not_kept(field.type)
        if reason is not None:
            raise invalid(f"Lance cannot store {_name(field)}: {reason}")


def require_storable(schema: pa.Schema) -> None:
    """Check that Lance can make a table of a schema.

    Raises:
        InvalidInputError: (13)
    """
    check_types(schema)
    error = _why_not_made(schema)
    if error is None:
        return
    for field in schema:
        if _why_not_made(pa.schema([field])) is not None:
            raise invalid(f"Lance cannot store {_name(field)}: {first_line(error)}") from error
    raise invalid(f"Lance cannot store this schema: {first_line(error)}") from error


def no_rows(schema: pa.Schema) -> pa.RecordBatchReader:
    """Return a reader without batches: pyarrow makes an empty table of some types only."""
    return pa.RecordBatchReader.from_batches(schema, [])


def _name(field: pa.Field) -> str:
    return f"column {field.name!r} of type {field.type}"


def _why_not_kept(kind: pa.DataType) -> str | None:
    if arrow.is_struct(kind) and not kind.num_fields:
        return "it loses rows beside a struct without fields"
    if arrow.is_fixed_size_list(kind) and not _is_plain(kind.value_type):
        return (
            "a list of fixed size can hold booleans, numbers, times, binary of fixed size and "
            "lists of fixed size"
        )
    if isinstance(kind, pa.BaseExtensionType):
        return _why_not_kept(kind.storage_type)
    reasons = (_why_not_kept(kind.field(i).type) for i in range(kind.num_fields))
    return next((reason for reason in reasons if reason is not None), None)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether values have one size each and nothing beside it."""
    if arrow.is_fixed_size_list(kind):
        return _is_plain(kind.value_type)
    return bool(
        arrow.is_null(kind)
        or arrow.is_boolean(kind)
        or arrow.is_integer(kind)
        or arrow.is_floating(kind)
        or arrow.is_decimal(kind)
        or arrow.is_temporal(kind)
        or arrow.is_fixed_size_binary(kind)
    )


def _why_not_made(schema: pa.Schema) -> Exception | None:
    """Return why Lance refuses a table of a schema without rows, or None."""
    try:
        with panics_as_errors():
            lance.write_dataset(no_rows(schema), "memory://")
    except (*LANCE_ERRORS, pa.ArrowException) as error:
        return error
    return None
