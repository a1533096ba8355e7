"""Converts Hive's Thrift objects to records and back: pure functions. Names, lengths, capabilities.

`types` are the Thrift bindings to use, hmsclient's or pymetastore's. The maximum lengths are the
widths of columns in the metastore's own database schema, which is the same for all releases. A
longer value would cause an internal error or be lost silently.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lance_bridge.catalog import (
    RESERVED_PREFIX,
    TABLE_TYPE,
    Capabilities,
    CatalogColumn,
    NameRule,
    NamespaceRecord,
    NamespaceWords,
    Path,
    Published,
    TableRecord,
)
from lance_bridge.errors import invalid
from lance_bridge.hive_entries import (
    INPUT_FORMAT,
    OUTPUT_FORMAT,
    ROWS,
    SERDE,
    SIZE,
    Formats,
    hive_columns,
    statistics_of,
)
from lance_bridge.locations import other_locations

DEFAULT_DATABASE = "default"
HIVE_CATALOG = "hive"
_BUILTIN = ((DEFAULT_DATABASE,),)
_BUILTIN_WITH_CATALOGS = ((HIVE_CATALOG,), (HIVE_CATALOG, DEFAULT_DATABASE))

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_NAME_DESCRIPTION = (
    "letters, digits and underscores of ASCII (and hyphens, which Hive before 4.0 refuses), "
    "and not begin with a hyphen"
)

_CATALOG = NameRule("catalog", _NAME_PATTERN, _NAME_DESCRIPTION, 256)
_DATABASE = NameRule("database", _NAME_PATTERN, _NAME_DESCRIPTION, 128)
_TABLE = NameRule("table", _NAME_PATTERN, _NAME_DESCRIPTION, 256)

DESCRIPTION = "database.description"
LOCATION = "database.location-uri"
OWNER = "database.owner"
OWNER_TYPE = "database.owner-type"
CATALOG_DESCRIPTION = "catalog.description"
CATALOG_LOCATION = "catalog.location-uri"
_CATALOG_WORDS = NamespaceWords(CATALOG_DESCRIPTION, CATALOG_LOCATION)
_DATABASE_WORDS = NamespaceWords(DESCRIPTION, LOCATION, OWNER)


def capabilities(*, catalog_levels: bool) -> Capabilities:
    """Return the capabilities of a Hive Metastore, with or without the level of catalogs."""
    return Capabilities(
        namespace_levels=(_CATALOG, _DATABASE) if catalog_levels else (_DATABASE,),
        table_rule=_TABLE,
        namespace_words=(_CATALOG_WORDS, _DATABASE_WORDS)[0 if catalog_levels else 1 :],
        folds_case=True,
        atomic_restrict=True,
        makes_directories=True,
        has_partitions=True,
        hides_tables=not catalog_levels,
        publishes_columns=True,
    )


def is_builtin(path: Path, *, catalog_levels: bool) -> bool:
    """Return True for the namespaces that a metastore never drops.

    Without catalogs a database may be named `hive`, and with them a catalog `default`.
    """
    return path in (_BUILTIN_WITH_CATALOGS if catalog_levels else _BUILTIN)


def database_argument(namespace: Path) -> str:
    """Return a database as an argument of calls without a field for the catalog."""
    if len(namespace) == 1:
        return namespace[0]
    catalog, database = namespace
    return f"@{catalog}#{database}"


# -- namespaces and entries -------------------------------------------------------------------

REVISION = RESERVED_PREFIX + "revision"
"""Changes with every alter by this adapter, to detect concurrent alters.

