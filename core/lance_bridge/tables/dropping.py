"""DropTable: the entry first, then the files, after all checks."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableNotFoundError,
)

from .. import locations
from ..catalog import NamespaceRecord, Path, TableRecord
from ..catalog_scan import Named, error_of_check, scan_locations
from ..connection import Connection
from ..entry import TableEntry, load_entry
from ..errors import (
    OF_ONE_OBJECT,
    OutcomeUnknownError,
    concurrent_modification,
    display,
    marking_other_entries,
)
from ..managed import mark
from ..managed.conversion import held_for_removal
from ..records import ENTRY_ID
from ..storage.lance_format import MARK_FILE, LocationFiles
from ..storage.store import TableFiles
from .creation import is_taken
from .protection import RemovalProtection

# -- locations that overlap ------------------------------------------------------------------------


_THREADS = 8
"""Entries whose clones or partitions are read at once."""

_HINT = "With drop.check-sharing=namespace, only the table's own namespace is read"
_HINTS = f"With drop.check-sharing=entries, partitions and clones are not looked for. {_HINT}"


class LocationIndex:
    """The entries whose files DropTable must keep, read once."""

    def __init__(
        self,
        connection: Connection,
        tables: Iterable[TableRecord],
        *,
        of_another_catalog: bool = False,
    ) -> None:
        """Read the whole catalog, or only the tables' namespaces, as `drop.check-sharing` says.

        The namespaces of the tables, and the entries that their locations name, are read whatever
        the catalog lists.

        Args:
            tables: The entries of the tables to check.
            of_another_catalog: Whether they are in another catalog. Namespaces and entries of the
                same paths are then read, if this catalog can have them.
        """
        if of_another_catalog:
            tables = [TableRecord((*each.path[:-1], ""), each.location) for each in tables]
        self._connection = connection
        everywhere = connection.config.drop_check != "namespace"
        tables = list(tables)
        root, capabilities = connection.config.root, connection.capabilities
        named = Named.union(Named.of(each, capabilities, root) for each in tables)
        if everywhere:
            named = Named.union([named, Named(frozenset(connection.named_namespaces))])
        else:
            named = named.within({each.path[:-1] for each in tables})
        if of_another_catalog:
            named = named.valid_in(capabilities)
        scan = scan_locations(connection.catalog, named, _explain, everywhere=everywhere)
        records = [each for each, _ in scan.records]
        self._entries = records
        self._locations = [
            (_owner(each), key, each.properties.get(ENTRY_ID))
            for each in records
            for key in locations.keys_of(each.all_locations)
        ]
        self._bases: dict[str, tuple[str, ...]] = {}
        self._unreadable = sorted({_owner(each) for each in records if not each.is_readable})

    def refuse_shared(self, record: TableRecord, *, of_another_catalog: bool = False) -> None:
        """Check that no other entry's location is, contains or is inside a table's location.

        Args:
            record: The table's entry.
            of_another_catalog: Whether the entry belongs to another catalog than the one that was
                read; an entry of the same name is then another one.

        Raises:
            InvalidTableStateError: (19) one does, or an entry cannot be read and may do so.
            TableNotFoundError: (4) the other entry is this one, renamed concurrently.
            ConcurrentModificationError: (14) likewise, and another table now has the name.
        """
        if not record.location:
            return
        own = locations.key(record.location)
        for path, key, entry_id in self._locations:
            # In its own catalog, another entry with its id is what an interrupted rename left.
            own_id = record.properties.get(ENTRY_ID) if of_another_catalog else None
            if (own_id and entry_id == own_id) or (path == record.path and not of_another_catalog):
                continue
            if locations.overlap(own, key):
                if not of_another_catalog:
                    self._require_unchanged(record)
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: its "
                    f"location {record.location} overlaps that of '{display(path)}'"
                    f"{' in another catalog' if of_another_catalog else ''}. Deregister one of "
                    "them instead"
                )

        for path in self._unreadable:
            if path != record.path or of_another_catalog:
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: the entry "
                    f"'{display(path)}' cannot be read, and may have the same location. Deregister "
                    f"the table instead. {_HINT}"
                )

    def find_sharing(self, record: TableRecord) -> list[TableRecord]:
        """Return the other Lance entries, but no links, for the very location of a table."""
        own = locations.key(record.location or "/")
        return [
            each
            for each in self._entries
            if each.is_lance and each.path != record.path and not each.link_to
            and own in locations.keys_of(each.all_locations)
        ]  # fmt: skip

    def find_renamed(self, record: TableRecord) -> Path | None:
        """Return another name under which a table, or another table in its location, is listed.

        An entry that cannot be read may be the table, too.
        """
        own, own_id = locations.key(record.location or "/"), record.properties.get(ENTRY_ID)
        for path, key, entry_id in self._locations:
            if path != record.path and (
                locations.overlap(own, key) or (own_id and entry_id == own_id)
            ):
                return path
        return next((path for path in self._unreadable if path != record.path), None)

    def require_own_files(self, record: TableRecord) -> LocationFiles:
        """Return a table's files, after a check that no clone or partition needs them.

        Checking whether another Lance table on the same type of storage is a clone takes two calls,
        once for all tables that are checked here. Partitions are read only if the location has
        files that are not the table's: otherwise no partition could lose a file.

        Raises:
            ManagedElsewhereError: (19) an entry of another catalog manages the table's versions.
            InvalidTableStateError: (19) a manifest or an entry's partitions cannot be read, a
                partition overlaps the location, or another Lance table reads the files or cannot
                be read.
            PermissionDeniedError: (15) the partitions of an entry may not be read.
            ServiceUnavailableError: (17) the storage does not respond.
        """
        storage = TableEntry(self._connection, record).storage(write=True)
        try:
            found = storage.files_of_table(record.location or "")
        except InvalidTableStateError as error:
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' cannot be dropped with its data. {error}"
            ) from error
        if any(MARK_FILE in group for group in found.own):
            mark.require_manager(TableEntry(self._connection, record))
        if self._connection.config.drop_check == "entries":
            return found
        others = [each for each in self._entries if each.path != record.path and not each.link_to]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda each: self._refuse_clone(each, record), others))
            if found.others:
                list(threads.map(lambda each: self._refuse_partitions_of(each, record), others))
        return found

    def find_clones(
        self, record: TableRecord
    ) -> tuple[list[tuple[Path, list[TableFiles]]], list[tuple[Path, LanceNamespaceError]]]:
        """Return the shallow clones that read a table's files, each with its own files.

        Also returns the Lance tables that cannot be read, and why.
        """
        own = locations.key(record.location or "/")
        found: list[tuple[Path, list[TableFiles]]] = []
        unread: list[tuple[Path, LanceNamespaceError]] = []

        def check(entry: TableRecord) -> None:
            try:
                places = [
                    location
                    for location, base in self._bases_of(entry, own)
                    if _may_overlap(own, base)
                ]
            except LanceNamespaceError as error:
                unread.append((entry.path, error))
                return
            if places:
                storage = TableEntry(self._connection, entry).storage()
                found.append((entry.path, [TableFiles(storage, each) for each in set(places)]))

        others = [each for each in self._entries if each.path != record.path and not each.link_to]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(check, others))
        return found, unread

    def _bases_of(self, entry: TableRecord, own: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return the base paths of a Lance table in the store of another one, with its location."""
        if not (entry.is_lance or entry.is_dropped) or not entry.location:
            return []
        # pylance creates a clone in the store of its source table.
        return [
            (location, base)
            for location in locations.readable_spellings(entry.location)
            if locations.key(location)[0] == own[0]
            for base in self._base_paths(entry, location)
        ]

    def _refuse_clone(self, entry: TableRecord, record: TableRecord) -> None:
        own = locations.key(record.location or "/")
        try:
            bases = [base for _, base in self._bases_of(entry, own)]
        except LanceNamespaceError as error:
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' cannot be dropped with its data: "
                f"'{display(entry.path)}' may be a shallow clone that reads its files, and cannot "
                f"be read: {error}. {_HINTS}"
            ) from error
        if any(_may_overlap(own, each) for each in bases):
            raise InvalidTableStateError(
                f"Table '{display(record.path)}' cannot be dropped with its data: "
                f"'{display(entry.path)}' is a shallow clone that reads its files. Drop the clone "
                "first, or deregister this table instead"
            )

    def _base_paths(self, entry: TableRecord, location: str) -> tuple[str, ...]:
        if location not in self._bases:
            storage = TableEntry(self._connection, entry).storage()
            self._bases[location] = self._connection.base_locations.of_latest(storage, location)
        return self._bases[location]

    @marking_other_entries()
    def _refuse_partitions_of(self, entry: TableRecord, record: TableRecord) -> None:
        if not entry.is_partitioned:
            return
        own = locations.key(record.location or "/")
        try:
            places = list(self._connection.catalog.partition_locations(entry))
        except OF_ONE_OBJECT as error:
            message = (
                f"Nothing is deleted while '{display(entry.path)}' may have a partition at the "
                f"same location, and its partitions cannot be read: {error}. {_HINTS}"
            )
            raise error_of_check(error, message) from error
        for place in places:
            if _may_overlap(own, place):
                raise InvalidTableStateError(
                    f"Table '{display(record.path)}' cannot be dropped with its data: its "
                    f"location {record.location} overlaps that of a partition of "
                    f"'{display(entry.path)}', {place}. Deregister the table instead"
                )

    def _require_unchanged(self, record: TableRecord) -> None:
        found = self._connection.catalog.load_table(record.path)
        if (found.identity, found.properties.get(ENTRY_ID)) != (
            record.identity,
            record.properties.get(ENTRY_ID),
        ):
            raise concurrent_modification(record.path)


