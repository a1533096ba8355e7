"""Converts Glue's objects to records and back: pure functions.

Objects are boto3's dictionaries; shapes are those of botocore's service model, which also has the
lengths and characters that Glue allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from lance_bridge.catalog import (
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
from lance_bridge.hive_entries import ROWS, SIZE, Formats, hive_columns, statistics_of
from lance_bridge.locations import other_locations

_MAX_LENGTH = 255
# Glue accepts nearly everything. This pattern excludes characters with a meaning in paths, ARNs,
# filters or SQL, and letters beyond ASCII, which can be folded to lower case in several ways.
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_NAME_DESCRIPTION = (
    "letters, digits, underscores, hyphens and dots of ASCII, and not begin with '-' or '.'"
)
DESCRIPTION = "description"
"""The namespace property for the description of the database."""


def capabilities() -> Capabilities:
    """Return Glue's capabilities: it cannot rename tables, and drops databases with their content.

    Sources: UpdateTable, which accepts no other name; DeleteDatabase.
    """
    return Capabilities(
        namespace_levels=(NameRule("database", _NAME_PATTERN, _NAME_DESCRIPTION, _MAX_LENGTH),),
        table_rule=NameRule("table", _NAME_PATTERN, _NAME_DESCRIPTION, _MAX_LENGTH),
        namespace_words=(NamespaceWords(comment=DESCRIPTION),),
        folds_case=True,
        renames_by_copy=True,
        has_partitions=True,
        publishes_columns=True,
    )


# -- namespaces and entries -------------------------------------------------------------------

LOCATION = "location"
"""The namespace property for the location of the database, which is not a parameter."""

EXTERNAL_TABLE = "EXTERNAL_TABLE"
RESOURCE_LINK = "resource link"

# Parameters of an entry that belong to Hive, Athena and Spark.
_EXTERNAL = "EXTERNAL"
_STATISTICS = (ROWS, SIZE, "COLUMN_STATS_ACCURATE")
_OWN_PARAMETERS = frozenset({_EXTERNAL, "transient_lastDdlTime", *_STATISTICS})
_MAX_TYPE = 131_072
_VIEWS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")
_S3_TABLES = "aws:s3tables"


def restrict_to_shape(shape: Any, value: Any) -> Any:
    """Return ``value`` with only the fields that ``shape`` has, at every depth.

    A response and the request that sends it back share most fields. Taking them from the model also
    keeps fields that later releases of botocore add.

    Args:
        shape: A shape of botocore's service model.
        value: A parsed response.
    """
    if shape.type_name == "structure":
        return {
            k: restrict_to_shape(shape.members[k], v)
            for k, v in value.items()
            if k in shape.members
        }
    if shape.type_name == "list":
        return [restrict_to_shape(shape.member, each) for each in value]
    if shape.type_name == "map":
        return {key: restrict_to_shape(shape.value, each) for key, each in value.items()}
    return value


def database_input(shape: Any, record: NamespaceRecord, old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DatabaseInput with a record's properties, and the database's other fields.

    Args:
        shape: The shape of a DatabaseInput.
        record: The new state of the database.
        old: The database as GetDatabase returns it; empty for a new one.

    Raises:
        InvalidInputError: what Glue cannot hold.
    """
    parameters = dict(record.properties)
    fields = {
        "Description": parameters.pop(DESCRIPTION, None),
        "LocationUri": parameters.pop(LOCATION, None),
        "Parameters": parameters,
    }
    _check(shape.members["Description"], fields["Description"], f"Property {DESCRIPTION}")
    _check(shape.members["LocationUri"], fields["LocationUri"], f"Property {LOCATION}")
    _check(shape.members["Parameters"], parameters, "Parameters")
    kept = {k: v for k, v in restrict_to_shape(shape, old).items() if k not in fields}
    given = {k: v for k, v in fields.items() if v is not None}
    return {**kept, "Name": record.path[-1], **given}


def namespace_from(
    path: Path, database: Mapping[str, Any], location: str | None
) -> NamespaceRecord:
    """Return the record of a database, under the caller's name for it."""
    fields = {DESCRIPTION: database.get("Description"), LOCATION: database.get("LocationUri")}
    own = {key: value for key, value in fields.items() if value}
    properties = {**(database.get("Parameters") or {}), **own}
    target = database.get("TargetDatabase")
    return NamespaceRecord(path, properties, location, name_of_target(target) if target else "")


def is_s3_tables(database: Mapping[str, Any]) -> bool:
    """Return True for a database of S3 Tables, which sets the locations of its tables."""
    federated = database.get("FederatedDatabase") or {}
    fields = (federated.get("ConnectionName"), federated.get("ConnectionType"))
    return any((name or "").lower() == _S3_TABLES for name in fields)


