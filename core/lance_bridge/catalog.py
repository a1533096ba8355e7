"""The port: what an adapter does for core, in the catalog's own terms.

An adapter maps names, records and errors, and nothing else. Modes, page tokens, defaults, deletion
of data, Arrow and datasets are core's. A catalog that cannot do something says so in
:class:`Capabilities`, and core answers Unsupported (0) with the reason given there.

Every listing is sorted by name, as Python compares strings, and has each name once. Core cuts pages
out of listings by that order; it does not sort them again.

Every path that reaches an adapter has been checked (number of names, allowed characters) and, where
the catalog folds case, folded. Every method may raise ServiceUnavailable (17), PermissionDenied
(15), Unauthenticated (16), Throttling (21) or Internal (18); "not found" only where the catalog
itself said so. A method that changes something raises
:class:`~lance_bridge.errors.OutcomeUnknownError` when its reply was lost, and never repeats it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
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


@dataclass(frozen=True)
class NameRule:
    """Which names a level takes; checked before any call is sent.

    ``pattern`` must match the whole name; ``allowed`` says the same to a person.
    """

    noun: str
    pattern: re.Pattern[str]
    allowed: str
    max_length: int


@dataclass(frozen=True)
class NamespaceWords:
    """What a catalog calls properties of a namespace that engines know by plain words."""

    comment: str = "comment"
    location: str = "location"
    owner: str = ""
    """Empty where the owner is no property."""


@dataclass(frozen=True)
class Capabilities:
    """What a catalog is and can do; read by core and by the conformance kit.

    A field that is a string holds the reason why the catalog can not do it, or ``""`` if it can.
    """

    namespace_levels: tuple[NameRule, ...]
    """One rule per namespace level, outermost first; a table sits under the innermost."""
    table_rule: NameRule
    namespace_words: tuple[NamespaceWords, ...] = ()
    """For each level what its properties are called, outermost first; none for plain words."""
    folds_case: bool = False
    """Names are stored in lower case, and looked up in any."""
    atomic_restrict: bool = False
    """The catalog itself refuses to drop a namespace with anything in it."""
    makes_directories: bool = False
    """The catalog makes a new table's directory, and deletes it again, with all that is in it by
    then, where the entry cannot be made. Core keeps it from doing so by making it first."""
    renames_by_copy: bool = False
    """The catalog has no rename: core has the entry copied, and removes the old one."""
    no_namespace_changes: str = ""
    no_outer_namespace_changes: str = ""
    """Why namespaces above the innermost level cannot be created or dropped."""
    no_rename: str = ""
    no_rename_across: str = ""
    """Why a table cannot be renamed into another namespace."""
    no_alter: str = ""
    no_managed_tables: str = ""
    """Why the catalog cannot hold a table's latest version: it cannot compare and set an entry."""

    @property
    def levels(self) -> int:
        """Number of names in the identifier of the namespace that holds a table."""
        return len(self.namespace_levels)


@dataclass(frozen=True)
class NamespaceRecord:
    """One namespace as the catalog has it.

    ``path`` is in the catalog's spelling; ``properties`` are the caller's and those that the
    adapter documents; ``location`` is its own place in storage, if it has one.
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

    ``properties`` holds the entry's parameters, Lance's marks among them, without what the catalog
    adds for its own use. ``location`` is the catalog's spelling. ``kind`` is what the catalog calls
    the entry (``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …), for messages. ``is_external`` says whether
    the entry has all marks that keep the catalog from its files. ``revision`` is the catalog's
    token for an optimistic lock, where it has one. ``identity`` tells an entry from a later one of
    the same name: the catalog's own id of it, or the time when it was made. A record without one
    is of a table that is not there yet. ``columns`` are known only where data creates the table.
    ``link_to`` names the entry that this one is only a link to, for people: the files are that
    one's. ``link_path`` is where that entry is, if it is in this catalog.
    """

    path: Path
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    revision: str | None = None
    identity: str | None = None
    columns: tuple[Column, ...] = ()
    is_external: bool = True
    link_to: str = ""
    link_path: Path | None = None

    @property
    def is_lance(self) -> bool:
        """True where the entry carries ``table_type=lance`` in any letter case."""
        return self.properties.get(TABLE_TYPE, "").lower() == LANCE

    def with_properties(self, properties: Mapping[str, str]) -> TableRecord:
        """Return the same entry with these parameters in place of all it had."""
        return replace(self, properties=dict(properties))


def select_tables(
    records: Iterable[TableRecord], *, lance_only: bool = False, after: str | None = None
) -> list[TableRecord]:
    """Return what `Catalog.scan_tables` promises, of all entries of a namespace in any order."""
    selected = {
        record.path: record
        for record in records
        if (record.is_lance or not lance_only) and (after is None or record.path[-1] > after)
    }
    return [selected[path] for path in sorted(selected)]


