"""Adding columns of nulls of any type, and fields of nulls to structs that exist."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

import lance
import pyarrow as pa

from ..errors import invalid
from ..requests import Ref
from ..table import Table
from . import computed_columns, paths
from .arrow_compat import require_storable
from .schema_evolution import check_name


def add(table: Table, ref: Ref, schema_text: str) -> int:
    """Add columns of nulls in one commit and return its version.

    Source: ``AllNulls`` of Lance's ``NewColumnTransform``.

    Args:
        schema_text: The columns, see `ExtendedColumnsRequest.arrow_schema`.

    Raises:
        InvalidInputError: (13) it is not a schema, Lance cannot store a type, a name is not valid
            or exists, a new column or field may not be null, or a struct is a computed column.
        ConcurrentModificationError: (14)
    """
    schema = _parse(schema_text)
    dataset = table.open(ref, write=True)
    _check(dataset, schema)
    require_storable(schema)
    with table.committing(dataset, "no column was added"):
        dataset.add_columns(schema)
    return int(dataset.version)


def _parse(text: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError, binascii.Error) as error:
        raise invalid("arrow_schema is not an Arrow schema: an IPC message in base64") from error
    if not len(schema):
        raise invalid("The request adds no column: arrow_schema is empty")
    return schema


def _check(dataset: lance.LanceDataset, schema: pa.Schema) -> None:
    existing = {field.name: field for field in dataset.schema}
    computed = {each.name: each for each in paths.walk(dataset) if not each.parent}
    taken: set[str] = set()
    for field in schema:
        check_name(field.name, is_nested=False)
        if not field.nullable:
            raise invalid(
                f"Column '{field.name}' may not be null, so it needs values: give an expression"
            )
        if field.name in taken:
            raise invalid(f"Column '{field.name}' is named twice")
        taken.add(field.name)
        if field.name in existing:
            computed_columns.require_plain(computed[field.name])
            _check_merge(existing[field.name], field, (field.name,))


def _check_merge(existing: pa.Field, new: pa.Field, path: tuple[str, ...]) -> None:
    """Check that all of a field is new: fields of a struct that exists, or of a list of such."""
    old_type, new_type = existing.type, new.type
    if _is_list(old_type) and _is_list(new_type):
        _check_merge(old_type.value_field, new_type.value_field, path)
        return
    if not (pa.types.is_struct(old_type) and pa.types.is_struct(new_type)):
        raise invalid(f"Column '{paths.canonical(path)}' exists already, or is named twice")
    known = {field.name: field for field in old_type}
    _require_single(new_type, path)
    for field in new_type:
        inner = (*path, field.name)
        check_name(field.name, is_nested=True)
        if field.name in known:
            _check_merge(known[field.name], field, inner)
        elif not field.nullable:
            # Lance would commit it, and could read no row afterwards.
            raise invalid(f"Field '{paths.canonical(inner)}' must be nullable, like all new fields")


def _require_single(fields: Iterable[pa.Field], path: tuple[str, ...]) -> None:
    names = [field.name for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"Field '{paths.canonical([*path, twice])}' is named twice")


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
