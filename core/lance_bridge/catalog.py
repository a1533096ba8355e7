"""The port: what an adapter does for core, in the catalog's own terms.

An adapter maps names, records and errors, and nothing else. Modes, page tokens, defaults, deletion
of data, Arrow and datasets are core's. A catalog that cannot do something says so in
`Capabilities`, and core answers Unsupported (0) with the reason given there. What
`Capabilities` claim must be implemented: a namespace over a catalog that lacks a method for it
cannot be created. ``docs/write-a-catalog.md`` is the guide, and ``examples/sqlite-catalog`` a whole
adapter.

What holds for all methods:

- Every path that reaches an adapter has been checked (number of names, allowed characters) and,
  where the catalog folds case, folded.
- Every listing is sorted by name, as Python compares strings, and has each name once; but
  `scan_tables` returns every entry of a name that a server broke by giving it to several. Core
  cuts pages out of listings by that order; it does not sort them again.
- "Not found" is raised only if the catalog itself said so: a server that is busy or down, a
  refused permission or a reply that cannot be read is never absence.
- Any method may raise ServiceUnavailableError (17), PermissionDeniedError (15),
  UnauthenticatedError (16), ThrottlingError (21) or InternalError (18). What else it may raise is
  listed with it. `lance_bridge.errors` makes errors whose messages name the object.
- A method that changes something raises `OutcomeUnknownError` when its
  reply was lost, and never repeats the change: core reads back, and retries it if it did not
  happen.

Who owns what:

- A location that core passes is a URI without a trailing slash (``file:///data/t.lance``,
  ``s3://bucket/t.lance``). A catalog may store it in another spelling: core compares
  locations, not spellings. Adapters return what the catalog has, unchanged, also for entries of
  other tools, and None if it has nothing.
- All properties that core passes are stored unchanged, whatever their key: `TABLE_TYPE`,
  `MANAGED_BY`, and what begins with `RESERVED_PREFIX`, too. Every later read returns them byte for
  byte. A catalog that cannot hold a key or a value raises InvalidInputError (13) before it changes
  anything; it never cuts or drops one.
- What an adapter or its catalog keeps in an entry for its own use is in no record. It survives
  changes that core makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from .capabilities import Capabilities, NameRule, NamespaceWords
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
    TableCredentials,
    TableRecord,
    select_tables,
)

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
    "TableCredentials",
    "TableRecord",
    "select_tables",
]


PORT_VERSION = 1
"""Raised by a change that can break an adapter: a method that must be overridden, another
signature, another guarantee, or a public name that is removed."""


class Catalog(ABC):
    """What an adapter implements. Safe to call from many threads at once."""

    port_version: ClassVar[int] = PORT_VERSION
    """The version of the port that an adapter is written for; without it, none is checked."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the catalog is and can do. Makes no call."""

    @abstractmethod
    def describe_connection(self) -> str:
        """Return what this is connected to, for people and for equality.

        Differs where two catalogs, servers or accounts do. Holds no secret, and makes no call.
        """

    def describe_login(self) -> str:
        """Return the identity that this connects as, if `vend_credentials` depends on it, else "".

        Only a digest is used, to tell connections apart: it may be a token, and no password that
        could be guessed. Makes no call.
        """
        return ""

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

        - Those that begin with `RESERVED_PREFIX` must be kept by a namespace that holds tables;
          levels above it may drop them.
        - Of two callers that create one name, one succeeds.

        Not called where `Capabilities.no_namespace_changes`.

        Raises:
            NamespaceAlreadyExistsError: (2)
            NamespaceNotFoundError: (1) the parent does not exist.
            InvalidInputError: (13) the catalog cannot hold a property.
        """

    @abstractmethod
    def alter_namespace(self, record: NamespaceRecord) -> None:
        """Replace the properties of a namespace: those that the record lacks are removed.

        Raises:
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the catalog cannot hold a property, or cannot change it.
        """

    @abstractmethod
    def drop_namespace(self, path: Path) -> None:
        """Remove an empty namespace's entry, and never a file.

        Raises:
            NamespaceNotFoundError: (1)
            NamespaceNotEmptyError: (3) something is in it, and the catalog checks that itself, as
                `Capabilities.atomic_restrict` says. Else core has looked before.
        """

    def require_droppable(self, path: Path) -> None:  # noqa: B027 - most catalogs keep nothing
        """Raise what would keep a namespace from being dropped once it holds no tables.

        Called before Cascade drops the first of them; changes nothing.

        Raises:
            InvalidInputError: (13) the catalog never drops this namespace.
            NamespaceNotEmptyError: (3) it holds what core does not list, such as functions.
        """

    def require_drop_permission(self, path: Path) -> None:  # noqa: B027 - most cannot know
        """Raise PermissionDenied (15) where the caller may not drop a namespace.

        Asked before Cascade drops the first of its tables, while something is inside. Does nothing
        where the catalog answers that only by dropping it.
        """

    # -- tables ----------------------------------------------------------------------------------

    @abstractmethod
    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        """Return the entries of a namespace, sorted by name.

        - All of them: a listing that stops at the first page of the server's would let core delete
          files that another entry is for.
        - An entry that is dropped during the listing is left out without an error.
        - An entry that exists but cannot be read is returned as `TableRecord.unreadable`, which is
          not Lance's, and does not hide others. As long as it exists, core deletes no files that it
          may be for.
        - A catalog that reads its entries by name may do so in batches, as they are iterated over:
          core stops at the end of a page. One that reads them in its own pages, in any
          order, reads them all, and returns `select_tables` of them.

        Args:
            lance_only: Return only entries with `TableRecord.is_lance`.
            after: Return only entries whose names sort after this one.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating.
        """

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        """Return the names of a namespace's entries, sorted; all of them.

        Overridden where names take fewer or smaller calls than entries do.

        Args:
            lance_only: Return only the names of entries with `TableRecord.is_lance`.

        Raises:
            NamespaceNotFoundError: (1) at once or while iterating.
        """
        records = self.scan_tables(namespace, lance_only=lance_only)
        return list(dict.fromkeys(record.path[-1] for record in records))

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        """Return the entries of the server that no namespace of this catalog lists.

        Their locations keep core from deleting what lies there. Their paths are for messages only,
        and for `partition_locations`. An entry that cannot be read is returned as
        `TableRecord.unreadable`.

        Must be overridden where `Capabilities.hides_tables`.

        Raises:
            PermissionDeniedError: (15) the caller may not read them: nothing is deleted then.
        """
        return ()

    def partition_locations(self, record: TableRecord) -> Iterable[str]:  # noqa: ARG002
        """Return the locations of an entry's partitions.

        Asked for entries with `TableRecord.is_partitioned`, before files are deleted, and only
        where others' files lie at a table's location. One entry may have a million partitions:
        they are read in pages, as they are iterated over. None of an entry that has vanished.

        Must be overridden where `Capabilities.has_partitions`.

        Raises:
            PermissionDeniedError: (15) at once or while iterating: nothing is deleted then.
        """
        return ()

    @abstractmethod
    def load_table(self, path: Path) -> TableRecord:
        """Return an entry, Lance's or not, as it was at one time.

        - `revision` and `properties` are of one state: never those of two changes.
        - What a change returned from before this call began is seen.

        Raises:
            TableNotFoundError: (4) also where the namespace does not exist, if the catalog does not
                tell these apart: core then asks for the namespace.
            NamespaceNotFoundError: (1) the namespace does not exist.
        """

    def load_columns(self, path: Path) -> Iterable[CatalogColumn]:  # noqa: ARG002 - most have none
        """Return the columns that the catalog itself has of an entry, in their order.

        They are shown to people, for entries that are not Lance's: the schema of a Lance table is
        that of its data. Partition columns come last. None where the catalog keeps no columns.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
        """
        return ()

    @abstractmethod
    def create_table(self, record: TableRecord) -> TableRecord:
        """Add an external entry with the record's location and properties.

        - The catalog never takes the location's files for its own: it neither moves nor deletes
          them, whatever is done to the entry later.
        - Of two callers that create one name, one succeeds.

        Returns:
            The record, with the `identity` that the catalog gave it if it says so at once.

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
        - Where the record or the entry has a `GUARD`, this compares and sets for certain, by that
          guard: the entry is still of the record's `revision`, or nothing changes. Of any number of
          callers that loaded one revision, one succeeds.
        - Without a guard it compares what the catalog can: the revision, else the identity, else
          nothing.

        Not called where `Capabilities.no_alter`, except for tables that were managed already.

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
        """Return what an entry holds, beside its properties, that says whose its files are.

        In the catalog's own words, for `alter_ownership`. Overridden together with it.

        Raises:
            TableNotFoundError: (4)
        """
        return {}

    def alter_ownership(self, record: TableRecord, ownership: Mapping[str, str]) -> None:  # noqa: ARG002
        """Do as `alter_table`, with what `load_ownership` returned in place of an external entry's.

        Undoes a change that made an entry external; nothing else may give files to the catalog.
        """
        self.alter_table(record)

    def commit_guard(self, record: TableRecord) -> str:
        """Return how the catalog can compare and set this entry, found out by trying.

        - Changes nothing.
        - The answer is not empty. Core keeps it in the entry under `GUARD`, and `alter_table` and
          `rename_table` hold to it from then on, in every process.

        Must be overridden unless `Capabilities.no_managed_tables`.

        Raises:
            TableNotFoundError: (4)
            UnsupportedOperationError: (0) it cannot, with the reason.
        """
        raise _lacks_method(self, "commit_guard", record)

    def rename_table(self, record: TableRecord, new_path: Path) -> None:  # noqa: ARG002
        """Give an entry another name, in one step.

        - Location, properties and `identity` stay; the files are not touched.
        - An entry with a `GUARD` is compared with the record's `revision`, as in `alter_table`.
          Without one, the entry is moved that has the name, unless the catalog can tell that it is
          another one.

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

        Must be overridden where `Capabilities.renames_by_copy`.

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
          `revision` in the same step does so; core relies on neither, and checks before and after.
        - Of concurrent callers that drop one entry, one succeeds, if the catalog can tell.

        Raises:
            TableNotFoundError: (4)
            ConcurrentModificationError: (14) the catalog compared, and has another entry.
        """

    # -- storage and life ------------------------------------------------------------------------

    def vend_credentials(
        self,
        record: TableRecord,  # noqa: ARG002 - most catalogs vend none
        *,
        write: bool,  # noqa: ARG002 - the same
    ) -> Mapping[str, str] | None:
        """Return storage options for the table's location, or None if the catalog vends none.

        - Core asks for locations that are not local only, keeps the answer until shortly before it
          expires, and asks once for all its callers.
        - The record may be one without `identity`: a table that is to be created at its location.
        - Temporary options carry ``expires_at_millis`` (milliseconds since 1970, as a string).
        - Options that are good for this one table are `TableCredentials`. A server hands out no
          others: what gives access to more than the table is this process's own.
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