A random value, a hyphen, and a digest of the entry's other content: see :func:`is_whole`.
"""

CHANGED_AT = "transient_lastDdlTime"
"""When an entry was last changed, in seconds since 1970: Hive gives one to every entry."""

EXTERNAL_TABLE = "EXTERNAL_TABLE"
_OWNER_TYPES = {"USER": 1, "ROLE": 2, "GROUP": 3}

_PURGE = "external.table.purge"
_TRANSLATED = "TRANSLATED_TO_EXTERNAL"
_OWNERSHIP = ("EXTERNAL", _PURGE, _TRANSLATED)
_TABLE_TYPE = "tableType"

# Parameters of an entry that belong to the metastore, or to this adapter.
_OWN_PARAMETERS = frozenset(
    {
        "EXTERNAL", _TRANSLATED, _PURGE, CHANGED_AT,
        "last_modified_by", "last_modified_time", "bucketing_version", "COLUMN_STATS_ACCURATE",
        "numFiles", "numFilesErasureCoded", ROWS, "rawDataSize", SIZE, REVISION,
    }
)  # fmt: skip
_STATISTICS = (ROWS, SIZE, "rawDataSize", "COLUMN_STATS_ACCURATE")
"""Hive answers `count(*)` from these if the last of them says that they are right."""

_LOCAL = re.compile(r"^file:/+")
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
        InvalidInputError: an unknown owner type, or what Hive cannot hold.
    """
    parameters = dict(properties)
    if LOCATION in parameters:
        _check_namespace_location(LOCATION, parameters[LOCATION])
        database.locationUri = parameters.pop(LOCATION)
    database.description = parameters.pop(DESCRIPTION, None)
    # Hive 4.2 cannot alter a database whose owner was removed.
    database.ownerName = parameters.pop(OWNER, database.ownerName)
    _check_text(f"Property {DESCRIPTION}", database.description, _TEXT)
    _check_text(f"Property {OWNER}", database.ownerName, _OWNER_LENGTH)
    owner_type = parameters.pop(OWNER_TYPE, None)
    if owner_type is not None:
        if owner_type.upper() not in _OWNER_TYPES:
            raise invalid(f"{OWNER_TYPE} must be USER, ROLE or GROUP, not {owner_type[:60]!r}")
        database.ownerType = _OWNER_TYPES[owner_type.upper()]
    database.parameters = _check_parameters(parameters, 180, _TEXT)
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
        InvalidInputError: a property that a catalog cannot hold, or no location.
    """
    name = record.path[0]
    given = {k: v for k, v in record.properties.items() if not k.startswith(RESERVED_PREFIX)}
    location = given.pop(CATALOG_LOCATION, f"{root.rstrip('/')}/{name}" if root else None)
    description = given.pop(CATALOG_DESCRIPTION, None)
    if given:
        raise invalid(
            f"Hive catalog '{name}' cannot hold the property '{next(iter(given))}': only "
            f"{CATALOG_DESCRIPTION} and {CATALOG_LOCATION}"
        )
    if not location:
        raise invalid(f"Hive catalog '{name}' needs the property {CATALOG_LOCATION}, or a root")
    _check_text(f"Property {CATALOG_DESCRIPTION}", description, _TEXT)
    _check_namespace_location(CATALOG_LOCATION, location)
    return {"name": name, "description": description, "locationUri": location}


def catalog_from(catalog: Any) -> NamespaceRecord:
    """Return the record of a Thrift Catalog."""
    fields = {CATALOG_DESCRIPTION: catalog.description, CATALOG_LOCATION: catalog.locationUri}
    return NamespaceRecord((catalog.name,), {k: v for k, v in fields.items() if v})


def table_from(types: Any, record: TableRecord, owner: str | None) -> Any:
    """Return a Thrift Table for a new entry: external, by its type and by its parameter."""
    descriptor = types.StorageDescriptor(
        cols=[],
        location=record.location,
        inputFormat=INPUT_FORMAT,
        outputFormat=OUTPUT_FORMAT,
        compressed=False,
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=SERDE, parameters={}),
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
            **_record_parameters(record),
            "EXTERNAL": "TRUE",
        },
    )
    if len(record.path) > 2:
        table.catName = record.path[0]
    return with_new_revision(table)


def _record_parameters(record: TableRecord) -> dict[str, str]:
    _check_segments("The location", record.location)
    return _check_parameters(record.properties, 256, None)


def record_from(namespace: Path, table: Any) -> TableRecord:
    """Return the record of a Thrift Table; a view is never a Lance table."""
    parameters = table.parameters or {}
    hidden = _OWN_PARAMETERS | ({TABLE_TYPE} if table.tableType in _VIEWS else set())
    record = TableRecord(
        path=(*namespace, table.tableName),
        location=(table.sd.location or None) if table.sd else None,
        properties={k: v for k, v in parameters.items() if k not in hidden},
        entry_type=table.tableType or "",
        revision=revision_of(table),
        identity=str(table.createTime) if table.createTime else None,
        is_external=is_external(table),
        is_partitioned=bool(table.partitionKeys) and table.tableType not in _VIEWS,
        other_locations=_other_locations(table.sd, parameters),
        data_format=(table.sd.inputFormat or "") if table.sd else "",
        owner=table.owner or "",
    )
    return replace(record, problems=_formats(table.sd).problems()) if record.is_lance else record


def _formats(descriptor: Any) -> Formats:
    if descriptor is None:
        return Formats(None, None, None)
    serde = descriptor.serdeInfo.serializationLib if descriptor.serdeInfo else None
    return Formats(descriptor.inputFormat, descriptor.outputFormat, serde)


def with_formats(types: Any, table: Any) -> Any:
    """Return a copy of a Lance entry with all formats; those of other clients stay."""
    table, formats = copy.copy(table), _formats(table.sd).completed()
    table.sd = copy.copy(table.sd) if table.sd else types.StorageDescriptor(cols=[], parameters={})
    table.sd.inputFormat, table.sd.outputFormat = formats.input_format, formats.output_format
    serde = table.sd.serdeInfo
    table.sd.serdeInfo = copy.copy(serde) if serde else types.SerDeInfo(parameters={})
    table.sd.serdeInfo.serializationLib = formats.serde
    return table


def partition_locations(partition: Any) -> tuple[str, ...]:
    """Return where the data of a Thrift Partition may be."""
    own = (partition.sd.location,) if partition.sd and partition.sd.location else ()
    return (*own, *_other_locations(partition.sd, partition.parameters or {}))


def _other_locations(descriptor: Any, parameters: Mapping[str, str]) -> tuple[str, ...]:
    if descriptor is None:
        return other_locations(None, parameters)
    serde, skewed = descriptor.serdeInfo, descriptor.skewedInfo
    options = [descriptor.parameters, serde.parameters if serde else None]
    found = other_locations(
        descriptor.location, parameters, options, input_format=descriptor.inputFormat
    )
    skewed_locations = (skewed.skewedColValueLocationMaps or {}).values() if skewed else ()
    return (*found, *skewed_locations)


def columns_from(table: Any) -> list[CatalogColumn]:
    """Return the columns of a Thrift Table. Hive keeps no nullability in them."""
    own = (table.sd.cols if table.sd else None) or []
    return [
        CatalogColumn(each.name or "", each.type or "", True, each.comment or "", is_partition)
        for is_partition, columns in ((False, own), (True, table.partitionKeys or []))
        for each in columns
    ]


def is_own(key: str) -> bool:
    """Return True for a parameter of the metastore or this adapter, not a table property."""
    return key in _OWN_PARAMETERS


def is_external(table: Any) -> bool:
    """Return True if the metastore neither moves nor deletes the files of the entry."""
    ownership = {key: str(value).upper() for key, value in (table.parameters or {}).items()}
    # Hive 4 translates managed tables to external ones, and still moves and deletes their files.
    own = ownership.get(_TRANSLATED) == "TRUE" or ownership.get(_PURGE) == "TRUE"
    return ownership.get("EXTERNAL") == "TRUE" and table.tableType == EXTERNAL_TABLE and not own


def ownership_of(table: Any) -> dict[str, str]:
    """Return the fields of an entry that say who owns its files."""
    parameters = table.parameters or {}
    ownership = {key: str(parameters[key]) for key in _OWNERSHIP if key in parameters}
    return {_TABLE_TYPE: table.tableType or "", **ownership}


def with_ownership(table: Any, ownership: Mapping[str, str]) -> Any:
    """Return a copy with exactly these fields of `ownership_of`."""
    table = copy.copy(table)
    kept = {k: v for k, v in (table.parameters or {}).items() if k not in _OWNERSHIP}
    given = {key: value for key, value in ownership.items() if key in _OWNERSHIP}
    table.parameters, table.tableType = {**kept, **given}, ownership.get(_TABLE_TYPE, "")
    return table


def as_external(table: Any) -> Any:
    """Return a copy that is external, by its type and by its parameters."""
    table = copy.copy(table)
    table.tableType = EXTERNAL_TABLE
    kept = {k: v for k, v in (table.parameters or {}).items() if k not in (_PURGE, _TRANSLATED)}
    table.parameters = {**kept, "EXTERNAL": "TRUE"}
    return table


def visible_fields(table: Any) -> tuple[Any, ...]:
    """Return what other clients see of an entry."""
    parameters = {k: v for k, v in table.parameters.items() if k != REVISION}
    return entry_fields(table), table.sd.location, _formats(table.sd), table.sd.cols, parameters


def entry_fields(table: Any) -> tuple[Any, ...]:
    """Return the fields that commit records lack: the name, and who owns the files."""
    return table.dbName, table.tableName, ownership_of(table)


def revision_of(table: Any) -> str | None:
    """Return the revision that this adapter set last; None for an entry of another client."""
    revision: str | None = (table.parameters or {}).get(REVISION)
    return revision


def with_record_number(revision: str, number: int) -> str:
    """Return the revision of an entry whose latest commit record has this number."""
    return f"{revision}#{number}"


def split_revision(table: Any) -> tuple[str, int | None]:
    """Return the entry's own revision, and the number of its latest commit record, if any."""
    revision, _, number = str(revision_of(table)).partition("#")
    return revision, int(number) if number else None


