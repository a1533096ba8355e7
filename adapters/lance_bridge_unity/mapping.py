"""Converts Unity's objects to records and back: pure functions on decoded JSON.

Also says what a server can do, which names it accepts, and how long they may be.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from lance_namespace.errors import InternalError

from lance_bridge.catalog import (
    TABLE_TYPE,
    Capabilities,
    CatalogColumn,
    Column,
    NameRule,
    NamespaceRecord,
    NamespaceWords,
    Path,
    TableCredentials,
    TableRecord,
)
from lance_bridge.credentials import EXPIRES_AT
from lance_bridge.dotted_names import in_backticks
from lance_bridge.errors import display, invalid, require_text
from lance_bridge.locations import PROVIDER, other_locations

Json = dict[str, Any]

EXTERNAL = "EXTERNAL"
_MANAGED_DIRECTORY = "/__unitystorage"
"""Below a storage root: the directory of managed tables, in which external ones are refused."""

OTHER_TYPE_KEY = TABLE_TYPE.upper()
"""The key of a Lance table's type if SQL refuses the usual one: Spark 4.3 reserves it, but only
in lower case."""

_KEPT_IN_URI = "/~!$&'()*+,;=:@"
"""Characters of a path that the open-source server does not percent-encode."""

_SPARK_PROPERTIES = ("transient_lastDdlTime", "option.serialization.format")
"""Properties that Spark adds to tables created by SQL."""

_TEXT_FORMAT = "TEXT"
_LONGEST_PROPERTY = 255
_LONGEST_COMMENT = {False: 255, True: 65_535}
"""Maximum length of a namespace's comment, by whether the server is Databricks."""
_LONGEST_COLUMN_NAME = 255
_LONGEST_STORAGE_ROOT = 255 - len(f"{_MANAGED_DIRECTORY}/catalogs/{uuid.UUID(int=0)}")
"""The open-source server appends a directory before it stores the root."""
_UNSTATED_LIFE_MILLIS = 300_000
"""Credentials without an expiration are fetched again after this time."""

