"""The port: what an adapter does for core, in the catalog's own terms.

An adapter maps names, records and errors, and nothing else. Modes, page tokens, defaults, deletion
of data, Arrow and datasets are core's. A catalog that cannot do something says so in
`Capabilities`, and core raises UnsupportedOperation (0) with the reason given there. What
`Capabilities` claim must be implemented: a namespace cannot be created over a catalog that lacks a
required method. ``docs/write-a-catalog.md`` is the guide, and ``examples/sqlite-catalog`` a
complete adapter.

Rules for all methods:

- Every path that reaches an adapter has been checked (number of names, allowed characters) and,
  if the catalog folds case, folded.
- Every listing is sorted by name, as Python compares strings, without duplicates; but if a server
  has several entries of one name by mistake, `scan_tables` returns all of them. Core pages through
  listings in that order, and does not sort them again.
- "Not found" is raised only if the catalog itself reports it, never because a server is busy or
  down, permission is refused, or a reply cannot be read.
- Any method may raise ServiceUnavailableError (17), PermissionDeniedError (15),
  UnauthenticatedError (16), ThrottlingError (21) or InternalError (18). Other errors are listed
  with each method. `lance_bridge.errors` makes errors whose messages name the object.
- A method that changes something raises `OutcomeUnknownError` if its reply is lost, and never
  repeats the change: core reads back, and retries it if it did not happen.

Who owns what:

- A location that core passes is a URI without a trailing slash (``file:///data/t.lance``,
  ``s3://bucket/t.lance``). A catalog may store it in another spelling with a scheme: core compares
  locations, not spellings. Adapters return what the catalog has, unchanged, also for entries of
  other tools, and None if it has nothing. Those may keep their data elsewhere: adapters put what
  `locations.other_locations` finds in `TableRecord.other_locations`.
- All properties that core passes are stored unchanged, whatever their key: `TABLE_TYPE`,
  `MANAGED_BY`, and what begins with `RESERVED_PREFIX`, too. Every later read returns them byte for
  byte. A catalog that cannot hold a key or a value raises InvalidInputError (13) before it changes
  anything; it never cuts or drops one.
- Records exclude what an adapter or its catalog keeps in an entry for its own use. Core's changes
  preserve it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from .errors import display, unsupported
from .records import (
    GUARD,
    IMPLEMENTATION,
    LANCE,
    LATEST,
    MANAGED_BY,
    RESERVED_PREFIX,
    STORAGE,
    TABLE_TYPE,
    UNREADABLE,
    CatalogColumn,
    Column,
    NamespaceRecord,
    Path,
    Published,
    TableCredentials,
    TableRecord,
    select_tables,
)

# -- capabilities ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NameRule:
    """The names that a level allows; checked before any call is sent."""

    noun: str
    """What the catalog calls the level, for messages: ``database``."""
    pattern: re.Pattern[str]
    """Must match the whole name."""
    allowed: str
    """The pattern in words, for messages: ``letters, digits and '_'``."""
    max_length: int
    """In characters."""


@dataclass(frozen=True)
class NamespaceWords:
    """A catalog's names for namespace properties that engines know under standard names."""

    comment: str = "comment"
    location: str = "location"
    owner: str = ""
    """Empty if the owner is not a property."""


@dataclass(frozen=True)
class Capabilities:
    """What a catalog is and can do; read by core and by the conformance kit.

    A string field holds the reason why the catalog cannot do something, or ``""`` if it can.
    """

    namespace_levels: tuple[NameRule, ...]
    """One rule per namespace level, outermost first; the innermost level holds tables."""
    table_rule: NameRule
    namespace_words: tuple[NamespaceWords, ...] = ()
    """The property names of each level, outermost first; empty for the standard names."""
    folds_case: bool = False
    """Names are stored in lower case, and found in any case."""
    atomic_restrict: bool = False
    """The catalog itself refuses to drop a namespace that is not empty."""
    compares_drops: bool = False
    """`Catalog.drop_table` compares the entry's identity or revision in the step that removes it,
    and refuses another table that has got the name."""
    makes_directories: bool = False
    """The catalog creates a new table's directory, and deletes it with all its content if it fails
    to create the entry. Core prevents this by creating the directory first."""
    renames_by_copy: bool = False
    """The catalog has no rename: core copies the entry with `Catalog.copy_table`, and removes the
    old one."""
    has_partitions: bool = False
    """An entry that is not Lance's may have partitions with their own locations: the adapter sets
    `TableRecord.is_partitioned`, and implements `Catalog.partition_locations`."""
    hides_tables: bool = False
    """The server may hold tables that no namespace of this catalog lists: the adapter implements
    `Catalog.scan_hidden_tables`."""
    publishes_columns: bool = False
    """An entry has columns that other tools read: `Catalog.alter_table` stores
    `TableRecord.published`."""
    no_namespace_changes: str = ""
    """Why namespaces cannot be created or dropped."""
    no_outer_namespace_changes: str = ""
    """Why namespaces above the innermost level cannot be created or dropped."""
    no_rename: str = ""
    """Why a table cannot be renamed. If empty, the adapter implements `Catalog.rename_table`, or,
    with `renames_by_copy`, `Catalog.copy_table`."""
    no_rename_across: str = ""
    """Why a table cannot be renamed into another namespace."""
    no_alter: str = ""
    """Why an entry's properties and location cannot change."""
    no_managed_tables: str = ""
    """Why the catalog cannot hold a table's latest version: it cannot compare and set an entry.
    If empty, the adapter implements `Catalog.commit_guard`."""

    @property
    def levels(self) -> int:
        """Number of names in the identifier of the namespace that holds a table."""
        return len(self.namespace_levels)