def comparison_key(table: Any) -> str:
    """Return the parameter whose value shows whether an entry has changed.

    Entries of other clients have no revision, but the time that :func:`with_new_revision` sets.
    """
    return REVISION if revision_of(table) is not None else CHANGED_AT


def with_new_revision(table: Any) -> Any:
    """Return a copy with a new revision; the first one also advances the time of the change."""
    table = copy.copy(table)
    parameters = dict(table.parameters or {})
    if REVISION not in parameters and CHANGED_AT in parameters:
        parameters[CHANGED_AT] = _later_than(parameters[CHANGED_AT])
    table.parameters = {**parameters, REVISION: f"{uuid.uuid4().hex}-{_digest(table)}"}
    return table


def is_whole(table: Any) -> bool:
    """Return False if an entry may mix two states, or other clients changed it after this library.

    Depending on the metastore's database, a read may return some parameters from before a change
    and others from after it. With the new revision and an old value, the next change would silently
    revert this one.
    """
    digest = (revision_of(table) or "").partition("-")[2]
    return not digest or digest == _digest(table)


def _digest(table: Any) -> str:
    parameters = (table.parameters or {}).items()
    seen = sorted((key, value) for key, value in parameters if key not in _OWN_PARAMETERS)
    location = (table.sd.location if table.sd else None) or ""
    # The metastore normalizes local paths, and removes a trailing slash.
    text = json.dumps([_LOCAL.sub("/", location).rstrip("/"), seen])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _later_than(seconds: str) -> str:
    now = int(time.time())
    return str(max(now, int(seconds) + 1) if seconds.isdecimal() else now)


