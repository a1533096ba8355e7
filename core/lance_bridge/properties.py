"""Properties of entries: those that mark Lance tables, reserved ones, and visible ones."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from .catalog import IMPLEMENTATION, LANCE, MANAGED_BY, RESERVED_PREFIX, STORAGE, TABLE_TYPE
from .errors import invalid, require_text

ENTRY_ID = RESERVED_PREFIX + "id"
"""Set in each new entry, so that its creator recognises it after a lost reply."""

_MANAGERS = {STORAGE: STORAGE, "catalog": STORAGE, IMPLEMENTATION: IMPLEMENTATION}
_FORMAT_PROPERTIES = {TABLE_TYPE: (LANCE,), MANAGED_BY: tuple(_MANAGERS)}

_OWN_KEYS = {
    "external", "external.table.purge", "auto.purge", "translated_to_external", "storage_handler",
    "metadata_location", "previous_metadata_location",
}  # fmt: skip
_OWN_PREFIX = "spark.sql.sources."
"""With these, metastores and engines treat a table's files as theirs to delete, or the table as one
of another format."""


def is_reserved(key: str) -> bool:
    """Return whether a key, in any letter case, is reserved for core."""
    return key.lower().startswith(RESERVED_PREFIX)


def check_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's properties of a table, without format properties that equal ours.

    Raises:
        InvalidInputError: (13) an empty or reserved key, or a format property with another value.
    """
    kept = {}
    for key, value in (properties or {}).items():
        require_text("Property key", key)
        require_text(f"Property '{key[:60]}'", value)
        if not key or is_reserved(key):
            raise invalid(f"Property key {key[:60]!r} is empty or reserved ('{RESERVED_PREFIX}…')")
        if key.strip().lower() in _OWN_KEYS or key.strip().lower().startswith(_OWN_PREFIX):
            raise invalid(f"Property {key[:60]!r} is the metastore's own: leave it out")
        if key.lower() in _FORMAT_PROPERTIES:
            if value.lower() not in _FORMAT_PROPERTIES[key.lower()]:
                raise invalid(f"Property '{key}' marks Lance tables and cannot be {value[:60]!r}")
        else:
            kept[key] = value
    return kept


def manager_in(properties: Mapping[str, str] | None) -> str | None:
    """Return who manages a table according to a caller's properties, or None.

    Raises:
        InvalidInputError: (13) as `check_properties` does.
    """
    check_properties(properties)
    given = {key.lower(): value.lower() for key, value in (properties or {}).items()}
    return _MANAGERS[given[MANAGED_BY]] if MANAGED_BY in given else None


def for_new_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table's entry: the caller's and the format properties."""
    own = {TABLE_TYPE: LANCE, MANAGED_BY: STORAGE, ENTRY_ID: uuid.uuid4().hex}
    return {**properties, **own}


def replace_visible(old: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return an entry's properties with the visible ones replaced, and the rest kept."""
    kept = {k: v for k, v in old.items() if k in _FORMAT_PROPERTIES or is_reserved(k)}
    return {**properties, **kept}


def visible(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a caller sees: neither format properties nor reserved ones."""
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _FORMAT_PROPERTIES and not is_reserved(key)
    }
