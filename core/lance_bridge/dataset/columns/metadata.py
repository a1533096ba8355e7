"""Metadata of a table's schema and of its fields: text by text keys, changed in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lance_namespace_urllib3_client.models import UpdateFieldMetadataEntry

from ...errors import invalid, require_text
from ...ref import Ref
from ...table import Table, transaction_id
from .. import paths
from ..paths import Column
from . import computed

_TYPE_KEYS = "ARROW:extension:"
"""Keys that say how the values of a column are to be read, and so are part of its type."""


def replace_schema_metadata(
    table: Table, ref: Ref, metadata: Mapping[str, str] | None
) -> tuple[dict[str, str], str | None]:
    """Make ``metadata`` that of the schema; what was there before and is not in it goes.

    Returns it and the identifier of the transaction. Source: UpdateTableSchemaMetadata.

    Raises:
        InvalidInputError: (13) there is none, or it is not text.
        ConcurrentModificationError: (14)
    """
    if metadata is None:
        raise invalid("The request has no metadata: send an empty map to remove all there is")
    _check_text(metadata, metadata.values())
    dataset = table.open(ref, write=True)
    with table.committing(dataset, "the metadata was not changed"):
        now = dataset.update_schema_metadata(dict(metadata), replace=True)
    return dict(now), transaction_id(dataset, table)


def update_field_metadata(
    table: Table, ref: Ref, entries: Sequence[UpdateFieldMetadataEntry]
) -> tuple[int, dict[str, dict[str, str]]]:
    """Change the metadata of fields in one commit; return its version and the fields' metadata.

    An entry merges what it has, and a null removes a key; with ``replace`` all other keys go.
    Source: UpdateFieldMetadata.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) no field is named or one twice, something is not text, a key is
            part of the column's type or says how the column is computed, or Lance refuses a value.
        ConcurrentModificationError: (14)
    """
    for entry in entries:
        _check_text(entry.metadata, (v for v in entry.metadata.values() if v is not None))
    dataset = table.open(ref, write=True)
    columns = paths.find_each(dataset, table, [entry.path for entry in entries])
    updates = {
        column.path: _changes(column, entry) for column, entry in zip(columns, entries, strict=True)
    }
    with table.committing(dataset, "no metadata was changed"):
        dataset.update_field_metadata(updates)
    now = [paths.find(dataset, table, column.path) for column in columns]
    return int(dataset.version), {column.path: paths.metadata_of(column) for column in now}


def _changes(column: Column, entry: UpdateFieldMetadataEntry) -> dict[str, str | None]:
    """Return what changes, and only that; None removes a key."""
    before = paths.metadata_of(column)
    kept = (
        {k: v for k, v in before.items() if k.startswith(_TYPE_KEYS)} if entry.replace else before
    )
    after = {k: v for k, v in {**kept, **entry.metadata}.items() if v is not None}
    changes = {
        key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)
    }
    for key in changes:
        if key.startswith(_TYPE_KEYS):
            raise invalid(
                f"{key!r} is part of the type of column '{column.path}' and cannot change"
            )
        if computed.is_declaration(key):
            raise invalid(
                f"{key!r} of column '{column.path}' is about computed columns: add one with "
                "AlterTableAddColumns, and drop it to change it"
            )
    return changes


def _check_text(keys: Iterable[str], values: Iterable[str]) -> None:
    for text in [*keys, *values]:
        require_text("The metadata", text)
        if "\0" in text:
            raise invalid(f"The metadata has a NUL in {text[:60]!r}")
