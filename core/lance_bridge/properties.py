"""Properties of entries: Lance's marks, what core keeps for itself, and what callers see."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from .catalog import IMPLEMENTATION, LANCE, MANAGED_BY, RESERVED_PREFIX, STORAGE, TABLE_TYPE
from .errors import invalid, require_text

ENTRY_ID = RESERVED_PREFIX + "id"
"""Given to each new entry, so that its creator recognises it after a lost reply."""

_MANAGERS = {STORAGE: STORAGE, "catalog": STORAGE, IMPLEMENTATION: IMPLEMENTATION}
_MARKS = {TABLE_TYPE: (LANCE,), MANAGED_BY: tuple(_MANAGERS)}

_OWN_KEYS = {
    "external", "external.table.purge", "auto.purge", "translated_to_external", "storage_handler",
    "metadata_location", "previous_metadata_location",
}  # fmt: skip
_OWN_PREFIX = "spark.sql.sources."
"""By these, metastores and engines take a table for one whose files are theirs to delete, or for
one of another format."""


def is_reserved(key: str) -> bool:
    """Return whether core keeps a key for itself, in whatever letter case it is written."""
    return key.lower().startswith(RESERVED_PREFIX)


def checked(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's properties of a table, without marks that say the same as ours.

    Raises:
        InvalidInputError: (13) an empty key, a reserved one, or a mark with another meaning.
    """
    kept = {}
    for key, value in (properties or {}).items():
        require_text("Property key", key)
        require_text(f"Property '{key[:60]}'", value)
        if not key or is_reserved(key):
            raise invalid(f"Property key {key[:60]!r} is empty or reserved ('{RESERVED_PREFIX}…')")
        if key.strip().lower() in _OWN_KEYS or key.strip().lower().startswith(_OWN_PREFIX):
            raise invalid(f"Property {key[:60]!r} is the metastore's own: leave it out")
        if key.lower() in _MARKS:
            if value.lower() not in _MARKS[key.lower()]:
                raise invalid(f"Property '{key}' marks Lance tables and cannot be {value[:60]!r}")
        else:
            kept[key] = value
    return kept


def manager_in(properties: Mapping[str, str] | None) -> str | None:
    """Return who is to manage a table by a caller's properties; None where they don't say.

    Raises:
        InvalidInputError: (13) as `checked` does.
    """
    checked(properties)
    given = {key.lower(): value.lower() for key, value in (properties or {}).items()}
    return _MANAGERS[given[MANAGED_BY]] if MANAGED_BY in given else None


def for_new_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a new table's entry holds: the caller's properties and the marks."""
    marks = {TABLE_TYPE: LANCE, MANAGED_BY: STORAGE, ENTRY_ID: uuid.uuid4().hex}
    return {**properties, **marks}


def replaced(old: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return an entry's properties with the caller's own replaced, and the rest kept."""
    kept = {k: v for k, v in old.items() if k in _MARKS or is_reserved(k)}
    return {**properties, **kept}


def visible(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a caller sees: neither marks nor what core keeps for itself."""
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _MARKS and not is_reserved(key)
    }
