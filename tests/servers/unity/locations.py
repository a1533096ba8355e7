"""What the open-source server makes of a table's location."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import quote

from .dialects import Dialect
from .messages import ApiError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
MANAGED_PREFIX = "__unitystorage"
"""The directory below a storage root for what the server manages."""
_OBJECT_STORES = {"s3", "gs", "abfs", "abfss"}
# Java's URI takes neither these nor a percent sign that begins no escape. A plain path may have the
# latter, which the server encodes.
_NOT_IN_URI = re.compile(r'[\x00-\x20"<>[\\\]^`{|}\x7f]')
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


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