def table_input(shape: Any, record: TableRecord) -> dict[str, Any]:
    """Return a TableInput for a new entry: external, and without columns in Glue.

    Raises:
        InvalidInputError: what Glue cannot hold.
    """
    return {
        "Name": record.path[-1],
        "TableType": EXTERNAL_TABLE,
        "Parameters": {**_check_record(shape, record), _EXTERNAL: "TRUE"},
        **_complete_fields({"StorageDescriptor": {"Location": record.location}}),
    }


def updated_input(shape: Any, table: Mapping[str, Any], record: TableRecord) -> dict[str, Any]:
    """Return the TableInput of an existing entry with a record's name, location and properties.

    All other fields are kept, and so are the parameters of other engines. A Lance entry gets the
    fields that it lacks.

    Raises:
        InvalidInputError: what Glue cannot hold.
    """
    found = restrict_to_shape(shape, table)
    own = {k: v for k, v in (found.get("Parameters") or {}).items() if k in _OWN_PARAMETERS}
    descriptor = {**(found.get("StorageDescriptor") or {}), "Location": record.location}
    if record.published is not None:
        descriptor["Columns"] = _columns(record.published)
        kept = {key: value for key, value in own.items() if key not in _STATISTICS}
        own = {**kept, **statistics_of(record.published)}
    fields = {**found, "StorageDescriptor": descriptor}
    return {
        **fields,
        **(_complete_fields(fields) if record.is_lance else {}),
        "Name": record.path[-1],
        "TableType": EXTERNAL_TABLE,
        "Parameters": {**own, **_check_record(shape, record), _EXTERNAL: "TRUE"},
    }


def _columns(published: Published) -> list[dict[str, str]]:
    columns = hive_columns(published.columns, type_length=_MAX_TYPE)
    return [{"Name": c.name, "Type": c.type, "Comment": c.comment} for c in columns]


def _complete_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Lance entry that other tools require, with what is missing in them.

    Athena fails without ``PartitionKeys``; `hive_entries` has the reasons for the formats.
    """
    descriptor = table["StorageDescriptor"]
    formats = _formats(descriptor).completed()
    serde = {**(descriptor.get("SerdeInfo") or {}), "SerializationLibrary": formats.serde}
    return {
        "PartitionKeys": table.get("PartitionKeys") or [],
        "StorageDescriptor": {
            **descriptor,
            "Columns": descriptor.get("Columns") or [],
            "InputFormat": formats.input_format,
            "OutputFormat": formats.output_format,
            "SerdeInfo": serde,
        },
    }


def _formats(descriptor: Mapping[str, Any]) -> Formats:
    serde = (descriptor.get("SerdeInfo") or {}).get("SerializationLibrary")
    return Formats(descriptor.get("InputFormat"), descriptor.get("OutputFormat"), serde)


def ownership_of(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of an entry that say who owns its files."""
    fields = {
        "TableType": table.get("TableType"),
        _EXTERNAL: (table.get("Parameters") or {}).get(_EXTERNAL),
    }
    return {key: value for key, value in fields.items() if value is not None}


