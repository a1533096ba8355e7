"""Hive's objects as records, and back: pure functions.

Objects are made from, and read by attribute of, whichever Thrift bindings are given (`types`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from lance_bridge.catalog import TABLE_TYPE, NamespaceRecord, Path, TableRecord
from lance_bridge.errors import invalid

from . import limits

DESCRIPTION = "database.description"
LOCATION = "database.location-uri"
OWNER = "database.owner"
OWNER_TYPE = "database.owner-type"
CATALOG_DESCRIPTION = "catalog.description"
CATALOG_LOCATION = "catalog.location-uri"

REVISION = "lance_bridge.revision"
"""Changes with every change of an entry by this adapter, so that concurrent ones are noticed."""

EXTERNAL_TABLE = "EXTERNAL_TABLE"
_OWNER_TYPES = {"USER": 1, "ROLE": 2, "GROUP": 3}

_PURGE = "external.table.purge"
_TRANSLATED = "TRANSLATED_TO_EXTERNAL"

# What the metastore keeps in an entry's parameters for its own use.
_OWN_PARAMETERS = frozenset(
    {
        "EXTERNAL", _TRANSLATED, _PURGE, "transient_lastDdlTime",
        "last_modified_by", "last_modified_time", "bucketing_version", "COLUMN_STATS_ACCURATE",
        "numFiles", "numFilesErasureCoded", "numRows", "rawDataSize", "totalSize", REVISION,
    }
)  # fmt: skip

# Hive and Spark cannot read Lance files. Abstract classes make them say so; a text format would
# make them return the bytes of Lance files as rows.
_INPUT_FORMAT = "org.apache.hadoop.mapred.FileInputFormat"
_OUTPUT_FORMAT = "org.apache.hadoop.mapred.FileOutputFormat"
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"

_VIEWS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")


def database_from(types: Any, record: NamespaceRecord) -> Any:
    """Return a Thrift Database for a new namespace."""
    database = types.Database(name=record.path[-1])
    if len(record.path) > 1:
        database.catalogName = record.path[0]
    return database_with(database, record.properties)


def database_with(database: Any, properties: Mapping[str, str]) -> Any:
    """Set a Thrift Database's fields and parameters from a namespace's properties.

    Raises:
        InvalidInputError: (13) an unknown owner type, or what Hive cannot hold.
    """
    parameters = dict(properties)
    if LOCATION in parameters:
        limits.check_namespace_location(LOCATION, parameters[LOCATION])
        database.locationUri = parameters.pop(LOCATION)
    database.description = parameters.pop(DESCRIPTION, None)
    database.ownerName = parameters.pop(OWNER, None)
    limits.check_database_fields((DESCRIPTION, database.description), (OWNER, database.ownerName))
    owner_type = parameters.pop(OWNER_TYPE, None)
    if owner_type is not None:
        if owner_type.upper() not in _OWNER_TYPES:
            raise invalid(f"{OWNER_TYPE} must be USER, ROLE or GROUP, not {owner_type[:60]!r}")
        database.ownerType = _OWNER_TYPES[owner_type.upper()]
    database.parameters = limits.checked_parameters(
        parameters, limits.OF_DATABASES, _OWN_PARAMETERS
    )
    return database


def namespace_from(path: Path, database: Any) -> NamespaceRecord:
    """Return the record of a Thrift Database."""
    names = {number: name for name, number in _OWNER_TYPES.items()}
    fields = {
        DESCRIPTION: database.description,
        LOCATION: database.locationUri,
        OWNER: database.ownerName,
        OWNER_TYPE: names.get(database.ownerType) if database.ownerName else None,
    }
    properties = {**(database.parameters or {}), **{k: v for k, v in fields.items() if v}}
    return NamespaceRecord((*path[:-1], database.name), properties, database.locationUri or None)


def catalog_fields(record: NamespaceRecord, root: str | None) -> dict[str, str | None]:
    """Return the fields of a Thrift Catalog, which has no parameters.

    Raises:
        InvalidInputError: (13) a property that a catalog cannot hold, or no location.
    """
    name = record.path[0]
    given = {k: v for k, v in record.properties.items() if not k.startswith("lance_bridge.")}
    location = given.pop(CATALOG_LOCATION, f"{root.rstrip('/')}/{name}" if root else None)
    description = given.pop(CATALOG_DESCRIPTION, None)
    if given:
        raise invalid(
            f"Hive catalog '{name}' cannot hold the property '{next(iter(given))}': only "
            f"{CATALOG_DESCRIPTION} and {CATALOG_LOCATION}"
        )
    if not location:
        raise invalid(f"Hive catalog '{name}' needs the property {CATALOG_LOCATION}, or a root")
    limits.check_text(f"Property {CATALOG_DESCRIPTION}", description, limits.TEXT)
    limits.check_namespace_location(CATALOG_LOCATION, location)
    return {"name": name, "description": description, "locationUri": location}


def catalog_from(catalog: Any) -> NamespaceRecord:
    """Return the record of a Thrift Catalog."""
    fields = {CATALOG_DESCRIPTION: catalog.description, CATALOG_LOCATION: catalog.locationUri}
    return NamespaceRecord((catalog.name,), {k: v for k, v in fields.items() if v})


def table_from(types: Any, record: TableRecord, owner: str | None) -> Any:
    """Return a Thrift Table for a new entry: external, with both of Hive's marks for that."""
    descriptor = types.StorageDescriptor(
        cols=[],
        location=record.location,
        inputFormat=_INPUT_FORMAT,
        outputFormat=_OUTPUT_FORMAT,
        compressed=False,
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=_SERDE, parameters={}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    table = types.Table(
        tableName=record.path[-1],
        dbName=record.path[-2],
        owner=owner,
        sd=descriptor,
        partitionKeys=[],
        tableType=EXTERNAL_TABLE,
        parameters={
            **_checked(record),
            "EXTERNAL": "TRUE",
            REVISION: uuid.uuid4().hex,
        },
    )
    if len(record.path) > 2:
        table.catName = record.path[0]
    return table


def _checked(record: TableRecord) -> dict[str, str]:
    limits.check_segments("The location", record.location)
    return limits.checked_parameters(record.properties, limits.OF_TABLES, _OWN_PARAMETERS)


def record_from(namespace: Path, table: Any) -> TableRecord:
    """Return the record of a Thrift Table; a view is never Lance's, whatever its marks say."""
    parameters = table.parameters or {}
    unseen = _OWN_PARAMETERS | ({TABLE_TYPE} if table.tableType in _VIEWS else set())
    return TableRecord(
        path=(*namespace, table.tableName),
        location=(table.sd.location or None) if table.sd else None,
        properties={k: v for k, v in parameters.items() if k not in unseen},
        kind=table.tableType or "",
        revision=parameters.get(REVISION),
        identity=str(table.createTime) if table.createTime else None,
    )


def is_external(table: Any) -> bool:
    """Return True where the metastore takes the entry for external: its files are not its own."""
    marks = {key: str(value).upper() for key, value in (table.parameters or {}).items()}
    # Hive 4 makes a managed table external in name only, and goes on moving and deleting its files.
    own = marks.get(_TRANSLATED) == "TRUE" or marks.get(_PURGE) == "TRUE"
    return marks.get("EXTERNAL") == "TRUE" and table.tableType == EXTERNAL_TABLE and not own


def made_external(table: Any) -> Any:
    """Set both marks of an external table, and take away those that make its files Hive's own."""
    table.tableType = EXTERNAL_TABLE
    kept = {k: v for k, v in (table.parameters or {}).items() if k not in (_PURGE, _TRANSLATED)}
    table.parameters = {**kept, "EXTERNAL": "TRUE"}
    return table


def with_new_revision(table: Any) -> Any:
    """Set a revision that nobody has seen."""
    table.parameters = {**(table.parameters or {}), REVISION: uuid.uuid4().hex}
    return table


def altered(table: Any, record: TableRecord) -> Any:
    """Set a Thrift Table's location and parameters from a record; keep what is Hive's own."""
    own = {k: v for k, v in (table.parameters or {}).items() if k in _OWN_PARAMETERS}
    table.parameters = {**own, **_checked(record)}
    table.sd.location = record.location
    return made_external(table)
