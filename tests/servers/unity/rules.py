"""What the servers take, refuse, and break at: names, properties, columns, locations."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from .dialects import Dialect, Level
from .http import ApiError, ServerFault

NAME = re.compile(r"[a-zA-Z0-9_@-]+")
_CLOUD_NAME = re.compile(r"[^\x00-\x20./\x7f]+")
MAX_NAME = 255
MAX_PROPERTY = 255
MAX_COMMENT = 65_535
MAX_NAMESPACE_COMMENT = 255
"""On the open-source server."""
MAX_COLUMN_NAME = 255
MAX_LOCATION = 2_048
MAX_STORAGE_LOCATION = 255
"""Of a catalog or schema: with what the server adds to its storage root."""
FORMATS = ("DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
MANAGED_PREFIX = "__unitystorage"
"""The directory below a storage root for what the server manages."""
_OBJECT_STORES = {"s3", "gs", "abfs", "abfss"}
# Java's URI takes neither these nor a percent sign that begins no escape. A plain path may have the
# latter, which the server encodes.
_NOT_IN_URI = re.compile(r'[\x00-\x20"<>[\\\]^`{|}\x7f]')
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


# -- names, properties and columns -----------------------------------------------------------------


def require_name(name: object, dialect: Dialect) -> str:
    """Return a name as the server keeps it. Raises ApiError where it is none."""
    if not isinstance(name, str) or not name:
        raise ApiError(dialect.invalid, "Name cannot be empty")
    if len(name) > MAX_NAME:
        raise ApiError(dialect.invalid, f"Name cannot be longer than {MAX_NAME} characters")
    pattern = _CLOUD_NAME if dialect.databricks else NAME
    if not pattern.fullmatch(name):
        text = "Name cannot contain a period, space, forward-slash, or control characters"
        raise ApiError(dialect.invalid, text)
    return name.lower() if dialect.databricks else name


def require_properties(properties: object) -> dict[str, str]:
    """Return properties that fit into the server's columns.

    Raises:
        ServerFault: a null or more than 255 characters; the database refuses them.
    """
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise ValueError("failed to parse a JSON document: properties is not a map")
    for key, value in properties.items():
        if value is None:
            raise ServerFault("NULL not allowed for column PROPERTY_VALUE")
        if max(utf16_length(key), utf16_length(str(value))) > MAX_PROPERTY:
            raise ServerFault(f"Value too long for column, {MAX_PROPERTY} characters")
    return {key: str(value) for key, value in properties.items()}


def utf16_length(text: str) -> int:
    """Return how long the server's database finds a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def max_comment(level: Level, dialect: Dialect) -> int:
    """Return how many characters the comment of an object may have."""
    is_short = level is not Level.TABLE and not dialect.databricks
    return MAX_NAMESPACE_COMMENT if is_short else MAX_COMMENT


def require_length(text: str | None, limit: int) -> str | None:
    """Return the text. Raises ServerFault where the server's column does not hold it."""
    if text is not None and utf16_length(text) > limit:
        raise ServerFault(f"Value too long for column, {limit} characters")
    return text


def require_columns(body: Mapping[str, Any], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the columns of a table to make.

    Raises:
        ApiError: a column's ``type_json`` is not what the release wants.
        ServerFault: a null where the server expects none.
    """
    columns = body.get("columns", [])
    if not isinstance(columns, Sequence) or isinstance(columns, str):
        raise ServerFault('Cannot invoke "java.util.List.stream()" because columns is null')
    return [_column(column, dialect) for column in columns]


def _column(column: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    if dialect.whole_type_json:
        _require_struct_field(column, dialect)
    if not isinstance(column.get("type_text"), str) or column.get("type_name") is None:
        raise ServerFault('Cannot invoke "String.toLowerCase()" because type_text is null')
    require_length(column.get("name"), MAX_COLUMN_NAME)
    kept = {key: value for key, value in column.items() if value is not None}
    return {"nullable": True, **kept, "type_text": column["type_text"].lower()}


def _require_struct_field(column: Mapping[str, Any], dialect: Dialect) -> None:
    name = column.get("name")

    def refused(why: str) -> ApiError:
        return ApiError(dialect.invalid, f"Invalid type_json for column {name}: {why}")

    try:
        field = json.loads(column.get("type_json") or "")
    except ValueError:
        raise refused(f"Failed to parse typeJson: {column.get('type_json')}") from None
    if not isinstance(field, dict):
        raise refused(f"Failed to parse typeJson: {column.get('type_json')}")
    for part in ("name", "type", "nullable", "metadata"):
        if field.get(part) is None:
            raise ApiError(dialect.invalid, f"type_json.{part} is required.")
    if field["name"] != name:
        raise refused(f"field name {field['name']} does not match column name {name}")
    if column.get("nullable") is not None and field["nullable"] != column["nullable"]:
        raise refused(f"field nullable {field['nullable']} does not match the column's")


def require_format(body: Mapping[str, Any], dialect: Dialect) -> str | None:
    """Return the format of a table to make. Raises ApiError where there is no such format."""
    given = body.get("data_source_format")
    if given is not None and given not in FORMATS:
        raise ApiError(dialect.unparsable, f"Unexpected value '{given}'")
    return given


# -- locations -------------------------------------------------------------------------------------


def normalized(location: str, dialect: Dialect) -> str:
    """Return a location as the server keeps it.

    Raises:
        ApiError: the server refuses it.
    """
    if "/" not in location:
        raise ApiError(dialect.invalid, f"Ambiguous path: {location}")
    found = _SCHEME.match(location)
    if _NOT_IN_URI.search(location) or (found and _BAD_ESCAPE.search(location)):
        raise ApiError(dialect.invalid, f"Unsupported path: {location}")
    if found is None:
        return "file://" + quote(_tidy(posixpath.abspath(location)), safe="/~!$&'()*+,;=:@")
    scheme, rest = found[1], location[found.end() :]
    if scheme == "file":
        return "file://" + _tidy(rest)
    if scheme in _OBJECT_STORES:
        authority, slash, path = rest.removeprefix("//").partition("/")
        return f"{scheme}://{authority}" + (_tidy(slash + path) if path.strip("/") else "")
    raise ApiError(dialect.invalid, f"Unsupported URI scheme: {scheme}")


def require_unmanaged(location: str, dialect: Dialect) -> None:
    """Raise ApiError where the server keeps a place for managed data."""
    if dialect.managed_storage and MANAGED_PREFIX in location:
        text = f"Input path '{location}' contains managed storage prefix {MANAGED_PREFIX}."
        raise ApiError(dialect.invalid, text)


def _tidy(path: str) -> str:
    """Return an absolute path without doubled slashes, dots, and a slash at its end."""
    return posixpath.normpath("/" + path.lstrip("/"))


def cloud_location(location: str) -> str:
    """Return a location as Databricks keeps it; files of this machine pass too, for tests.

    Raises:
        ValueError: Databricks refuses it.
    """
    scheme, _, rest = location.partition("://")
    if not rest or scheme not in _OBJECT_STORES | {"file"}:
        raise ValueError(f"Missing cloud file system scheme: {location}")
    return location.rstrip("/")


def overlap(one: str, other: str) -> bool:
    """Return whether two places are the same, or one lies in the other."""
    first, second = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return first.startswith(second) or second.startswith(first)


def bucket_of(location: str) -> str:
    """Return ``s3://bucket`` of a place in an object store, and the scheme alone of others."""
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if scheme in _OBJECT_STORES else scheme
