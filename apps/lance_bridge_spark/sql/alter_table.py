"""ALTER TABLE: columns, comments and properties. A statement is one commit if Lance allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from lance_namespace.errors import (
    TableColumnNotFoundError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models import AlterColumnsEntry, UpdateFieldMetadataEntry

from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, RESERVED_PREFIX, TABLE_TYPE
from lance_bridge.dataset import (
    RESERVED_COLUMNS,
    alter_columns,
    canonical,
    drop_columns,
    find_column,
    metadata_of,
    siblings,
    update_field_metadata,
)
from lance_bridge.errors import invalid, unsupported
from lance_bridge.records import FOREIGN_COMMITS, ForeignCommits, check_properties, manager_in
from lance_bridge.requests import LATEST
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from ..addresses import CatalogAddress
from ..schemas import COMMENT, LENGTH_TYPE, length_in, type_from_json
from ..source import conversion
from . import entries

Args = Mapping[str, Any]
Answer = dict[str, Any]
Change = Mapping[str, Any]
_Step = Callable[[Table, Sequence[Change]], None]


def alter(catalog: CatalogAddress, args: Args) -> Answer:
    """``{table, changes, evolves?}`` to a description of the changed table.

    Consecutive changes of the same kind are made together. ``evolves`` means that they come from an
    INSERT or a MERGE WITH SCHEMA EVOLUTION, and not from an ALTER TABLE.

    Raises: Unsupported, NamespaceNotFound, TableNotFound, TableColumnNotFound, InvalidInput,
        TableSchemaValidation, ConcurrentModification, ServiceUnavailable, InvalidTableState.
    """
    table = entries.find(catalog, args)
    changes: Sequence[Change] = args["changes"]
    for change in changes:
        _refuse_impossible(table, change)
    changes = _with_names_of_lance(table, changes)
    if args.get("evolves"):
        _refuse_narrowing(table, changes)
    for step, same in groupby(changes, key=lambda change: _STEPS[change["kind"]]):
        step(table, list(same))
        # The entry contains the properties, and the versions of a managed table.
        table = table.reloaded() if step is _alter_properties else table.refreshed()
    return entries.describe(table, table.open())


def _refuse_impossible(table: Table, change: Change) -> None:
    """Raise if Lance cannot make a change, before any part of the statement is executed."""
    action, name = change["kind"], table.name
    if action not in _STEPS:
        raise unsupported(
            f"Table '{name}': Lance does not support the ALTER TABLE change '{action}'"
        )
    if action == "rename_column" and len(change["field"]) == 1 and "`" in change["to"]:
        raise invalid(f"{change['to']!r} cannot be a column's name in Lance")
    if action == "add_column":
        column = canonical(change["field"])
        if not change.get("nullable", True):
            raise invalid(f"Column '{column}' cannot be NOT NULL: existing rows have no value")
        if change.get("position"):
            raise unsupported(
                f"Column '{column}' cannot be added FIRST or AFTER another: Lance appends columns"
            )


def _refuse_narrowing(table: Table, changes: Sequence[Change]) -> None:
    """Raise TableSchemaValidation (20) for changes to a type that cannot hold all old values.

    Spark requests the type of the source's column, even if it is the narrower one.
    """
    retyped = [change for change in changes if change["kind"] == "update_type"]
    dataset = table.open() if retyped else None
    for change in retyped:
        stored = _type_of(dataset, change["field"])
        wanted = type_from_json(change["type"])
        if not conversion.fits(stored, wanted):
            raise TableSchemaValidationError(
                f"Schema evolution cannot make column '{canonical(change['field'])}' of table "
                f"'{table.name}' {wanted} of {stored}, which does not fit into it: CAST the "
                "source's column to the table's type"
            )


# -- fields inside columns -------------------------------------------------------------------------

_IN_LISTS = ("add_column", "drop_column", "rename_column", "update_comment")
"""The changes that Lance can make of fields of structs in lists."""


def _with_names_of_lance(table: Table, changes: Sequence[Change]) -> Sequence[Change]:
    """Return changes of fields by the names of Lance: Spark calls the items of a list ``element``.

    Raises:
        UnsupportedOperationError: (0) a field is in a map or vectors, or in a list in which Lance
            cannot make the change.
    """
    if all(len(change.get("field", ())) < 2 for change in changes):
        return changes
    schema = table.open().schema
    return [
        {**change, "field": _names_of_lance(schema, change)} if "field" in change else change
        for change in changes
    ]


def _names_of_lance(schema: pa.Schema, change: Change) -> list[str]:
    names = list[str]()
    dtype = pa.struct(list(schema))
    for depth, name in enumerate(change["field"], 1):
        if pa.types.is_struct(dtype):
            names.append(name)
            # A field that does not exist is refused later, by its name.
            dtype = dtype.field(name).type if dtype.get_field_index(name) >= 0 else pa.null()
        elif _has_items(dtype) and change["kind"] in _IN_LISTS and depth < len(change["field"]):
            names.append(dtype.value_field.name)
            dtype = dtype.value_type
        elif pa.types.is_nested(dtype):
            raise _not_inside(dtype, change["field"], depth - 1)
        else:
            names.append(name)
    return names


def _has_items(dtype: pa.DataType) -> bool:
    """Return whether a type is that of lists of any length, whose structs Lance can change."""
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def _not_inside(dtype: pa.DataType, field: Sequence[str], depth: int) -> UnsupportedOperationError:
    what = "map" if pa.types.is_map(dtype) else "list" if _has_items(dtype) else "vector"
    return unsupported(
        f"Lance cannot make this change of '{canonical(field)}' inside the {what} "
        f"'{canonical(field[:depth])}': add a column of the type that you need, fill it with "
        f"UPDATE, and drop '{field[0]}'"
    )


# -- columns -------------------------------------------------------------------------------------


def _add_columns(table: Table, changes: Sequence[Change]) -> None:
    """Add columns of nulls, and fields of structs."""
    dataset = table.open(write=True)
    fields: list[pa.Field] = []
    for change in changes:
        *parents, name = change["field"]
        _require_new(table, tuple(parents), name, _names_in(dataset, table, tuple(parents)))
        fields.append(_nest(dataset.schema, parents, _new_field(change)))
    if len({field.name for field in fields}) < len(fields):
        # Lance takes one new field of a struct at a time.
        for change in changes:
            _add_columns(table.refreshed(), [change])
        return
    with table.committing(dataset, "no column was added"):
        dataset.add_columns(pa.schema(fields))


def _names_in(dataset: Any, table: Table, parents: tuple[str, ...]) -> list[str]:
    """Return the names of the fields of a struct, or of the columns.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) it is not a struct.
    """
    if parents:
        parent = find_column(dataset, table, canonical(parents))
        if not pa.types.is_struct(_type_of(dataset, parents)):
            raise invalid(f"Column '{parent.path}' is not a struct: no field can be added to it")
    return siblings(dataset, parents)


def _type_of(dataset: Any, segments: Sequence[str]) -> pa.DataType:
    """Return the type of a field, by the names of Lance."""
    dtype = pa.struct(list(dataset.schema))
    for name in segments:
        dtype = dtype.value_type if _has_items(dtype) else dtype.field(name).type
    return dtype


def _require_new(table: Table, parents: tuple[str, ...], name: str, taken: Sequence[str]) -> None:
    column = canonical((*parents, name))
    if name.lower() in {each.lower() for each in taken}:
        raise invalid(f"Column '{column}' exists already in table '{table.name}'")
    is_reserved = not parents and (set(name) & set(".`") or name in RESERVED_COLUMNS)
    if not name or "\0" in name or is_reserved:
        raise invalid(f"{column!r} cannot be a column's name in Lance")


def _new_field(change: Change) -> pa.Field:
    comment = change.get("comment")
    dtype = type_from_json(change["type"])
    return pa.field(change["field"][-1], dtype, metadata={COMMENT: comment} if comment else None)


def _nest(schema: pa.Schema, parents: Sequence[str], field: pa.Field) -> pa.Field:
    """Return a column with only a new field, in the structs and lists that it will be in."""
    return _with_only(field, pa.struct(list(schema)), parents).field(0)


def _with_only(field: pa.Field, dtype: pa.DataType, parents: Sequence[str]) -> pa.DataType:
    if not parents:
        return pa.struct([field])
    if _has_items(dtype):
        item = pa.field(dtype.value_field.name, _with_only(field, dtype.value_type, parents[1:]))
        return pa.large_list(item) if pa.types.is_large_list(dtype) else pa.list_(item)
    inner = dtype.field(parents[0]).type
    return pa.struct([pa.field(parents[0], _with_only(field, inner, parents[1:]))])


def _drop_columns(table: Table, changes: Sequence[Change]) -> None:
    wanted = [canonical(change["field"]) for change in changes]
    optional = {
        path for path, change in zip(wanted, changes, strict=True) if change.get("if_exists")
    }
    if optional:
        dataset = table.open()
        wanted = [
            path for path in wanted if path not in optional or _has_column(dataset, table, path)
        ]
    if wanted:
        drop_columns(table, LATEST, wanted)


def _has_column(dataset: Any, table: Table, path: str) -> bool:
    try:
        find_column(dataset, table, path)
    except TableColumnNotFoundError:
        return False
    return True


def _alter_columns(table: Table, changes: Sequence[Change]) -> None:
    alter_columns(table, LATEST, [_to_entry(change) for change in changes])
    _store_lengths(table.refreshed(), changes)


def _store_lengths(table: Table, changes: Sequence[Change]) -> None:
    """Store the declared type of columns that are strings now, or remove it."""
    found = table.open()
    notes: list[UpdateFieldMetadataEntry] = []
    for change in changes:
        if change["kind"] == "update_type":
            path, length = canonical(change["field"]), length_in(change["type"])
            before = metadata_of(find_column(found, table, path)).get(LENGTH_TYPE)
            if length != before:
                notes.append(UpdateFieldMetadataEntry(path=path, metadata={LENGTH_TYPE: length}))
    if notes:
        update_field_metadata(table, LATEST, notes)


def _to_entry(change: Change) -> AlterColumnsEntry:
    path = canonical(change["field"])
    if change["kind"] == "rename_column":
        return AlterColumnsEntry(path=path, rename=change["to"])
    if change["kind"] == "update_nullability":
        return AlterColumnsEntry(path=path, nullable=change["nullable"])
    return AlterColumnsEntry(path=path, data_type=_to_request_type(change))


def _to_request_type(change: Change) -> dict[str, Any]:
    """Return a type as the namespace's requests spell it."""
    dtype = type_from_json(change["type"])
    if pa.types.is_nested(dtype):
        raise unsupported(
            f"Column '{canonical(change['field'])}' cannot become {change['type']}: Lance "
            "changes types of plain values only"
        )
    if pa.types.is_decimal(dtype):
        return {"type": f"decimal{dtype.bit_width}", "length": dtype.precision * 1000 + dtype.scale}
    return {"type": _NAMES.get(str(dtype), str(dtype))}