def with_probe_column(types: Any, table: Any, parameters: Mapping[str, str]) -> Any:
    """Return a copy with another partition key, which every Hive refuses in an alter."""
    refused = copy.copy(table)
    column = types.FieldSchema(name="lance_bridge_probe", type="string", comment="")
    refused.partitionKeys = [*(table.partitionKeys or []), column]
    refused.parameters = dict(parameters)
    return refused


def updated_entry(types: Any, table: Any, record: TableRecord) -> Any:
    """Return a copy with a record's location and properties; Hive's own parameters are kept."""
    table = with_formats(types, table) if record.is_lance else copy.copy(table)
    own = {k: v for k, v in (table.parameters or {}).items() if k in _OWN_PARAMETERS}
    table.parameters = {**own, **_record_parameters(record)}
    table.sd = copy.copy(table.sd)
    table.sd.location = record.location
    if record.published is not None:
        _publish(types, table, record.published)
    return as_external(table)


def _publish(types: Any, table: Any, published: Published) -> None:
    """Set the columns and statistics of an entry, never marked as accurate."""
    columns = hive_columns(published.columns, type_length=_TEXT)
    table.sd.cols = [types.FieldSchema(each.name, each.type, each.comment) for each in columns]
    kept = {key: value for key, value in table.parameters.items() if key not in _STATISTICS}
    table.parameters = {**kept, **statistics_of(published)}


