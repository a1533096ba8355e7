"""The records of the port: namespaces, tables and columns as a catalog has them.

Also core's rules for their properties: which ones mark Lance tables, which are reserved, and which
callers see.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from .errors import invalid, require_text
from .maintenance_policy import is_maintenance, parse, parse_duration

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

MARK = RESERVED_PREFIX + "mark"
"""The id of the file in a managed table's storage that says which entry manages it."""

LEASE = RESERVED_PREFIX + "lease"
"""Which worker maintains the table, and since when."""

MANAGER = RESERVED_PREFIX + "manager"
"""Which entry manages the versions, for people, in a second entry that only reads them."""

ENTRY_ID = RESERVED_PREFIX + "id"
"""Set in each new entry, so that its creator recognises it after a lost reply."""

PUBLISH_COLUMNS = "publish.columns"
"""Property of a table, or of a namespace for its new tables: whether each commit writes columns,
rows and size into the entry."""
PUBLISHED = RESERVED_PREFIX + "published"
"""The version whose columns an entry has, if any."""

PROTECTED = "protected"
"""Property of a table, or of a namespace for what is in it: whether it cannot be removed."""

DROPPED = RESERVED_PREFIX + "dropped"
"""Of a dropped table that can be taken back: the name that it had, when it was dropped, and until
when it is kept."""
DROPPED_TYPE = "lance-dropped"
"""Its `TABLE_TYPE`."""
RETENTION = "drop.retention"
"""Property of a namespace: how long dropped tables are kept."""

FOREIGN_COMMITS = "managed.foreign_commits"
"""Property of a managed table: how versions that bypassed the catalog are handled."""

FORCE = "managed.force"
"""Property of a request that adds an entry for a table whose versions another entry manages. It is
not stored."""

UNREADABLE = "unreadable"
"""`TableRecord.entry_type` of an entry that exists but cannot be read."""


_FORMAT_KEYS = (TABLE_TYPE, "spark.sql.sources.provider", "classification")
"""Properties with the format of a table, as Iceberg, Spark and crawlers of Glue set them."""
_FORMATS = (
    "Iceberg", "Delta", "Hudi", "Paimon", "Kudu", "HBase", "Parquet", "ORC", "Avro", "CSV", "JSON",
    "Text",
)  # fmt: skip
"""Formats, by a part of their names and of the classes of their input formats: first those of
tables, then those of files."""


class ForeignCommits(str, Enum):
    """The values of `FOREIGN_COMMITS`."""

    HIDE = "hide"
    """They are not shown, and are quarantined before the next commit."""
    ADOPT = "adopt"
    """A version that is based on the latest becomes the next one."""
    REFUSE = "refuse"
    """They are not shown, and no commit is possible until they are adopted or discarded."""

    @classmethod
    def parse(cls, value: str) -> ForeignCommits:
        """Parse a value in any letter case. Raises InvalidInput (13)."""
        try:
            return cls(value.lower())
        except ValueError:
            allowed = ", ".join(each.value for each in cls)
            raise invalid(
                f"Property '{FOREIGN_COMMITS}' must be one of {allowed}, not {value[:60]!r}"
            ) from None


@dataclass(frozen=True)
class NamespaceRecord:
    """One namespace as the catalog has it."""

    path: Path
    """In the catalog's spelling."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those that core has set, and those that the adapter documents."""
    location: str | None = None
    """Its location in storage, if the catalog gives it one; None in a record that core makes."""
    link_to: str = ""
    """The namespace that this one is only a link to, for people: dropping it drops nothing else."""


@dataclass(frozen=True)
class Column:
    """One column of a table, for catalogs that show them."""

    name: str
    """At the top level of the table."""
    type: str | Mapping[str, Any]
    """Spark's JSON form of a data type, decoded: ``"integer"``, or ``{"type": "array",
    "elementType": "float", "containsNull": True}``."""
    nullable: bool = True
    """Whether it may hold nulls."""


@dataclass(frozen=True)
class CatalogColumn:
    """A column of an entry as the catalog stores it, regardless of the table's files."""

    name: str
    """As the catalog spells it."""
    type: str
    """In the catalog's own syntax: ``array<int>``."""
    nullable: bool = True
    """Whether it may hold nulls; true if the catalog does not say."""
    comment: str = ""
    """Empty if it has none."""
    is_partition: bool = False
    """Whether the entry is partitioned by it."""


@dataclass(frozen=True)
class Published:
    """What an entry says of its table's data, for tools that read only entries."""

    columns: tuple[Column, ...] = ()
    """All columns of the table, in its order; empty removes them from the entry."""
    rows: int | None = None
    """None removes it from the entry."""
    size: int | None = None
    """Of the data files, in bytes; None removes it from the entry."""


