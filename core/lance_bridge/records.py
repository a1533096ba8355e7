"""The records of the port: namespaces, tables and columns as a catalog has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Path = tuple[str, ...]
"""Names from the outermost level to the object, without the root: ``("db", "table")``."""

TABLE_TYPE = "table_type"
LANCE = "lance"
MANAGED_BY = "managed_by"
STORAGE = "storage"
IMPLEMENTATION = "impl"
RESERVED_PREFIX = "lance_bridge."
"""Properties that core keeps for itself; callers neither set nor see them."""
GUARD = RESERVED_PREFIX + "guard"
"""How the catalog compares and sets an entry that holds its table's latest version."""
LATEST = RESERVED_PREFIX + "latest"
"""The latest version of a table that the catalog manages."""

UNREADABLE = "unreadable"
"""`TableRecord.kind` of an entry that holds a name, and cannot be read."""


@dataclass(frozen=True)
class NamespaceRecord:
    """One namespace as the catalog has it.

    ``path`` is in the catalog's spelling; ``properties`` are those that core handed over and those
    that the adapter documents; ``location`` is its location in storage, if it has one.
    ``link_to`` names the namespace that this one is only a link to, for people: dropping it drops
    nothing else.
    """

    path: Path
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    link_to: str = ""


@dataclass(frozen=True)
class Column:
    """One column of a table, for catalogs that show them.

    ``type`` is Spark's JSON form of a data type, decoded: ``"integer"``, or ``{"type": "array",
    "elementType": "float", "containsNull": True}``.
    """

    name: str
    type: str | Mapping[str, Any]
    nullable: bool = True


@dataclass(frozen=True)
class TableRecord:
    """One table entry as the catalog has it.

    Equal from `Catalog.load_table` and from `Catalog.scan_tables`, links apart.
    """

    path: Path
    """In the catalog's spelling."""
    location: str | None = None
    """In the catalog's spelling."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """All parameters of the entry, without what the catalog adds for its own use."""
    kind: str = ""
    """What the catalog calls the entry (``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …), for messages."""
    revision: str | None = None
    """The catalog's token for an optimistic lock: another one after each change of the entry.

    None where the catalog has none for this entry; a table whose latest version the catalog holds
    must have one."""
    identity: str | None = None
    """Tells an entry from a later one of the same name: an id that the catalog gave it, or the time
    of its creation. Kept by changes and renames. None for a table that is to be created."""
    columns: tuple[Column, ...] = ()
    """Set only in the record of a table that is to be created, where its data is known."""
    is_external: bool = True
    """Whether the entry has everything that keeps the catalog from moving or deleting its files."""
    is_partitioned: bool = False
    """Whether it may have partitions with locations of their own: `Catalog.partition_locations`."""
    link_to: str = ""
    """The entry that this one is only a link to, for people: the files are that one's."""
    link_path: Path | None = None
    """Where that entry is, if it is in this catalog."""

    @classmethod
    def unreadable(cls, path: Path) -> TableRecord:
        """Return the record of an entry that cannot be read: its location may be anywhere."""
        return cls(path, kind=UNREADABLE, is_external=False)

    @property
    def is_readable(self) -> bool:
        """False for the record of an entry that cannot be read."""
        return self.kind != UNREADABLE

    @property
    def is_lance(self) -> bool:
        """True if the entry has ``table_type=lance`` in any letter case."""
        return self.properties.get(TABLE_TYPE, "").lower() == LANCE

    def with_properties(self, properties: Mapping[str, str]) -> TableRecord:
        """Return the same entry with its parameters replaced."""
        return replace(self, properties=dict(properties))


def select_tables(
    records: Iterable[TableRecord], *, lance_only: bool = False, after: str | None = None
) -> list[TableRecord]:
    """Return what `Catalog.scan_tables` promises, of all entries of a namespace in any order.

    An entry that the pages of a listing repeat is returned once. Several entries that the server
    has under one name are all returned: none of their locations is free.
    """
    selected = {
        (record.path, record.identity or ""): record
        for record in records
        if (record.is_lance or not lance_only) and (after is None or record.path[-1] > after)
    }
    return [selected[key] for key in sorted(selected)]