def changes_types(table: Any, changed: Any) -> bool:
    """Return whether a column has another type than the one that was at its position.

    By default, a metastore refuses most of these changes; it compares positions, not names.
    """
    pairs = zip(table.sd.cols or [], changed.sd.cols or [], strict=False)
    return any(before.type != after.type for before, after in pairs)


def without_columns(table: Any) -> Any:
    """Return a copy without columns."""
    table = copy.copy(table)
    table.sd = copy.copy(table.sd)
    table.sd.cols = []
    return table


# -- limits of entries --------------------------------------------------------------------------

_TEXT = 4000
"""Width of the columns for values, descriptions and locations, in UTF-16 units; and of that for
the types of columns in older releases on Oracle."""
_OWNER_LENGTH = 128
_SEGMENT_BYTES = 255
"""The maximum length of a name in a path on common file systems."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_TRANSACTIONAL = "transactional"


def _check_parameters(
    parameters: Mapping[str, str], key_limit: int, value_limit: int | None
) -> dict[str, str]:
    """Return the parameters if Hive can store them; the limit of values may depend on the release.

    Raises:
        InvalidInputError: a key or value is too long, or has a meaning in Hive.
    """
    for key, value in parameters.items():
        _check_text(f"Property key {key[:60]!r}…", key, key_limit)
        _check_text(f"The value of property {key[:60]!r}", value, value_limit)
        if is_own(key):
            raise invalid(f"Property '{key}' is reserved by the metastore; remove it")
        if key.lower() == _TRANSACTIONAL and value.strip().lower() != "false":
            raise invalid(f"Property '{key}' is for tables in Hive's own format: leave it out")
    return dict(parameters)


def _check_text(what: str, text: str | None, limit: int | None) -> None:
    """Raise InvalidInputError if a text is longer than its column."""
    length = len((text or "").encode("utf-16-le", "surrogatepass")) // 2
    if limit is not None and length > limit:
        raise invalid(f"{what} has {length} characters; Hive allows {limit}")


def _check_namespace_location(key: str, location: str) -> None:
    """Check a caller's location for a database or catalog, on any file system.

    Raises:
        InvalidInputError: it is empty, relative, too long, or holds ``..`` or control
            characters.
    """
    label = f"Property {key} {location[:120]!r}"
    _check_text(f"Property {key}", location, _TEXT)
    if not location.strip():
        raise invalid(f"{label} is empty: leave it out")
    if any(ord(c) < 32 or ord(c) == 127 for c in location):
        raise invalid(f"{label} has control characters")
    found = _SCHEME.fullmatch(location)
    path = found[2] if found else location
    if not path.startswith("/"):
        raise invalid(f"{label} is relative: give an absolute path or a URI")
    if not path.strip("/"):
        raise invalid(f"{label} is a whole file system: name a directory in it")
    if ".." in path.split("/"):
        raise invalid(f"{label} must not contain '..'")
    _check_segments(label, location)


def _check_segments(what: str, location: str | None) -> None:
    """Raise InvalidInputError if a local path has a name that file systems refuse."""
    found = _SCHEME.fullmatch(location or "")
    if found and found[1].lower() != "file":
        return
    for name in (found[2] if found else location or "").split("/"):
        if len(name.encode(errors="replace")) > _SEGMENT_BYTES:
            raise invalid(
                f"{what} has a part of more than {_SEGMENT_BYTES} bytes, which file systems "
                f"refuse: {name[:60]!r}…"
            )