@dataclass(frozen=True)
class TableRecord:
    """One table entry as the catalog has it.

    `Catalog.load_table` and `Catalog.scan_tables` return equal records, except for links.
    """

    path: Path
    """In the catalog's spelling."""
    location: str | None = None
    """In the catalog's spelling."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """All parameters of the entry, without what the catalog adds for its own use."""
    entry_type: str = ""
    """What the catalog calls the entry (``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …), for messages."""
    revision: str | None = None
    """The catalog's token for optimistic locking: it differs after each change of the entry.

    None if the catalog has none for this entry; a table whose latest version the catalog holds
    must have one."""
    identity: str | None = None
    """Distinguishes an entry from a later one of the same name: an id from the catalog, or the
    creation time. Kept by changes and renames. None for a table that is to be created."""
    columns: tuple[Column, ...] = ()
    """Set only in the record of a table that is to be created, if its data is known."""
    is_external: bool = True
    """Whether the entry has everything that keeps the catalog from moving or deleting its files."""
    is_partitioned: bool = False
    """Whether it may have partitions with locations of their own: `Catalog.partition_locations`."""
    link_to: str = ""
    """The entry that this one is only a link to, for people: the files are that one's."""
    link_path: Path | None = None
    """Where that entry is, if it is in this catalog."""
    other_locations: tuple[str, ...] = ()
    """Where else its data may be: see `locations.other_locations`."""
    problems: tuple[str, ...] = ()
    """What other tools may refuse in the entry of a Lance table, such as a missing field, for
    people: `Catalog.alter_table` corrects it."""
    published: Published | None = None
    """Set only in a record that is passed to `Catalog.alter_table`, to replace what the entry says
    of the data; None keeps it. Only for catalogs with `Capabilities.publishes_columns`."""
    data_format: str = field(default="", compare=False)
    """The format of the files in the catalog's own words, for people: a name such as ``DELTA``, or
    the Java class of an input format."""
    owner: str = field(default="", compare=False)
    """The user that the catalog has as the owner, for people."""

    @classmethod
    def unreadable(cls, path: Path) -> TableRecord:
        """Return the record of an entry that cannot be read: its location may be anywhere."""
        return cls(path, entry_type=UNREADABLE, is_external=False)

    @property
    def all_locations(self) -> tuple[str, ...]:
        """Everywhere its data may be, in the catalog's spelling."""
        return (*([self.location] if self.location else []), *self.other_locations)

    @property
    def is_readable(self) -> bool:
        """False for the record of an entry that cannot be read."""
        return self.entry_type != UNREADABLE

    @property
    def is_lance(self) -> bool:
        """True if the entry has ``table_type=lance`` in any letter case."""
        return self.properties.get(TABLE_TYPE, "").lower() == LANCE

    @property
    def is_dropped(self) -> bool:
        """True if it is a dropped Lance table that can be taken back."""
        return DROPPED in self.properties and not self.is_lance

    @property
    def format(self) -> str:
        """The format for people, such as ``Lance``, ``Iceberg`` or ``view``; empty if unknown."""
        if self.is_lance:
            return "Lance"
        if self.is_dropped:
            return "dropped Lance table"
        if "VIEW" in self.entry_type.upper():
            return "materialized view" if "MATERIALIZED" in self.entry_type.upper() else "view"
        for text in (*map(self.properties.get, _FORMAT_KEYS), self.data_format):
            known = next((each for each in _FORMATS if each.lower() in (text or "").lower()), "")
            if known:
                return known
        return ""

    @property
    def is_managed(self) -> bool:
        """True if a catalog holds the versions: this implementation's, or another's."""
        return self.properties.get(MANAGED_BY, STORAGE).lower() == IMPLEMENTATION

    def with_properties(self, properties: Mapping[str, str]) -> TableRecord:
        """Return the same entry with its parameters replaced."""
        return replace(self, properties=dict(properties))

    def with_published(self, published: Published, properties: Mapping[str, str]) -> TableRecord:
        """Return the same entry with other data; ``properties`` replace `PUBLISHED`."""
        kept = {key: value for key, value in self.properties.items() if key != PUBLISHED}
        return replace(self, published=published, properties={**kept, **properties})


class TableCredentials(dict[str, str]):
    """Storage options that a catalog vends for one table, and that are valid for no other.

    Credentials of an account, a user or a session are not.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self)}>"


def select_tables(
    records: Iterable[TableRecord], *, lance_only: bool = False, after: str | None = None
) -> list[TableRecord]:
    """Return a namespace's entries as `Catalog.scan_tables` must, from entries in any order.

    An entry that the pages of a listing repeat is returned once. Several entries that the server
    has under one name are all returned: none of their locations is free.
    """
    selected = {
        (record.path, record.identity or ""): record
        for record in records
        if (record.is_lance or not lance_only) and (after is None or record.path[-1] > after)
    }
    return [selected[key] for key in sorted(selected)]


# -- properties ------------------------------------------------------------------------------------

_MANAGERS = {STORAGE: STORAGE, "catalog": STORAGE, IMPLEMENTATION: IMPLEMENTATION}
FLAGS = (PUBLISH_COLUMNS, PROTECTED)
"""Properties of tables and namespaces that are true or false."""
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


def check_key(key: str) -> None:
    """Raise InvalidInput (13) if a property's key is empty or reserved."""
    if not key or is_reserved(key):
        raise invalid(f"Property key {key[:60]!r} is empty or reserved ('{RESERVED_PREFIX}…')")


