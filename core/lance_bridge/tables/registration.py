"""RegisterTable: an entry for data that exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .. import location as locations
from .. import properties as entry_properties
from ..catalog import Path, TableRecord
from ..connection import Connection
from ..errors import table_already_exists
from ..lost_replies import settle
from ..managed import conversion
from . import collection as tables
from .locations import Home


def register(
    connection: Connection,
    path: Path,
    location: str,
    properties: Mapping[str, str] | None,
    *,
    overwrite: bool,
) -> TableRecord:
    """Add an entry for data that exists; the data is neither read nor changed.

    Raises:
        TableAlreadyExistsError: (5) the name is taken; with ``overwrite``, by another kind of
            entry than a Lance table.
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) bad location or properties.
    """
    place = locations.check(location)
    given = entry_properties.checked(properties)
    managed = conversion.is_wanted(connection, path, Home(connection, path[:-1]), properties)
    record, is_new = tables.add_or_find(connection, path, place, given)
    if is_new:
        with tables.undone(connection, record):
            return conversion.begin(connection, record) if managed else record
    if not overwrite:
        raise table_already_exists(path)
    if managed:
        conversion.latest_in_storage(connection, replace(record, location=place))
    record = _move_registration(connection, record, place, given)
    return conversion.begin(connection, record) if managed else record


def _move_registration(
    connection: Connection, record: TableRecord, location: str, properties: Mapping[str, str]
) -> TableRecord:
    """Point an entry to another place; the files of the old one stay."""
    tables.require_change(connection, record, "Deregister it first, for the location of")
    conversion.finish_latest(connection, record)
    moved = replace(
        record,
        location=locations.for_catalog(location),
        properties=entry_properties.for_new_table(properties),
    )
    settle(lambda: connection.catalog.alter_table(moved), lambda: tables.is_same(connection, moved))
    return moved