def with_ownership(table: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a TableInput with exactly these fields of `ownership_of`."""
    kept = {k: v for k, v in table.items() if k != "TableType"}
    parameters = {k: v for k, v in table["Parameters"].items() if k != _EXTERNAL}
    own = {k: v for k, v in fields.items() if k == _EXTERNAL}
    table_type = {k: v for k, v in fields.items() if k == "TableType"}
    return {**kept, **table_type, "Parameters": {**parameters, **own}}


def _is_external(table: Mapping[str, Any]) -> bool:
    fields = ownership_of(table)
    is_marked = fields.get(_EXTERNAL, "").upper() == "TRUE"
    return is_marked and fields.get("TableType") == EXTERNAL_TABLE


def _check_record(shape: Any, record: TableRecord) -> dict[str, str]:
    location = shape.members["StorageDescriptor"].members["Location"]
    _check(location, record.location, "The location")
    _check(shape.members["Parameters"], record.properties, "Parameters")
    for key in record.properties:
        if key in _OWN_PARAMETERS:
            raise invalid(f"Property '{key}' is reserved by the catalog; remove it")
    return dict(record.properties)


def columns_from(table: Mapping[str, Any]) -> list[CatalogColumn]:
    """Return the columns of an entry. Glue keeps no nullability in them."""
    own = (table.get("StorageDescriptor") or {}).get("Columns") or []
    keys = table.get("PartitionKeys") or []
    return [
        CatalogColumn(
            each["Name"], each.get("Type") or "", True, each.get("Comment") or "", is_partition
        )
        for is_partition, columns in ((False, own), (True, keys))
        for each in columns
    ]


def record_from(
    path: Path,
    table: Mapping[str, Any],
    region: str,
    link: Mapping[str, Any] | None = None,
) -> TableRecord:
    """Return the record of an entry, under the caller's name for it.

    A view is never a Lance table.

    Args:
        path: The caller's name.
        table: The entry as GetTable returns it.
        region: The region of the catalog.
        link: The database, if it is a link to the database of the entry.
    """
    table_type = table.get("TableType") or ""
    hidden = _OWN_PARAMETERS | ({TABLE_TYPE} if table_type in _VIEWS else set())
    parameters = table.get("Parameters") or {}
    target = table.get("TargetTable")
    if target is None and link is not None:
        target = {**link["TargetDatabase"], "Name": path[-1]}
    catalog_id = (link or table).get("CatalogId")
    properties = {k: v for k, v in parameters.items() if v is not None}
    record = TableRecord(
        path=path,
        location=location_of(table),
        properties={k: v for k, v in properties.items() if k not in hidden},
        entry_type=table_type or (RESOURCE_LINK if table.get("TargetTable") else ""),
        revision=table.get("VersionId"),
        identity=identity_of(table),
        is_external=_is_external(table),
        is_partitioned=bool(table.get("PartitionKeys")) and table_type not in _VIEWS,
        link_to=name_of_target(target) if target else "",
        link_path=_path_of(target, catalog_id, region) if target else None,
        other_locations=_other_locations(table, properties),
        data_format=(table.get("StorageDescriptor") or {}).get("InputFormat") or "",
        owner=table.get("Owner") or "",
    )
    is_own = record.is_lance and not record.link_to
    formats = _formats(table.get("StorageDescriptor") or {})
    return replace(record, problems=formats.problems()) if is_own else record


def partition_locations(partition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where the data of a partition may be, as GetPartitions returns it."""
    own = location_of(partition)
    return (
        *([own] if own else []),
        *_other_locations(partition, partition.get("Parameters") or {}),
    )


def _other_locations(entry: Mapping[str, Any], parameters: Mapping[str, str]) -> tuple[str, ...]:
    descriptor = entry.get("StorageDescriptor") or {}
    options = [descriptor.get("Parameters"), (descriptor.get("SerdeInfo") or {}).get("Parameters")]
    found = other_locations(
        location_of(entry), parameters, options, input_format=descriptor.get("InputFormat")
    )
    skewed = (descriptor.get("SkewedInfo") or {}).get("SkewedColumnValueLocationMaps") or {}
    return (*found, *(descriptor.get("AdditionalLocations") or []), *skewed.values())


def identity_of(table: Mapping[str, Any]) -> str:
    """Return when an entry was created; "unknown" for federated entries, which have no time."""
    created = table.get("CreateTime")
    return str(created.isoformat()) if created else "unknown"


def _path_of(target: Mapping[str, Any], catalog_id: str | None, region: str) -> Path | None:
    """Return the path of a link's target if it is in the catalog ``catalog_id``."""
    if (
        catalog_id is None
        or target.get("CatalogId") != catalog_id
        or not is_in_region(target, region)
    ):
        return None
    return (str(target.get("DatabaseName")).lower(), str(target.get("Name")).lower())


def target_arguments(target: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments of a call for the target of a resource link."""
    name = target.get("Name") or target.get("DatabaseName") or ""
    catalog = target.get("CatalogId")
    return {"Name": name, "CatalogId": catalog} if catalog else {"Name": name}


def is_in_region(target: Mapping[str, Any], region: str) -> bool:
    """Return True if the target of a link is in this region."""
    return (target.get("Region") or region) == region


def location_of(table: Mapping[str, Any]) -> str | None:
    """Return the location of an entry, if it has one."""
    return (table.get("StorageDescriptor") or {}).get("Location") or None


def name_of_target(target: Mapping[str, Any]) -> str:
    """Return the name of a link's target, for messages."""
    location = {"of catalog": target.get("CatalogId"), "in": target.get("Region")}
    names = ".".join(target[key] for key in ("DatabaseName", "Name") if target.get(key))
    return " ".join([names, *(f"{word} {text}" for word, text in location.items() if text)])


# -- limits -----------------------------------------------------------------------------------

_SHOWN = 60
_PAIRS = r"\uD800\uDC00-\uDBFF\uDFFF"
"""How the model writes characters beyond U+FFFF: as surrogate pairs of UTF-16."""


def _check(shape: Any, value: Any, what: str) -> None:
    """Check texts against the limits of the model, which botocore itself ignores.

    Args:
        shape: The shape of a text, or of a map of properties.
        value: The text or the map; None is accepted.
        what: Its name in the message.

    Raises:
        InvalidInputError: too short, too long, or with characters that Glue refuses.
    """
    if value is None:
        return
    if shape.type_name == "map":
        for key, text in value.items():
            _check(shape.key, key, f"Property key {_shorten(key)}")
            _check(shape.value, text, f"The value of property {_shorten(key)}")
        return
    limits = shape.metadata
    if not limits.get("min", 0) <= len(value) <= limits.get("max", len(value)):
        raise invalid(
            f"{what} has {len(value)} characters; Glue allows {limits.get('min', 0)} to "
            f"{limits['max']}"
        )
    if "pattern" in limits and not _pattern(limits["pattern"]).fullmatch(value):
        raise invalid(f"{what} has control characters, or others that Glue refuses")


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(_PAIRS, r"\U00010000-\U0010FFFF"))


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