_SIMPLE_TYPES = {
    "boolean": ("BOOLEAN", "boolean"), "byte": ("BYTE", "tinyint"), "short": ("SHORT", "smallint"),
    "integer": ("INT", "int"), "long": ("LONG", "bigint"), "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"), "date": ("DATE", "date"), "binary": ("BINARY", "binary"),
    "timestamp": ("TIMESTAMP", "timestamp"), "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
    "string": ("STRING", "string"), "variant": ("VARIANT", "variant"),
    "void": ("NULL", "void"), "null": ("NULL", "void"),
}  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFUSED_COLUMN = "lance_table_not_readable_as_text"
"""A column of the entry only, never of the data."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")


# -- capabilities ----------------------------------------------------------------------------------

_OPEN_SOURCE = re.compile(r"[A-Za-z0-9_@-]+", re.ASCII)
_DATABRICKS = re.compile(r"[\w@-]+")
_MAX_LENGTH = 255

_NO_UPDATE = "the open-source Unity Catalog server has no call that changes a table"
NO_WAREHOUSE = (
    "Databricks creates and alters external tables by SQL only: set the property "
    "'warehouse_id' to a SQL warehouse"
)
_NO_COMPARE_AND_SET = (
    "Databricks sets a table's properties by SQL, which does not compare them with their previous "
    "values"
)
COMMENT = ("catalog.comment", "schema.comment")
"""The properties for the comment of a catalog and of a schema."""
STORAGE_ROOT = ("catalog.storage-root", "schema.storage-root")
"""The properties for the location of managed data."""
_CATALOG_WORDS, _SCHEMA_WORDS = map(NamespaceWords, COMMENT, STORAGE_ROOT)
_WITHIN_SCHEMA = "Unity Catalog renames tables within their schema only"


def capabilities(*, databricks: bool, pinned: bool, has_warehouse: bool) -> Capabilities:
    """Return the capabilities of a server.

    Args:
        databricks: Whether it is Databricks, not the open-source server.
        pinned: Whether a property sets the catalog, so that identifiers do not contain it.
        has_warehouse: Whether it can run SQL.
    """
    catalog, schema, table = (_rule(noun, databricks) for noun in ("catalog", "schema", "table"))
    no_sql = NO_WAREHOUSE if databricks and not has_warehouse else ""
    return Capabilities(
        namespace_levels=(schema,) if pinned else (catalog, schema),
        table_rule=table,
        namespace_words=(_CATALOG_WORDS, _SCHEMA_WORDS)[1 if pinned else 0 :],
        folds_case=databricks,
        atomic_restrict=True,
        no_rename=no_sql,
        no_rename_across=_WITHIN_SCHEMA,
        no_alter=no_sql if databricks else _NO_UPDATE,
        no_managed_tables=_NO_COMPARE_AND_SET if databricks else _NO_UPDATE,
    )


def _rule(noun: str, databricks: bool) -> NameRule:
    if databricks:
        return NameRule(noun, _DATABRICKS, "letters, digits, '_', '@' and '-'", _MAX_LENGTH)
    return NameRule(
        noun, _OPEN_SOURCE, "letters and digits of ASCII, '_', '@' and '-'", _MAX_LENGTH
    )


# -- namespaces ----------------------------------------------------------------------------------


def namespace_body(full: Path, record: NamespaceRecord, *, databricks: bool = False) -> Json:
    """Return the request that creates a catalog (one name) or a schema (two).

    Raises:
        InvalidInputError: what the server cannot hold.
    """
    body = namespace_changes(full, record.properties, databricks=databricks)
    key = STORAGE_ROOT[len(full) - 1]
    root = record.properties.get(key)
    if root:
        if not databricks:
            _require_length(f"Property {key}", root, _LONGEST_STORAGE_ROOT)
        body["storage_root"] = root
    if not body["comment"]:
        del body["comment"]
    parent = {"catalog_name": full[0]} if len(full) > 1 else {}
    return {"name": full[-1], **parent, **body}


def namespace_changes(
    full: Path, properties: Mapping[str, str], *, databricks: bool = False
) -> Json:
    """Return the request that replaces comment and properties; raises the same errors."""
    comment, root = COMMENT[len(full) - 1], STORAGE_ROOT[len(full) - 1]
    own = {key: value for key, value in properties.items() if key not in (comment, root)}
    text = properties.get(comment, "")
    _require_length(f"Property {comment}", text, _LONGEST_COMMENT[databricks])
    return {"comment": text, "properties": check_properties(own)}


def namespace_from(path: Path, full: Path, info: Json) -> NamespaceRecord:
    """Return the record of a catalog or schema that the server returned."""
    root = _text(info, "storage_root")
    fields = {COMMENT[len(full) - 1]: _text(info, "comment"), STORAGE_ROOT[len(full) - 1]: root}
    properties = {**_properties(info), **{k: v for k, v in fields.items() if v}}
    location = _decoded(root or _without_managed_directory(_text(info, "storage_location")))
    return NamespaceRecord((*path[:-1], _name(info, full)), properties, location)


def _without_managed_directory(location: str | None) -> str | None:
    """Return a location without the directory that the open-source server adds for managed tables.

    It refuses external tables below that directory.
    """
    return location.partition(_MANAGED_DIRECTORY)[0] if location else None


# -- tables --------------------------------------------------------------------------------------


def table_body(full: Path, record: TableRecord) -> Json:
    """Return the request that creates a table: external, and of the format TEXT.

    Raises:
        InvalidInputError: what the server cannot hold.
    """
    catalog, schema, name = full
    return {
        "name": name,
        "catalog_name": catalog,
        "schema_name": schema,
        "table_type": EXTERNAL,
        "data_source_format": _TEXT_FORMAT,
        "columns": _columns(record.columns),
        "storage_location": stored_location(record.location or ""),
        "properties": check_properties(record.properties),
    }


def record_from(namespace: Path, info: Json) -> TableRecord:
    """Return the record of a table that the server returned.

    Only external tables are Lance tables: the server deletes the files of others.

    Raises:
        InternalError: it has no name.
    """
    type_ = _text(info, "table_type") or ""
    properties = _properties(info)
    for key in _SPARK_PROPERTIES:
        properties.pop(key, None)
    if OTHER_TYPE_KEY in properties:
        properties.setdefault(TABLE_TYPE, properties.pop(OTHER_TYPE_KEY))
    if type_ != EXTERNAL:
        properties.pop(TABLE_TYPE, None)
    location = _decoded(_text(info, "storage_location"))
    return TableRecord(
        path=(*namespace, _name(info, namespace)),
        location=location,
        properties=properties,
        entry_type=type_,
        identity=_text(info, "table_id"),
        is_external=type_ == EXTERNAL,
        other_locations=_other_locations(info, location, properties),
        data_format=_text(info, "data_source_format") or "",
        owner=_text(info, "owner") or "",
    )


def _decoded(location: str | None) -> str | None:
    """Return a location as the library spells it: with a local path as it is.

    The open-source server percent-encodes the path that another client gives it, and keeps a URI.
    """
    if location is None or not location.startswith("file:"):
        return location
    decoded = unquote(location)
    return location if "\ufffd" in decoded else decoded


def stored_location(location: str) -> str:
    """Return the server's form of a location, for which `_decoded` returns it again."""
    if not location.startswith("file:"):
        return location
    return "file:" + quote(location.removeprefix("file:"), safe=_KEPT_IN_URI)