def check_property(key: str, value: str) -> None:
    """Check a property of a table or a namespace.

    Raises:
        InvalidInputError: (13) it is not text, its key is empty or reserved, or it is one of
            maintenance and not valid.
    """
    require_text("Property key", key)
    require_text(f"Property '{key[:60]}'", value)
    check_key(key)
    if is_maintenance(key):
        parse(key, value)


def check_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return the caller's properties of a table, without format properties that equal ours.

    Raises:
        InvalidInputError: (13) an empty or reserved key, or a format property, `FOREIGN_COMMITS`,
            `PUBLISH_COLUMNS` or `PROTECTED` with another value.
    """
    kept = {}
    for key, value in (properties or {}).items():
        check_property(key, value)
        if key.strip().lower() in _OWN_KEYS or key.strip().lower().startswith(_OWN_PREFIX):
            raise invalid(f"Property {key[:60]!r} is reserved by the metastore; remove it")
        if key.lower() in _FORMAT_PROPERTIES:
            if value.lower() not in _FORMAT_PROPERTIES[key.lower()]:
                raise invalid(f"Property '{key}' marks Lance tables and cannot be {value[:60]!r}")
        elif key.lower() == FOREIGN_COMMITS:
            kept[FOREIGN_COMMITS] = ForeignCommits.parse(value).value
        elif key.lower() in FLAGS:
            kept[key.lower()] = parse_flag(key.lower(), value)
        elif is_maintenance(key):
            kept[key.lower()] = value
        else:
            kept[key] = value
    return kept


def with_known_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties of a namespace with the keys that core reads in lower case."""
    known = (FOREIGN_COMMITS, MANAGED_BY, RETENTION, *FLAGS)
    return {
        key.lower() if key.lower() in known or is_maintenance(key) else key: value
        for key, value in properties.items()
    }


def parse_flag(key: str, value: str) -> str:
    """Return the value of one of `FLAGS` in lower case. Raises InvalidInput (13)."""
    if value.lower() not in ("true", "false"):
        raise invalid(f"Property '{key}' must be true or false, not {value[:60]!r}")
    return value.lower()


def parse_retention(value: str) -> timedelta:
    """Return how long `RETENTION` says. Raises InvalidInput (13)."""
    found = timedelta(0) if value == "0" else parse_duration(value)
    if found is None:
        wanted = "a time such as 12h or 7d, or 0"
        raise invalid(f"Property '{RETENTION}' must be {wanted}, not {value[:60]!r}")
    return found


def pop_force(properties: Mapping[str, str] | None) -> tuple[dict[str, str] | None, bool]:
    """Return a request's properties without `FORCE`, and whether it is true.

    Raises:
        InvalidInputError: (13) it is neither true nor false.
    """
    given = None if properties is None else dict(properties)
    value = (given or {}).pop(FORCE, "false")
    return given, parse_flag(FORCE, str(value)) == "true"


def manager_in(properties: Mapping[str, str] | None) -> str | None:
    """Return who manages a table according to a caller's properties, or None.

    Raises:
        InvalidInputError: (13) as `check_properties` does.
    """
    check_properties(properties)
    given = {key.lower(): value.lower() for key, value in (properties or {}).items()}
    return _MANAGERS[given[MANAGED_BY]] if MANAGED_BY in given else None


def properties_of_new_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table's entry: the caller's and the format properties.

    With `MANAGER`, another entry manages the versions.
    """
    manager = IMPLEMENTATION if MANAGER in properties else STORAGE
    own = {TABLE_TYPE: LANCE, MANAGED_BY: manager, ENTRY_ID: uuid.uuid4().hex}
    return {**properties, **own}


def replace_visible(old: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return an entry's properties with the visible ones replaced, and the rest kept.

    `FOREIGN_COMMITS` and `FLAGS` are kept, too, unless they are replaced: redefining a table
    neither removes its protection nor hides its columns.
    """
    kept = {k: v for k, v in old.items() if k in _FORMAT_PROPERTIES or is_reserved(k)}
    policy = {k: v for k, v in old.items() if k in (FOREIGN_COMMITS, *FLAGS)}
    return {**policy, **properties, **kept}


def visible_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that callers see: neither format properties nor reserved ones."""
    return {
        key: value
        for key, value in properties.items()
        if key.lower() not in _FORMAT_PROPERTIES and not is_reserved(key)
    }
