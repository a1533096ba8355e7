"""CreateTable: an entry first, then the data; what fails in between can be tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import lance
import pyarrow as pa
from lance_namespace.errors import ServiceUnavailableError, TableAlreadyExistsError

from .. import location as locations
from ..bridge import Bridge
from ..catalog import Path, TableRecord
from ..entries import placement
from ..entries import properties as entry_properties
from ..entries import tables as entries
from ..entries.modes import CreateMode
from ..errors import display, table_already_exists
from .dataset import LANCE_FAILURES, brief, open_dataset


@dataclass(frozen=True)
class NewTable:
    """What a caller wants to create: data with a schema, and how."""

    path: Path
    data: pa.Table
    mode: CreateMode = CreateMode.CREATE
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict)


def create_table(bridge: Bridge, table: NewTable) -> tuple[TableRecord, int]:
    """Create a table with data and return its entry and version. Source: CreateTable.

    The entry comes first, without data: the catalog decides between two creators. A write that
    fails leaves a declared table, which the next create completes.

    Raises:
        TableAlreadyExistsError: (5) a table with data has the name and the mode is Create, or an
            entry that is not Lance's has it in any mode.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad properties, or no location can be found.
        ServiceUnavailableError: (17) the storage did not take the data.
    """
    given = entry_properties.checked(table.properties)
    try:
        place = placement.free_location(bridge, table.path, must_look=True)
        record = entries.add(bridge, table.path, place, given)
    except TableAlreadyExistsError as error:
        existing = entries.existing_lance(bridge, table.path, error)
        return _onto_existing(bridge, table, existing, given)
    return record, _write(bridge, table, record, "create")


def _onto_existing(
    bridge: Bridge, table: NewTable, record: TableRecord, properties: Mapping[str, str]
) -> tuple[TableRecord, int]:
    """Complete a declared table, or do with one that has data what the mode says."""
    if not entries.is_only_declared(bridge, record):
        if table.mode is CreateMode.CREATE:
            raise table_already_exists(table.path)
        if table.mode is CreateMode.EXIST_OK:
            return record, open_dataset(bridge, record).version
    # Lance's own overwrite is atomic: readers see the old table or the new one.
    how = "overwrite" if table.mode is CreateMode.OVERWRITE else "create"
    try:
        version = _write(bridge, table, record, how)
    except TableAlreadyExistsError:
        if table.mode is not CreateMode.EXIST_OK:
            raise
        return record, open_dataset(bridge, record).version
    return entries.set_properties(bridge, record, properties), version


def _write(bridge: Bridge, table: NewTable, record: TableRecord, how: str) -> int:
    """Write the data in one commit and return the number of its version."""
    place = locations.for_lance(record.location or "")
    options = {
        **table.storage_options,
        **(bridge.storage_options(record, vend=None, write=True) or {}),
    }
    try:
        written = lance.write_dataset(table.data, place, mode=how, storage_options=options or None)
    except LANCE_FAILURES as error:
        if how == "create" and not entries.is_only_declared(bridge, record):
            raise table_already_exists(record.path, "another writer created its data") from error
        raise ServiceUnavailableError(
            f"The data of table '{display(record.path)}' could not be written to {place}: "
            f"{brief(error)}. The table is declared; create it again to complete it"
        ) from error
    return int(written.version)