class Catalog(ABC):
    """What an adapter implements. Safe to call from many threads at once."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do. Makes no call."""

    @abstractmethod
    def describe_connection(self) -> str:
        """Return what this is connected to, for people and for equality; never a secret."""

    def describe_server(self) -> Mapping[str, str]:
        """Return what the server says of itself, such as its version, by name; for people."""
        return {}

    # -- namespaces ------------------------------------------------------------------------------

    @abstractmethod
    def list_namespaces(self, parent: Path) -> Iterable[str]:
        """Return the names of all children of ``parent`` (``()`` is the root), sorted.

        Raises NamespaceNotFound (1).
        """

    @abstractmethod
    def load_namespace(self, path: Path) -> NamespaceRecord:
        """Raises NamespaceNotFound (1)."""

    def place_for_tables(self, namespace: NamespaceRecord) -> str | None:
        """Return where the catalog would put a table of a namespace; None for no such place."""
        return namespace.location

    @abstractmethod
    def create_namespace(self, record: NamespaceRecord) -> None:
        """Raises NamespaceAlreadyExists (2), NamespaceNotFound (1) of the parent, InvalidInput."""

    @abstractmethod
    def alter_namespace(self, record: NamespaceRecord) -> None:
        """Replace the properties of an existing namespace. Raises NamespaceNotFound (1)."""

    @abstractmethod
    def drop_namespace(self, path: Path) -> None:
        """Remove an empty namespace's entry, and never a file.

        Raises NamespaceNotFound (1), and NamespaceNotEmpty (3) where the catalog checks.
        """

    def require_droppable(self, path: Path) -> None:  # noqa: B027 - most catalogs keep nothing
        """Raise what would keep a namespace from being dropped once it holds no tables.

        Asked before Cascade drops the first of them. Raises InvalidInput (13) where the catalog
        keeps this namespace, NamespaceNotEmpty (3) where it holds what core does not know of.
        """

    # -- tables ----------------------------------------------------------------------------------

    @abstractmethod
    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        """Return the entries of a namespace, sorted by name.

        A catalog that reads its entries by name may do so in batches, as they are iterated over:
        core stops at the end of a page. One that reads them in pages of its own, in whatever order,
        reads them all, and returns `select_tables` of them.

        Args:
            lance_only: Return only entries with `TableRecord.is_lance`.
            after: Return only entries whose names sort after this one.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating. An entry that vanishes
                meanwhile, or that cannot be read, is left out, and is no error.
        """

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        """Return the names of a namespace's entries, sorted.

        Overridden where names take fewer or smaller calls than entries do.

        Args:
            lance_only: Return only the names of entries with `TableRecord.is_lance`.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating.
        """
        records = self.scan_tables(namespace, lance_only=lance_only)
        return [record.path[-1] for record in records]

    @abstractmethod
    def load_table(self, path: Path) -> TableRecord:
        """Raises TableNotFound (4), or NamespaceNotFound (1) where the catalog tells them apart."""

    @abstractmethod
    def create_table(self, record: TableRecord) -> TableRecord:
        """Add an external entry; the catalog must never own its files.

        Returns the record, with the `identity` that the catalog gave it if it says so at once.
        Raises TableAlreadyExists (5), NamespaceNotFound (1), InvalidInput (13).
        """

    @abstractmethod
    def alter_table(self, record: TableRecord) -> None:
        """Replace the location and properties of an entry, as loaded and then changed.

        Where the entry has a `GUARD`, before or after the change, this compares and sets for
        certain, by that guard: of two callers that loaded the same state, one succeeds.

        Raises TableNotFound (4), ConcurrentModification (14) where the entry is not of the record's
        revision any more and the catalog can tell, and InvalidTableState (19) where the guard does
        not hold any more.
        """

    def load_marks(self, path: Path) -> Mapping[str, str]:  # noqa: ARG002 - most have none
        """Return what an entry holds, beside its properties, that says whose its files are.

        In the catalog's own words, for `alter_marks`. Raises TableNotFound (4).
        """
        return {}

    def alter_marks(self, record: TableRecord, marks: Mapping[str, str]) -> None:  # noqa: ARG002
        """Do as `alter_table`, but with the marks of `load_marks` in place of an external entry's.

        For undoing what made an entry external; nothing else may give files to the catalog.
        """
        self.alter_table(record)

    def commit_guard(self, record: TableRecord) -> str:
        """Find out, by trying, how the catalog can compare and set this entry.

        Core keeps the answer in the entry under `GUARD`. Not called where `no_managed_tables`.
        Changes nothing. Raises UnsupportedOperation (0) with the reason where it cannot.
        """
        raise NotImplementedError

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        """Move the entry; its files stay where they are. Not called where `renames_by_copy`.

        An entry with a `GUARD` is compared and set as in `alter_table`.

        Raises TableNotFound (4), TableAlreadyExists (5), NamespaceNotFound (1) of the target.
        """
        raise NotImplementedError

    def copy_table(self, record: TableRecord, copy: TableRecord) -> None:
        """Make the same entry, with all that the catalog keeps in it, under the copy's path.

        Only path and properties of the two records differ. Called where `renames_by_copy`.
        Raises TableNotFound (4), TableAlreadyExists (5) and NamespaceNotFound (1) of the copy,
        ConcurrentModification (14) where the entry is not of the record's revision any more.
        """
        raise NotImplementedError

    @abstractmethod
    def drop_table(self, record: TableRecord) -> None:
        """Remove the entry, and never a file. Raises TableNotFound (4)."""

    # -- storage and life ------------------------------------------------------------------------

    def vend_credentials(
        self,
        record: TableRecord,  # noqa: ARG002 - most catalogs vend none
        *,
        write: bool,  # noqa: ARG002 - the same
    ) -> Mapping[str, str] | None:
        """Return storage options for the table's location, or None where the catalog vends none.

        Core asks for locations that are not local only, keeps the answer until shortly before it
        expires, and asks once for all its callers. The record may be one without `identity`: a
        table that is to be made at its location.
        Temporary options carry ``expires_at_millis`` (milliseconds since 1970, as a string).
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. The catalog may be used again: it reconnects."""
