"""Tables: the tables of a catalog, found by path, listed page by page, and renamed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, islice

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableNotFoundError,
)

from ..catalog import Capabilities, Column, Path, TableRecord
from ..catalog_scan import UNREADABLE, Unreadable, innermost_namespaces, raise_error, why_unreadable
from ..connection import Connection
from ..entry import EntryT, TableEntry, load_entry
from ..errors import (
    OutcomeUnknownError,
    concurrent_modification,
    display,
    retry_after_readback,
    table_already_exists,
    table_not_found,
    unsupported,
)
from ..managed import batches, conversion, mark
from ..managed.compare_and_set import held, release
from ..paging import PageRequest
from ..records import ENTRY_ID
from ..requests import parse_table
from ..storage import DataState
from ..table import Table
from . import creation, dropping, namespaces, retention
from .protection import RemovalProtection
from .retention import DroppedTable

NamesPage = tuple[list[str], str | None]
"""Names of tables, and the token of the next page or None."""
PathsPage = tuple[list[Path], str | None]

logger = logging.getLogger(__name__)

_CHUNK = 100
_THREADS = 8


@dataclass(frozen=True)
class Tables:
    """The tables of one connected namespace. Paths of tables include the namespace."""

    connection: Connection

    def path_of(self, identifier: Sequence[str] | None) -> Path:
        """Return the path of the table that a request names. Raises InvalidInput."""
        capabilities = self.connection.catalog.capabilities
        return parse_table(identifier, capabilities, self.connection.default_namespace)

    # -- reading -----------------------------------------------------------------------------------

    def load_by_id(self, identifier: Sequence[str] | None) -> Table:
        """Return the Lance table that a request names; raises as `path_of` and `load`."""
        return self.load(self.path_of(identifier))

    def find(self, path: Path) -> TableEntry | None:
        """Return any entry, Lance's or not; None if it or its namespace does not exist."""
        record = self.connection.find_table(path)
        return None if record is None else TableEntry(self.connection, record)

    def at(self, path: Path, location: str) -> Table:
        """Return a table at a location, whether the catalog has an entry for it or not."""
        return Table(self.connection, TableRecord(path, location))

    def load_entry(self, path: Path) -> TableEntry:
        """Return any entry, Lance's or not.

        Raises:
            TableNotFoundError: (4) the namespace exists, and the table does not.
            NamespaceNotFoundError: (1) the namespace does not exist.
        """
        return load_entry(self.connection, path)

    def load(self, path: Path) -> Table:
        """Return a Lance table.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the entry is not a Lance table.
            InvalidTableStateError: (19) the entry has no location.
        """
        return Table.of(self.load_entry(path))

    def list(
        self, namespace: Path, page: PageRequest, *, include_declared: bool = True
    ) -> NamesPage:
        """Return a page of the names of a namespace's Lance tables, and the next page's token.

        Source: ListTables.

        Raises:
            NamespaceNotFoundError: (1)
        """
        after = page.after[-1] if page.after is not None else None
        if include_declared:
            names = self.connection.catalog.list_tables(namespace, lance_only=True)
            rest: Iterator[Path] = ((name,) for name in names if after is None or name > after)
        else:
            records = self.connection.catalog.scan_tables(namespace, lance_only=True, after=after)
            # A server may have several entries of one name by mistake.
            rest = (path for path, _ in groupby(_tables_with_data(self.connection, records)))
        found, token = page.cut(_take_page(rest, page))
        return [name for (name,) in found], token

    def list_all(self, page: PageRequest, *, include_declared: bool = True) -> PathsPage:
        """Return a page of the paths of all Lance tables, by namespace. Source: ListAllTables.

        Only the namespaces that the page needs are read: those that the catalog lists, and the
        property `default-namespace`. Namespaces that are dropped concurrently are omitted, and so
        are those that cannot be read, or that the caller may not list, as catalogs do.

        Raises:
            LanceNamespaceError: No namespace could be read.
        """
        return page.cut(_take_page(_all_tables(self, page, include_declared), page))

    def scan(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterator[TableEntry]:
        """Yield the entries of a namespace by name; see `Catalog.scan_tables`.

        Raises:
            NamespaceNotFoundError: (1)
        """
        catalog = self.connection.catalog
        for record in catalog.scan_tables(namespace, lance_only=lance_only, after=after):
            yield TableEntry(self.connection, record)

    def namespaces(
        self, unreadable: Unreadable = raise_error, named: Iterable[Path] = ()
    ) -> Iterator[Path]:
        """Yield the paths of all namespaces that can hold tables, sorted.

        Args:
            unreadable: Called for a namespace that cannot be listed.
            named: Namespaces to yield even if the catalog does not list them, in addition to the
                property `default-namespace`. They need not exist.
        """
        named = (*self.connection.named_namespaces, *named)
        return innermost_namespaces(self.connection.catalog, unreadable=unreadable, named=named)

    def change_namespace(
        self, path: Path, updates: Mapping[str, str], removals: Collection[str]
    ) -> dict[str, str]:
        """Change a namespace's properties; returns and raises as `namespaces.change_properties`."""
        return namespaces.change_properties(self.connection, path, updates, removals)

    # -- new tables --------------------------------------------------------------------------------

    def default_location(self, path: Path) -> str:
        """Return ``<root>/<namespace>.db/<table>.lance``, or a location under the namespace's.

        Raises:
            InvalidInputError: (13) there is no root, and the namespace has no location for Lance.
            NamespaceNotFoundError: (1)
        """
        namespace = self._namespace_of(path)
        namespace.require()
        return creation.default_location(path, namespace)

    def allocate_location(self, path: Path) -> str:
        """Return the default location, with a short unique suffix if that is occupied.

        Raises:
            InvalidInputError: (13), NamespaceNotFoundError: (1) as `default_location`.
            ServiceUnavailableError: (17) or another error of the storage.
        """
        return creation.allocate(path, self._namespace_of(path), must_read=True).uri

    def wants_management(self, path: Path, properties: Mapping[str, str] | None = None) -> bool:
        """Return whether the catalog should hold a new table's versions.

        The table's own properties decide, else those of its namespace.

        Raises:
            UnsupportedOperationError: (0) the properties require it, and the catalog cannot.
            NamespaceNotFoundError: (1)
        """
        return creation.wants_management(path, self._namespace_of(path), properties)

    def _namespace_of(self, path: Path) -> creation.LazyNamespace:
        return creation.LazyNamespace(self.connection, path[:-1])

    def add_entry(
        self,
        path: Path,
        location: str,
        properties: Mapping[str, str],
        *,
        declared: bool = False,
        columns: tuple[Column, ...] = (),
    ) -> Table:
        """Add a Lance entry, with properties that are checked already.

        Args:
            declared: Whether the data is still to be written.
            columns: The columns of the data, if they are known.

        Raises:
            TableAlreadyExistsError: (5) any entry has the name.
            NamespaceNotFoundError: (1)
        """
        place = creation.NewLocation(location)
        own = creation.with_publishing(self._namespace_of(path), properties)
        table = creation.add(self.connection, path, place, own, declared=declared, columns=columns)
        if not declared:
            table.publish_after_commit()
        return table

    # -- changing ----------------------------------------------------------------------------------

    def declare(
        self,
        path: Path,
        location: str | None,
        properties: Mapping[str, str] | None,
        *,
        vend: bool | None = None,
    ) -> tuple[Table, dict[str, str] | None]:
        """Add a table without data; returns and raises as `creation.declare`."""
        return creation.declare(self.connection, path, location, properties, vend=vend)

    def add(
        self,
        path: Path,
        location: str,
        properties: Mapping[str, str] | None,
        *,
        overwrite: bool = False,
        columns: tuple[Column, ...] = (),
    ) -> Table:
        """Register data that exists; raises as `creation.register`."""
        return creation.register(
            self.connection, path, location, properties, overwrite=overwrite, columns=columns
        )

    def remove(self, path: Path) -> TableEntry:
        """Remove a Lance table's entry but no file. Source: DeregisterTable.

        Raises:
            TableNotFoundError: (4)
            NamespaceNotFoundError: (1)
            InvalidInputError: (13) the entry is not a Lance table.
            InvalidTableStateError: (19) it is protected.
        """
        entry = self.load_entry(path)
        entry.require_lance()
        self.require_unprotected(entry, "deregistered")
        with conversion.finished_for_removal(entry) as finished:
            finished.remove()
        return finished

    def drop(self, path: Path, *, purge: bool = False) -> Table:
        """Remove a table's entry, then its files; or keep both, if its retention says so.

        Args:
            purge: Delete it at once, whatever the retention is.

        Returns:
            The table as it was; or with a mark, if it is kept: see `kept_until`.

        Raises:
            UnsupportedOperationError: (0) it has a retention, and the catalog cannot keep it.
            LanceNamespaceError: as `load`, `dropping.require_removable` and `dropping.drop`.
        """
        table = self.load(path)
        namespace = dropping.require_removable(table)
        period = timedelta(0) if purge else retention.period_of(self.connection, namespace)
        if period and table.presence().state not in (DataState.DECLARED, DataState.MISSING):
            return self._keep_dropped(table, period)
        dropping.drop(table)
        return table

    def _keep_dropped(self, table: Table, period: timedelta) -> Table:
        retention.require_possible(table)
        table.require_alterable("The entry of")
        marked = retention.set_mark(table, period)
        try:
            rename_entry(marked, retention.hidden_path(table))
        except OutcomeUnknownError:
            raise  # it may have the new name: with the mark, it is dropped under both
        except LanceNamespaceError:
            retention.remove_mark(marked.reloaded())
            raise
        return marked

    def dropped(self, namespace: Path) -> Sequence[DroppedTable]:
        """Return the dropped tables of a namespace that can be taken back, the latest first.

        Raises:
            NamespaceNotFoundError: (1)
            InvalidTableStateError: (19) a mark cannot be read.
        """
        found = (DroppedTable.of(each) for each in self.scan(namespace) if each.record.is_dropped)
        return sorted(found, key=lambda each: (each.dropped_at, each.entry.path), reverse=True)

    def overdue(self, parent: Path = ()) -> Iterator[DroppedTable]:
        """Yield the dropped tables below a namespace whose retention is over.

        Raises:
            NamespaceNotFoundError: (1) of the parent.
            LanceNamespaceError: a namespace cannot be read, or a mark.
        """
        for namespace in innermost_namespaces(self.connection.catalog, parent):
            for each in self.dropped(namespace):
                if each.is_overdue():
                    yield each

    def kept_until(self, table: TableEntry) -> datetime | None:
        """Return until when a table that `drop` returned is kept; None if it was deleted."""
        return DroppedTable.of(table).kept_until if table.record.is_dropped else None

    def find_dropped(self, path: Path) -> DroppedTable:
        """Return the table that was dropped last of those that had a name, or the one that has it.

        Raises:
            TableNotFoundError: (4) there is none.
            LanceNamespaceError: as `dropped`.
        """
        for each in self.dropped(path[:-1]):
            if path in (each.path, each.entry.path):
                return each
        raise table_not_found(path, "No dropped table with that name can be taken back")

    def undrop(self, path: Path, new_path: Path | None = None) -> Table:
        """Take a dropped table back.

        Args:
            path: The name that it had, or the one that its entry has now.
            new_path: Its new name; by default the one that it had.

        Raises:
            TableAlreadyExistsError: (5) the name is taken.
            LanceNamespaceError: as `find_dropped` and `rename_entry`.
        """
        found = self.find_dropped(path)
        table = Table(self.connection, found.entry.record)
        new_path = new_path or found.path
        if table.path != new_path:
            _require_renamable(self.connection.capabilities, table.path, new_path)
            rename_entry(table, new_path)
            table = table.with_record(self.connection.catalog.load_table(new_path))
        return retention.remove_mark(table)

    def purge(self, dropped: DroppedTable) -> None:
        """Delete a dropped table with its files. Raises as `drop`."""
        dropping.require_removable(dropped.entry)
        dropping.drop(dropped.entry)

    def find_manager(self, path: Path, location: str) -> str:
        """Return the entry that manages the versions at a location, for people, or "".

        "" also if the storage cannot be read.

        Args:
            path: An entry that does not count: the one that is to be added.

        Raises:
            ManagedElsewhereError: (19) the file that says so cannot be read.
            LanceNamespaceError: an entry of the catalog cannot be read.
        """
        found = mark.find_manager(self.connection, path, location)
        return "" if found is None else str(found)

    def find_sharing(self, tables: Sequence[TableEntry]) -> dict[Path, Sequence[TableEntry]]:
        """Return other Lance entries of this catalog for the locations of tables, by their paths.

        The catalog is read once. What cannot be read is left out, and logged.
        """
        try:
            index = dropping.LocationIndex(self.connection, [each.record for each in tables])
        except LanceNamespaceError as error:
            logger.info("other entries for the same locations are not known: %s", error)
            return {}
        return {
            each.path: [
                TableEntry(self.connection, record) for record in index.find_sharing(each.record)
            ]
            for each in tables
        }

    def manage(self, table: Table, *, force: bool = False) -> Table:
        """Have the catalog hold a table's versions, after a check of other entries.

        Args:
            force: As of `Table.manage`; other entries of this catalog for the location then only
                read.

        Raises:
            InvalidTableStateError: (19) there are such entries; or as `Table.manage`.
            UnsupportedOperationError: (0), ConcurrentModificationError: (14) as `Table.manage`.
        """
        others = [] if table.managed is not None else self.find_sharing([table]).get(table.path, [])
        if others and not force:
            raise InvalidTableStateError(
                f"Table '{table.name}' does not become managed, because '{others[0].name}' has the "
                "same location, and would write past it: deregister one of the two, or have the "
                "other one only read, with `lance-bridge managed begin --force`"
            )
        for each in others:
            conversion.finish_latest(each)
        managed = table.manage(force=force)
        for each in others:
            conversion.make_second(each, managed)
        return managed

    def require_unprotected(self, table: TableEntry, change: str) -> None:
        """Check that a table may be removed or replaced; see `RemovalProtection.require_table`.

        Raises:
            InvalidTableStateError: (19) it is protected, or its namespace is.
        """
        RemovalProtection(self.connection).require_table(table.record, change)

    def require_droppable(self, table: TableEntry) -> None:
        """Check that `drop_with_data` would delete no file of another entry.

        Raises:
            InvalidTableStateError: (19) as `dropping.require_droppable`, or it is protected.
        """
        self.require_unprotected(table, "dropped")
        dropping.require_droppable(table, dropping.LocationIndex(self.connection, [table.record]))

    def require_unshared(
        self,
        tables: Iterable[TableRecord],
        namespace: Path | None = None,
        *,
        is_same_catalog: bool = False,
    ) -> None:
        """Check that no entry of this catalog overlaps the location of one of another connection.

        An entry with the same `ENTRY_ID` is the same one: both connections see one catalog.

        Args:
            tables: Entries of another connection.
            namespace: The namespace that is read in any case, and alone if `drop.check-sharing`
                restricts the check to one; else those of the same paths.
            is_same_catalog: Whether both are known to see one catalog, with the same paths.

        Raises:
            InvalidTableStateError: (19) one does, or cannot be read.
            LanceNamespaceError: this catalog cannot be read.
        """
        tables = [each for each in tables if each.location]
        if not tables:
            return
        named = tables
        if namespace is not None:
            named = [replace(each, path=(*namespace, each.path[-1])) for each in tables]
        is_other = not is_same_catalog
        index = dropping.LocationIndex(self.connection, named, of_another_catalog=is_other)
        for each in tables:
            index.refuse_shared(each, of_another_catalog=is_other)

    def scan_below(self, namespace: Path) -> Iterator[TableEntry]:
        """Yield all entries of a namespace and of those below it.

        Raises:
            NamespaceNotFoundError: (1)
        """
        if len(namespace) == self.connection.capabilities.levels:
            yield from self.scan(namespace)
            return
        for child in self.connection.catalog.list_namespaces(namespace):
            yield from self.scan_below((*namespace, child))

    def drop_with_data(self, table: TableEntry) -> None:
        """Remove the entry, then the files, without the checks of `require_droppable`.

        Raises:
            OutcomeUnknownError: (17) the entry may be gone; no file is deleted.
            ServiceUnavailableError: (17) or another error of the storage: files are left.
        """
        dropping.drop_with_data(table)

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename a table's entry; raises as `load` and `rename_entry`."""
        _require_renamable(self.connection.capabilities, path, new_path)
        rename_entry(self.load(path), new_path)


# -- listings --------------------------------------------------------------------------------------


def _all_tables(tables: Tables, page: PageRequest, include_declared: bool) -> Iterator[Path]:
    unread: list[LanceNamespaceError] = []

    def leave_out(namespace: Path, error: LanceNamespaceError) -> None:
        logger.warning("listed without '%s': %s", display(namespace), error)
        unread.append(error)

    has_read = page.after is not None
    for namespace in tables.namespaces(leave_out):
        if page.after is not None and namespace < page.after[:-1]:
            continue
        after = page.after if page.after is not None and page.after[:-1] == namespace else ()
        within = PageRequest(page.scope, None, after[-1:] or None)
        try:
            names, _ = tables.list(namespace, within, include_declared=include_declared)
        except UNREADABLE as error:
            reason = why_unreadable(tables.connection.catalog, namespace, error)
            if reason is not None:
                leave_out(namespace, reason)
            continue
        has_read = True
        yield from ((*namespace, name) for name in names)
    if unread and not has_read and not all(isinstance(e, PermissionDeniedError) for e in unread):
        raise unread[0]


def _take_page(paths: Iterator[Path], page: PageRequest) -> list[Path]:
    """Take at most one path more than a page has, to see whether another page follows."""
    taken: list[Path] = []
    for path in paths:
        taken.append(path)
        if page.limit is not None and len(taken) > page.limit:
            break
    return taken


def _tables_with_data(connection: Connection, records: Iterable[TableRecord]) -> Iterator[Path]:
    """Yield the tables that hold data; reads the storage at most one chunk ahead."""
    waiting = iter(records)
    with ThreadPoolExecutor(_THREADS) as threads:
        while chunk := list(islice(waiting, _CHUNK)):
            has_data = threads.map(lambda record: _may_have_data(connection, record), chunk)
            yield from (
                record.path[-1:] for record, data in zip(chunk, has_data, strict=True) if data
            )


def _may_have_data(connection: Connection, record: TableRecord) -> bool:
    """Return False for a table that was never written; True if its data is missing, or unknown."""
    try:
        return not Table(connection, record).is_declared()
    except LanceNamespaceError as error:
        logger.warning("listed, though no data was found: %s: %s", record.path, error)
        return True


# -- rename ----------------------------------------------------------------------------------------


def _require_renamable(capabilities: Capabilities, path: Path, new_path: Path) -> None:
    """Raise UnsupportedOperation (0) if the catalog cannot rename, or not across namespaces."""
    reason = capabilities.no_rename
    if not reason and path[:-1] != new_path[:-1]:
        reason = capabilities.no_rename_across
    if reason:
        raise unsupported(f"Table '{display(path)}' cannot be renamed: {reason}")


def rename_entry(table: Table, new_path: Path) -> None:
    """Rename a table's entry. Source: RenameTable.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1) of the table, or of its new name.
        TableAlreadyExistsError: (5) the new name is taken.
        ConcurrentModificationError: (14) another client changed the entry concurrently.
        InvalidTableStateError: (19) its data is missing: with the file that reserves a location,
            the table would look as if it was never written.
    """
    if table.path == new_path:
        raise table_already_exists(new_path, "it is the table itself")
    by_copy = table.connection.capabilities.renames_by_copy
    if table.require_not_missing().state is not DataState.PRESENT:
        # If the location is empty, the next table of the old name would be given it, too.
        creation.reserve_if_free(table)
    resolved = batches.resolve_batch(table)
    # A commit to the entry during the rename would be lost.
    with held(resolved, new_path if by_copy else ()) as current:
        moved = (_copy_and_drop if by_copy else _move)(current, new_path)
    release(moved)
    mark.move(moved)


def _move(table: TableEntry, new_path: Path) -> TableEntry:
    moved = table.with_record(replace(table.record, path=new_path))
    try:
        retry_after_readback(
            lambda: table.connection.catalog.rename_table(table.record, new_path),
            moved.is_in_catalog,
        )
    except ConcurrentModificationError:
        load_entry(table.connection, table.path)
        raise
    return moved


def _copy_and_drop(table: TableEntry, new_path: Path) -> TableEntry:
    """Create the entry under its new name, then remove the old one; undo if that fails.

    The copy has its own id: of several clients that rename one table at once, each can recognise
    the copy that it has to remove.
    """
    properties = {**table.record.properties, ENTRY_ID: uuid.uuid4().hex}
    copy = table.with_record(replace(table.record, path=new_path, properties=properties))
    if copy.managed is not None:
        copy = copy.with_state(replace(copy.managed, other=table.path))
    retry_after_readback(
        lambda: table.connection.catalog.copy_table(table.record, copy.record),
        copy.is_in_catalog,
    )
    try:
        _require_unchanged(table)
    except LanceNamespaceError as error:
        _remove_copy(copy, error)
        raise
    try:
        table.remove()
    except LanceNamespaceError as error:
        # "Not found" means that another client removed the entry. After any other failure, this
        # call may have removed it, and then the copy is all that is left of the table.
        if isinstance(error, TableNotFoundError) or _still_exists(table, copy, error):
            _remove_copy(copy, error)
            raise
    return copy


def _require_unchanged(table: TableEntry) -> None:
    if table.connection.catalog.load_table(table.path).revision != table.record.revision:
        raise concurrent_modification(table.path)


def _still_exists(table: EntryT, copy: EntryT, cause: LanceNamespaceError) -> bool:
    try:
        return table.is_in_catalog()
    except LanceNamespaceError as error:
        raise _rename_error("It may be left under both names", copy, cause) from error


def _remove_copy(copy: TableEntry, cause: LanceNamespaceError) -> None:
    try:
        if copy.is_in_catalog():
            copy.remove()
    except LanceNamespaceError as error:
        raise _rename_error("It is left under both names", copy, cause) from error


def _rename_error(state: str, copy: TableEntry, cause: LanceNamespaceError) -> LanceNamespaceError:
    return type(cause)(
        f"The table could not be renamed to '{copy.name}': {cause}. {state}: deregister one of them"
    )
