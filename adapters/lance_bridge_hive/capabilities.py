"""Capabilities and limits of a Hive Metastore: names, lengths, and locations of databases.

The lengths are the widths of columns in the metastore's own database schema, which is the same for
all releases. A longer value would cause an internal error or be lost silently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lance_bridge.catalog import Capabilities, NameRule, NamespaceWords, Path
from lance_bridge.errors import invalid

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


# -- limits of entries --------------------------------------------------------------------------

TEXT = 4000
"""Width of the columns for values, descriptions and locations, in UTF-16 units; and of that for
the types of columns in older releases on Oracle."""
OWNER_LENGTH = 128
_SEGMENT_BYTES = 255
"""The maximum length of a name in a path on common file systems."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_TRANSACTIONAL = "transactional"


@dataclass(frozen=True)
class ParameterLimits:
    """Maximum length of a parameter's key and value; None if it depends on the release."""

    key: int
    value: int | None


DATABASE_LIMITS = ParameterLimits(key=180, value=TEXT)
TABLE_LIMITS = ParameterLimits(key=256, value=None)


def check_parameters(
    parameters: Mapping[str, str], limits: ParameterLimits, own: Collection[str]
) -> dict[str, str]:
    """Return the parameters if Hive can store them; ``own`` are the metastore's own keys.

    Raises:
        InvalidInputError: a key or value is too long, or has a meaning in Hive.
    """
    for key, value in parameters.items():
        check_text(f"Property key {key[:60]!r}…", key, limits.key)
        check_text(f"The value of property {key[:60]!r}", value, limits.value)
        if key in own:
            raise invalid(f"Property '{key}' is reserved by the metastore; remove it")
        if key.lower() == _TRANSACTIONAL and value.strip().lower() != "false":
            raise invalid(f"Property '{key}' is for tables in Hive's own format: leave it out")
    return dict(parameters)


def check_text(what: str, text: str | None, limit: int | None) -> None:
    """Raise InvalidInputError if a text is longer than its column."""
    length = len((text or "").encode("utf-16-le", "surrogatepass")) // 2
    if limit is not None and length > limit:
        raise invalid(f"{what} has {length} characters; Hive allows {limit}")


def check_namespace_location(key: str, location: str) -> None:
    """Check a caller's location for a database or catalog, on any file system.

    Raises:
        InvalidInputError: it is empty, relative, too long, or holds ``..`` or control
            characters.
    """
    label = f"Property {key} {location[:120]!r}"
    check_text(f"Property {key}", location, TEXT)
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
    check_segments(label, location)


def check_segments(what: str, location: str | None) -> None:
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