def _explain(what: str, error: LanceNamespaceError) -> str:
    return (
        f"Nothing is deleted while {what} may have an entry for the same location and cannot be "
        f"read: {error}. {_HINT}"
    )


def _may_overlap(own: tuple[str, ...], location: str) -> bool:
    return any(locations.overlap(own, key) for key in locations.possible_keys(location))


def _owner(record: TableRecord) -> Path:
    """Return the path of a link's target, or of the entry: a link is not another owner."""
    return record.link_path or record.path


# -- drop ------------------------------------------------------------------------------------------


def require_removable(table: TableEntry) -> NamespaceRecord:
    """Check that a table may be dropped under its name, and return its namespace.

    Raises:
        InvalidTableStateError: (19) it is protected, or its namespace is a link.
    """
    namespace = table.connection.catalog.load_namespace(table.path[:-1])
    protection = RemovalProtection(table.connection)
    protection.note(namespace)
    protection.require_table(table.record, "dropped")
    link_to = namespace.link_to
    if link_to:
        raise InvalidTableStateError(
            f"Table '{table.name}' is in a link to {link_to}, and its data is not deleted through "
            "that: drop it there, or deregister it"
        )
    return namespace


def drop(table: TableEntry) -> None:
    """Remove the entry, then the table's files, after `require_removable`. Source: DropTable.

    Raises:
        InvalidTableStateError: (19) another entry shares the location, Lance cannot delete there,
            or it is a link; nothing is changed.
    """
    try:
        files = require_droppable(table, LocationIndex(table.connection, [table.record]))
    except LanceNamespaceError:
        load_entry(table.connection, table.path)  # a concurrent drop may have removed the entry
        raise
    drop_with_data(table, files)