def _other_locations(
    info: Json, location: str | None, properties: Mapping[str, str]
) -> tuple[str, ...]:
    """Return where else the data may be; Spark's options have the prefix ``option.``."""
    parameters = {key.removeprefix("option."): value for key, value in properties.items()}
    format_ = (_text(info, "data_source_format") or "").lower()
    return other_locations(location, {PROVIDER: format_, **parameters})


def columns_from(info: Json) -> list[CatalogColumn]:
    """Return the columns of a table that the server returned."""
    columns = sorted(info.get("columns") or [], key=_is_partition_column)
    return [
        CatalogColumn(
            _text(each, "name") or "",
            _text(each, "type_text") or _text(each, "type_name") or "",
            each.get("nullable") is not False,
            _text(each, "comment") or "",
            _is_partition_column(each),
        )
        for each in columns
    ]


def _is_partition_column(column: Json) -> bool:
    return column.get("partition_index") is not None


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties if the open-source server can store them.

    Raises:
        InvalidInputError: a key or value is too long, or no text.
    """
    for key, value in properties.items():
        _require_length(f"Property key {key[:60]!r}…", key, _LONGEST_PROPERTY)
        _require_length(f"The value of property {key[:60]!r}", value, _LONGEST_PROPERTY)
    return dict(properties)


def _require_length(what: str, text: str, limit: int) -> None:
    require_text(what, text)
    length = len(text.encode("utf-16-le")) // 2
    if length > limit:
        raise invalid(f"{what} has {length} characters; Unity Catalog allows {limit}")


def _properties(info: Json) -> dict[str, str]:
    found = info.get("properties")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _text(info: Json, key: str) -> str | None:
    value = info.get(key)
    return value if isinstance(value, str) and value else None


def label(info: Json) -> str:
    """Return a name for an entry without one, for messages."""
    return _text(info, "full_name") or _text(info, "table_id") or "an entry without a name"


def _name(info: Json, path: Path) -> str:
    name = _text(info, "name")
    if name is None:
        raise InternalError(f"Unity Catalog's response about '{display(path)}' has no name")
    return name


# -- columns -------------------------------------------------------------------------------------


def _columns(columns: Sequence[Column]) -> list[Json]:
    """Return the columns of an entry, at least one of which Spark's text reader refuses.

    Without columns, or with strings only, it would find no text files in a Lance table and return
    no rows instead of failing.
    """
    if all(column.type == "string" for column in columns):
        name = _REFUSED_COLUMN
        while name in [column.name for column in columns]:
            name += "_"
        columns = (*columns, Column(name, "binary", nullable=True))
    return [_column(column, position) for position, column in enumerate(columns)]


def _column(column: Column, position: int) -> Json:
    _require_length(f"Column name {column.name[:60]!r}…", column.name, _LONGEST_COLUMN_NAME)
    # Servers from 0.5 on require the whole field, and older ones accept it.
    field = {"name": column.name, "type": column.type, "nullable": column.nullable, "metadata": {}}
    decimal = _DECIMAL.fullmatch(column.type) if isinstance(column.type, str) else None
    precision = (
        {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])} if decimal else {}
    )
    return {
        "name": column.name,
        "type_text": type_text(column.type),
        "type_json": json.dumps(field),
        "type_name": type_name(column.type),
        "position": position,
        "nullable": column.nullable,
        **precision,
    }


def type_name(spark: str | Mapping[str, Any]) -> str:
    """Return Unity's name of a type in Spark's JSON form."""
    if isinstance(spark, str):
        if spark.startswith("decimal"):
            return "DECIMAL"
        return "INTERVAL" if spark.startswith("interval") else _simple_type(spark)[0]
    type_ = str(spark.get("type", "")).upper()
    return type_ if type_ in ("ARRAY", "MAP", "STRUCT") else "USER_DEFINED_TYPE"


def type_text(spark: str | Mapping[str, Any]) -> str:
    """Return the SQL name of a type in Spark's JSON form."""
    if isinstance(spark, str):
        own_word = spark.startswith(("decimal", "interval"))
        return spark if own_word else _simple_type(spark)[1]
    type_ = spark.get("type")
    if type_ == "array":
        return f"array<{type_text(spark['elementType'])}>"
    if type_ == "map":
        return f"map<{type_text(spark['keyType'])},{type_text(spark['valueType'])}>"
    if type_ == "struct":
        inner = (
            f"{_quote_name(field['name'])}:{type_text(field['type'])}" for field in spark["fields"]
        )
        return f"struct<{','.join(inner)}>"
    return str(type_)