# -- port ------------------------------------------------------------------------------------------


__all__ = [
    "GUARD",
    "IMPLEMENTATION",
    "LANCE",
    "LATEST",
    "MANAGED_BY",
    "PORT_VERSION",
    "RESERVED_PREFIX",
    "STORAGE",
    "TABLE_TYPE",
    "UNREADABLE",
    "Capabilities",
    "Catalog",
    "CatalogColumn",
    "Column",
    "NameRule",
    "NamespaceRecord",
    "NamespaceWords",
    "Path",
    "Published",
    "TableCredentials",
    "TableRecord",
    "select_tables",
]


PORT_VERSION = 1
"""Incremented by a change that can break an adapter: a new required method, a changed signature or
guarantee, or a removed public name."""


class Catalog(ABC):
    """What an adapter implements. Safe to call from many threads at once."""

    port_version: ClassVar[int] = PORT_VERSION
    """The version of the port that an adapter is written for; not checked if it sets none."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do. Makes no call."""

    @abstractmethod
    def describe_connection(self) -> str:
        """Return a description of the connection, for people and for comparison.

        Differs between catalogs, servers and accounts. Contains no secret, and makes no call.
        """

    def describe_login(self) -> str:
        """Return the identity that this connects as, if `vend_credentials` depends on it, else "".

        Only its digest is used, to distinguish connections: it may be a token, but not a password
        that could be guessed. Makes no call.
        """
        return ""

    def describe_server(self) -> Mapping[str, str]:
        """Return facts that the server reports, such as its version, by name; for people."""
        return {}

    # -- namespaces ------------------------------------------------------------------------------

    @abstractmethod
    def list_namespaces(self, parent: Path) -> Iterable[str]:
        """Return the names of all children of ``parent`` (``()`` is the root), sorted.

        Raises NamespaceNotFound (1).
        """

    @abstractmethod
    def load_namespace(self, path: Path) -> NamespaceRecord:
        """Return a namespace of any level, with the properties it was given.

        Raises NamespaceNotFound (1).
        """

    def location_for_tables(self, namespace: NamespaceRecord) -> str | None:
        """Return the location below which the catalog puts tables of a namespace, or None.

        Core puts tables without a given location there, unless the property ``root`` is set.
        """
        return namespace.location

    @abstractmethod
    def create_namespace(self, record: NamespaceRecord) -> None:
        """Add a namespace with the record's properties.

        - The innermost level must keep those that begin with `RESERVED_PREFIX`; outer levels may
          drop them.
        - If several callers create one name, one succeeds.

        Not called if `Capabilities.no_namespace_changes` is set.

        Raises:
            NamespaceAlreadyExistsError: (2)
            NamespaceNotFoundError: (1) the parent does not exist.
            InvalidInputError: (13) the catalog cannot hold a property.
        """

    @abstractmethod
    def alter_namespace(self, record: NamespaceRecord) -> None:
        """Replace the properties of a namespace; those missing from the record are removed.

        Raises:
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the catalog cannot hold a property, or cannot change it.
        """

    @abstractmethod
    def drop_namespace(self, path: Path) -> None:
        """Remove an empty namespace's entry, and never a file.

        Raises:
            NamespaceNotFoundError: (1)
            NamespaceNotEmptyError: (3) it is not empty, and the catalog checks that itself, as
                `Capabilities.atomic_restrict` says. Otherwise core has checked before.
        """

    def require_droppable(self, path: Path) -> None:  # noqa: B027 - most catalogs keep nothing
        """Raise if a namespace could not be dropped even without tables.

        Called before Cascade drops the first table; changes nothing.

        Raises:
            InvalidInputError: (13) the catalog never drops this namespace.
            NamespaceNotEmptyError: (3) it holds what core does not list, such as functions.
        """

    def require_drop_permission(self, path: Path) -> None:  # noqa: B027 - most cannot know
        """Raise PermissionDenied (15) if the caller may not drop a namespace.

        Called before Cascade drops the first table, while the namespace is not empty. Does nothing
        if the catalog reports that only on dropping it.
        """

    # -- tables ----------------------------------------------------------------------------------

    @abstractmethod
    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        """Return the entries of a namespace, sorted by name.

        - Return all of them: an incomplete listing would let core delete another entry's files.
        - An entry that is dropped during the listing is omitted without an error.
        - An entry that exists but cannot be read is returned as `TableRecord.unreadable`, which is
          not Lance's, along with all other entries. While it exists, core deletes no files that may
          belong to it.
        - A catalog that reads its entries by name may read them in batches during iteration,
          because core stops at the end of a page. A catalog whose server returns pages in any order
          reads all of them, and returns `select_tables` of them.

        Args:
            lance_only: Return only entries with `TableRecord.is_lance`.
            after: Return only entries whose names sort after this one.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating.
        """

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        """Return the names of a namespace's entries, sorted; all of them.

        Override it if names take fewer or smaller calls than entries.

        Args:
            lance_only: Return only the names of entries with `TableRecord.is_lance`.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating.
        """
        records = self.scan_tables(namespace, lance_only=lance_only)
        return list(dict.fromkeys(record.path[-1] for record in records))

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        """Return the entries of the server that no namespace of this catalog lists.

        Core deletes no files at their locations. Their paths are only for messages and for
        `partition_locations`. An entry that cannot be read is returned as
        `TableRecord.unreadable`.

        Must be overridden if `Capabilities.hides_tables`.

        Raises:
            PermissionDeniedError: (15) the caller may not read them: nothing is deleted then.
        """
        return ()

    def partition_locations(self, record: TableRecord) -> Iterable[str]:  # noqa: ARG002
        """Return the locations of an entry's partitions.

        Called for entries with `TableRecord.is_partitioned`: before files are deleted, if the
        table's location holds files that are not its own, and before a vendor makes credentials for
        a location that a user of a gateway has chosen. One entry may have a million partitions:
        read them in pages during iteration. Empty if the entry no longer exists.

        Must be overridden if `Capabilities.has_partitions`.

        Raises:
            PermissionDeniedError: (15) at once or while iterating: nothing is deleted then.
        """
        return ()

    @abstractmethod
    def load_table(self, path: Path) -> TableRecord:
        """Return a consistent snapshot of an entry, Lance's or not.

        - `revision` and `properties` belong to the same state.
        - Changes that returned before this call began are visible.

        Raises:
            TableNotFoundError: (4) also if the namespace does not exist and the catalog does not
                distinguish these: core then loads the namespace.
            NamespaceNotFoundError: (1) the namespace does not exist.
        """

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:  # noqa: ARG002 - most have none
        """Return the columns that the catalog stores for an entry, in their order.

        They are shown to people for entries that are not Lance's: a Lance table's schema comes from
        its data. Partition columns come last. Empty if the catalog stores no columns.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
        """
        return ()

    @abstractmethod
    def create_table(self, record: TableRecord) -> TableRecord:
        """Add an external entry with the record's location and properties.

        - The catalog does not own the location's files: it neither moves nor deletes them, whatever
          happens to the entry later.
        - If several callers create one name, one succeeds.

        Returns:
            The record, with its `identity` if the catalog returns it at once.

        Raises:
            TableAlreadyExistsError: (5) any entry has the name.
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the catalog cannot hold the location or a property.
        """

    @abstractmethod
    def alter_table(self, record: TableRecord) -> None:
        """Replace the location and the properties of an entry, as loaded and then changed.

        - Properties that the record lacks are removed; no others are touched.
        - The entry is external afterwards; `alter_ownership` is the exception.
        - With `Capabilities.publishes_columns`, `TableRecord.published` replaces what other tools
          see of the data. Names and types that the catalog cannot hold are shortened.
        - If the record or the entry has a `GUARD`, this is a compare-and-set by that guard: nothing
          changes unless the entry still has the record's `revision`. Of all callers that loaded one
          revision, one succeeds.
        - Without a guard it compares what the catalog can: the revision, else the identity, else
          nothing.

        Not called if `Capabilities.no_alter` is set, except for tables that were managed already.

        Raises:
            TableNotFoundError: (4)
            ConcurrentModificationError: (14) the entry is not the one that was loaded, or is no
                longer of its revision: loading it and retrying the change can succeed.
            InvalidTableStateError: (19) this adapter does not know the guard, or the server no
                longer supports it: retrying cannot succeed.
            UnsupportedOperationError: (0) the catalog cannot change this entry.
            InvalidInputError: (13) the catalog cannot hold the location or a property.
        """

    def load_ownership(self, path: Path) -> Mapping[str, str]:  # noqa: ARG002 - most have none
        """Return what an entry records, beside its properties, about who owns its files.

        In the catalog's own terms, for `alter_ownership`. Override both or neither.

        Raises:
            TableNotFoundError: (4)
        """
        return {}

    def alter_ownership(self, record: TableRecord, ownership: Mapping[str, str]) -> None:  # noqa: ARG002
        """Do the same as `alter_table`, but restore what `load_ownership` returned.

        Undoes a change that made an entry external; nothing else may give files to the catalog.
        """
        self.alter_table(record)

    def commit_guard(self, record: TableRecord) -> str:
        """Return how the catalog can compare and set this entry, determined by a trial.

        - Changes nothing.
        - The result is not empty. Core stores it in the entry under `GUARD`, and from then on
          `alter_table` and `rename_table` use it in every process.

        Must be overridden unless `Capabilities.no_managed_tables` or `Capabilities.no_alter`.

        Raises:
            TableNotFoundError: (4)
            UnsupportedOperationError: (0) it cannot, with the reason.
        """
        raise _lacks_method(self, "commit_guard", record)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:  # noqa: ARG002
        """Rename an entry in one step.

        - Location, properties and `identity` stay; the files are not touched.
        - An entry with a `GUARD` is compared with the record's `revision`, as in `alter_table`.
          Without one, the entry that has the name is renamed, unless the catalog can detect that it
          is another one.

        Must be overridden unless `Capabilities.no_rename` or `Capabilities.renames_by_copy`.

        Raises:
            TableNotFoundError: (4)
            TableAlreadyExistsError: (5) any entry has the new name.
            NamespaceNotFoundError: (1) of the new path.
            ConcurrentModificationError: (14) as `alter_table`.
            InvalidTableStateError: (19) as `alter_table`.
            UnsupportedOperationError: (0) the catalog cannot move an entry there.
        """
        raise _lacks_method(self, "rename_table", record)

    def copy_table(self, record: TableRecord, copy: TableRecord) -> None:  # noqa: ARG002
        """Add the same entry, with all that the catalog keeps in it, under the copy's path.

        - Only path and properties of the two records differ; the copy gets a new identity.
        - The original is unchanged. Core drops it afterwards, or removes the copy.

        Must be overridden if `Capabilities.renames_by_copy`.

        Raises:
            TableNotFoundError: (4) the original does not exist.
            TableAlreadyExistsError: (5) any entry has the copy's name.
            NamespaceNotFoundError: (1) of the copy.
            ConcurrentModificationError: (14) the original is no longer of the record's revision.
        """
        raise _lacks_method(self, "copy_table", record)

    @abstractmethod
    def drop_table(self, record: TableRecord) -> None:
        """Remove the entry, and never a file.

        - Removes the entry that has the record's name. A catalog that can compare `identity` or
          `revision` in the same step does so, and declares `Capabilities.compares_drops`. Core
          relies on neither, and checks before and after.
        - If several callers drop one entry, one succeeds, if the catalog can detect that.

        Raises:
            TableNotFoundError: (4)
            ConcurrentModificationError: (14) the catalog compared them, and they differ.
        """

    # -- storage and life ------------------------------------------------------------------------

    def vend_credentials(
        self,
        record: TableRecord,  # noqa: ARG002 - most catalogs vend none
        *,
        write: bool,  # noqa: ARG002 - the same
    ) -> Mapping[str, str] | None:
        """Return storage options for the table's location, or None if the catalog vends none.

        - Core calls this for remote locations only, keeps the result for half of its lifetime, and
          makes one call for all its callers.
        - The record has no `identity` if the table is still to be created at its location.
        - Temporary options carry ``expires_at_millis`` (milliseconds since 1970, as a string).
        - Options that are valid for this table only are `TableCredentials`. A server hands out no
          others: options with wider access are for this process only.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Close connections. The catalog may be used again: it reconnects."""


def _lacks_method(catalog: Catalog, method: str, record: TableRecord) -> Exception:
    return unsupported(
        f"Not possible with table '{display(record.path)}': {type(catalog).__name__} does not "
        f"implement {method}"
    )