_NAMES = {"float": "float32", "double": "float64", "string": "utf8"}


def _set_comments(table: Table, changes: Sequence[Change]) -> None:
    found = [
        UpdateFieldMetadataEntry(
            path=canonical(change["field"]),
            metadata={COMMENT: change.get("comment") or None},
        )
        for change in changes
    ]
    update_field_metadata(table, LATEST, found)


# -- properties ----------------------------------------------------------------------------------


def _properties_after(table: Table, changes: Sequence[Change]) -> tuple[dict[str, str], str | None]:
    """Return the user's properties after a statement, and the requested manager of the table."""
    own = dict(table.properties)
    given: dict[str, str] = {}
    for change in changes:
        key = change["key"]
        if change["kind"] == "remove_property":
            _require_removable(table, key)
            own.pop(key, None)
            given.pop(key, None)
            if key == FOREIGN_COMMITS:  # a replacement of properties would keep it
                own[key] = ForeignCommits.HIDE.value
        else:
            _require_settable(table, key)
            given[key] = change["value"]
    return {**own, **check_properties(given)}, manager_in(given)


def _require_removable(table: Table, key: str) -> None:
    if key.startswith(RESERVED_PREFIX) or key.lower() in (TABLE_TYPE, MANAGED_BY):
        raise invalid(f"Property '{key}' of '{table.name}' is reserved and cannot be removed")


def _require_settable(table: Table, key: str) -> None:
    if key in ("location", "provider"):
        raise unsupported(
            f"The {key} of '{table.name}' cannot change: make another table, or register "
            "the data under another name"
        )


def _alter_properties(table: Table, changes: Sequence[Change]) -> None:
    own, manager = _properties_after(table, changes)
    table.require_settable(own)
    if manager is not None:
        is_managed = table.managed is not None
        if manager == IMPLEMENTATION and not is_managed:
            table = Tables(table.connection).manage(table)
        elif manager != IMPLEMENTATION and is_managed:
            table = table.release()
    table.set_properties(own)


_STEPS: Mapping[str, _Step] = {
    "add_column": _add_columns,
    "drop_column": _drop_columns,
    "rename_column": _alter_columns,
    "update_type": _alter_columns,
    "update_nullability": _alter_columns,
    "update_comment": _set_comments,
    "set_property": _alter_properties,
    "remove_property": _alter_properties,
}
"""The function for each kind of change; changes with the same function can be one commit."""