def _quote_name(name: str) -> str:
    """Return the name of a field, quoted for SQL if necessary."""
    return name if _PLAIN_NAME.fullmatch(name) else in_backticks(name)


def _simple_type(spark: str) -> tuple[str, str]:
    return _SIMPLE_TYPES.get(spark, ("USER_DEFINED_TYPE", spark))


# -- credentials ---------------------------------------------------------------------------------


def credentials_request(record: TableRecord, *, write: bool) -> tuple[str, Json]:
    """Return the call for temporary credentials, and its body.

    An existing table is identified by its id, a new one by its location.
    """
    if record.identity is not None:
        operation = "READ_WRITE" if write else "READ"
        body = {"table_id": record.identity, "operation": operation}
        return "temporary-table-credentials", body
    operation = "PATH_CREATE_TABLE" if write else "PATH_READ"
    return "temporary-path-credentials", {"url": record.location, "operation": operation}


def storage_options(reply: Json) -> TableCredentials | None:
    """Return vended credentials as options for Lance; None if the reply has none."""
    options = {
        option: str(reply[member][field])
        for member, fields in _CREDENTIALS.items()
        if isinstance(reply.get(member), dict)
        for field, option in fields.items()
        if reply[member].get(field)
    }
    if not options:
        return None
    expires = reply.get("expiration_time") or int(time.time() * 1000) + _UNSTATED_LIFE_MILLIS
    return TableCredentials({**options, EXPIRES_AT: str(int(expires))})


_CREDENTIALS = {
    "aws_temp_credentials": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
    },
    "azure_user_delegation_sas": {"sas_token": "azure_storage_sas_token"},
    "azure_aad": {"aad_token": "azure_storage_token"},
    "gcp_oauth_token": {"oauth_token": "google_storage_token"},
}