def require_droppable(table: TableEntry, index: LocationIndex) -> LocationFiles:
    """Check all that can be checked before anything is changed, and return the table's files.

    Raises:
        InvalidTableStateError: (19)
    """
    if table.record.link_to:
        raise InvalidTableStateError(
            f"Table '{table.name}' is a link to {table.record.link_to}, and its data is not its "
            "own to delete: deregister it instead"
        )
    try:
        locations.check(table.location)
    except InvalidInputError as error:
        raise InvalidTableStateError(
            f"Nothing can be deleted at the location of table '{table.name}': {error}. Deregister "
            "it instead"
        ) from error
    if not locations.is_supported(table.location):
        raise InvalidTableStateError(
            f"The files of table '{table.name}' at {table.location} can be read and written by "
            "Lance, but lance-bridge cannot list or delete them. Deregister the table instead, and "
            "delete the files with the tools of that storage"
        )
    index.refuse_shared(table.record)
    return index.require_own_files(table.record)


def drop_with_data(table: TableEntry, files: LocationFiles | None = None) -> None:
    """Remove the entry, then the files from `require_droppable`; None lists them after that.

    Raises:
        TableNotFoundError: (4) another client renamed the table concurrently; no file is deleted.
    """
    with held_for_removal(table) as held:
        storage = held.storage(write=True)  # a catalog may vend none after the removal
        try:
            is_confirmed = held.remove()
        except OutcomeUnknownError as error:
            raise OutcomeUnknownError(
                f"{error}. If the entry is gone, its files are left at {table.location}"
            ) from error
    if not is_confirmed:
        _require_not_renamed(table)
    try:
        if not is_taken(table):  # not created again concurrently
            storage.delete_table(table.location, files)
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{table.name}' is dropped, but files are left at {table.location}: delete them "
            f"there. {error}"
        ) from error


def _require_not_renamed(table: TableEntry) -> None:
    """Check that no other entry is the table, which is missing under its name."""
    try:
        index = LocationIndex(table.connection, [table.record])
    except LanceNamespaceError as error:
        raise type(error)(
            f"Table '{table.name}' was dropped or renamed, and its files are left at "
            f"{table.location}, because the entries could not be read again: {error}"
        ) from error
    found = index.find_renamed(table.record)
    if found is not None:
        with marking_other_entries():
            raise TableNotFoundError(
                f"Table '{table.name}' no longer exists, and '{display(found)}' may be the "
                "same table, renamed concurrently: no file is deleted"
            )
