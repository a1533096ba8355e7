"""The mark of the manager: a file beside the manifests that says which entry manages a table.

An entry is one of possibly several for a location, in one or more catalogs. Only the storage is
common to all of them, so a second entry, which knows nothing of the first, finds the mark.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from .. import locations
from ..catalog import Path, TableRecord
from ..catalog_scan import Named, scan_locations
from ..connection import Connection
from ..entry import TableEntry
from ..errors import ManagedElsewhereError, concurrent_modification, display
from ..records import ENTRY_ID, MARK
from ..storage.deletion import is_directory
from ..storage.lance_format import MARK_FILE
from ..storage.store import TableFiles, discard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mark:
    """Says which entry of which catalog manages the versions of the table at a location.

    Attributes:
        id: The value of `MARK` in the entry; empty if no entry manages the versions any more.
        table: The path of the entry when the mark was written.
        catalog: The description of the catalog's connection.
        location: The location in Lance's spelling: a copy of the table has the mark of another one.
        since: When the mark was written, in ISO format, by the client's clock.
        superseded: The ids of entries that managed the versions before, and may not know that
            others were committed since.
    """

    id: str
    table: Path
    catalog: str
    location: str
    since: str
    superseded: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the manager's name for messages."""
        since = "since" if self.id else "until"
        return f"'{display(self.table)}' of {self.catalog} ({since} {self.since})"

    @classmethod
    def of(cls, table: TableEntry) -> Mark:
        """Return the mark of an entry. It is the same for all clients, but for its time."""
        own = table.record.properties.get(MARK) or _first_id(table)
        catalog = table.connection.catalog.describe_connection()
        return cls(own, table.path, catalog, table.uri, _now())

    @classmethod
    def parse(cls, data: bytes) -> Mark:
        """Return the mark in a file. Raises ValueError."""
        fields: Any = json.loads(data)
        try:
            own, catalog, location, since = (
                str(fields[name]) for name in ("id", "catalog", "location", "since")
            )
            table = tuple(map(str, fields["table"]))
            superseded = tuple(map(str, fields.get("superseded", ())))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(data[:100]) from error
        return cls(own, table, catalog, location, since, superseded)

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1).encode()

    def is_at(self, location: str) -> bool:
        """Return whether the table at a location has this mark of its own, not by a copy."""
        return locations.key(self.location) == locations.key(location)

    def after(self, former: Mark) -> Mark:
        """Return this mark, which replaces another one at its location."""
        ids = {*former.superseded, former.id} - {"", self.id}
        return replace(self, superseded=tuple(sorted(ids)))

    def released(self) -> Mark:
        """Return the mark that is left when the entry no longer manages the versions."""
        return replace(self, id="", since=_now())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _first_id(table: TableEntry) -> str:
    """Return the id of the mark that an entry gets; a copy that renames the entry keeps it."""
    record = table.record
    facts = (table.connection.catalog.describe_connection(), *record.path, record.identity or "")
    seed = record.properties.get(ENTRY_ID) or json.dumps(facts)
    return uuid.uuid5(uuid.NAMESPACE_OID, seed).hex


def require_manager(table: TableEntry) -> None:
    """Check that no other entry manages the versions at an entry's location, before a write.

    A mark whose entry no longer exists is deleted.

    Raises:
        ManagedElsewhereError: (19) one does.
        ServiceUnavailableError: (17) or another error of the storage or the catalog.
    """
    files = table.files(write=True)
    _require_manager(table, files, read(files))


def ensure(table: TableEntry) -> None:
    """Do the same as `require_manager` before a commit, and write the mark if it is missing."""
    files = table.files(write=True)
    found = read(files)
    _require_manager(table, files, found)
    if found is None and MARK in table.record.properties:
        files.put_own(MARK_FILE, Mark.of(table).to_bytes())


def _require_manager(table: TableEntry, files: TableFiles, found: Mark | None) -> None:
    if found is None or not _is_of_another(found, table):
        return
    manager = _manager_by(found, table)
    if manager is None:
        _retire(files, found)
        return
    what = f"Table '{table.name}' cannot be written through this entry: the versions at {table.uri}"
    if not manager.id:
        raise ManagedElsewhereError(
            f"{what} were managed by {manager}, and this entry lacks those committed since. Take "
            "them over with `lance-bridge managed begin --force`"
        )
    raise ManagedElsewhereError(
        f"{what} are managed by {manager}. Write through that entry. If it no longer exists, make "
        "this one the manager with `lance-bridge managed begin --force`"
    )


def _retire(files: TableFiles, mark: Mark) -> None:
    """Delete a mark, but for what entries of other catalogs need of it; a failure is logged."""
    if not mark.superseded:
        discard(files, MARK_FILE)
        return
    try:
        files.put_over(MARK_FILE, mark.released().to_bytes())
    except LanceNamespaceError as error:
        logger.warning("the mark in %s remains: %s", files.location, error)


def require_id(files: TableFiles, own: str) -> None:
    """Check that no mark with another id counts at a location, without looking for its entry.

    Raises:
        ManagedElsewhereError: (19)
    """
    found = read(files)
    if found is not None and found.is_at(files.location) and found.id != own:
        raise ManagedElsewhereError(
            f"The versions at {files.location} are managed by {found}: the latest version of "
            "another entry does not replace one of them"
        )


def other_manager(table: TableEntry) -> Mark | None:
    """Implement `Table.other_manager`."""
    return _manager_by(read(table.files()), table)


def find_manager(connection: Connection, path: Path, location: str) -> Mark | None:
    """Return the mark of the entry that manages the versions at a location, if there is one.

    None also if the storage cannot be read: the first write through a new entry checks it.

    Args:
        path: The entry that is to be added, or replaced.

    Raises:
        ManagedElsewhereError: (19) the mark cannot be read.
        LanceNamespaceError: an entry of the catalog cannot be read.
    """
    table = TableEntry(connection, TableRecord(path, location))
    try:
        found = read(TableFiles(table.storage(vend=False), location))
    except ManagedElsewhereError:
        raise
    except LanceNamespaceError as error:
        logger.info("it is not known whether another entry manages %s: %s", location, error)
        return None
    return _manager_by(found, table)


def find_former(table: TableEntry) -> TableEntry | None:
    """Return the entry that manages the versions at a table's location, if this catalog has it."""
    found = _read_any(table.files(write=True))
    if found is None or not found.id or not _is_of_another(found, table):
        return None
    record = _find_entry(table.connection, found)
    if record is None or record.path == table.path:
        return None
    return TableEntry(table.connection, record)


def _is_of_another(mark: Mark, table: TableEntry) -> bool:
    """Return whether a mark is of another entry, and was not copied with the table.

    The entry may be becoming managed, and not have the mark's id yet. If no entry manages the
    versions any more, the mark is only for those that did before.
    """
    own = table.record.properties.get(MARK)
    if not mark.is_at(table.location):
        return False
    if not mark.id:
        return own in mark.superseded
    return mark.id not in (own, _first_id(table))


def _manager_by(mark: Mark | None, table: TableEntry) -> Mark | None:
    """Return a mark with the present name of its entry, if that is another one and still exists.

    The entry of another catalog cannot be looked up, and counts.

    Args:
        table: The entry at hand, which may be registered again.

    Raises:
        LanceNamespaceError: an entry cannot be read.
    """
    if mark is None or not _is_of_another(mark, table):
        return None
    if not mark.id:
        return mark
    connection = table.connection
    record = _find_entry(connection, mark)
    if record is not None:
        return None if record.path == table.path else replace(mark, table=record.path)
    return None if mark.catalog == connection.catalog.describe_connection() else mark


def _find_entry(connection: Connection, mark: Mark) -> TableRecord | None:
    """Return the entry of a mark if this catalog has it.

    Raises:
        LanceNamespaceError: it cannot be known, because an entry or a namespace cannot be read.
    """
    if len(mark.table) == connection.capabilities.levels + 1:
        entry = connection.find_table(mark.table)
        if entry is not None and entry.properties.get(MARK) == mark.id:
            return entry
    if mark.catalog != connection.catalog.describe_connection():
        return None
    # Another tool may have renamed it.
    named = Named(frozenset(connection.named_namespaces))
    scan = scan_locations(connection.catalog, named, _explain, everywhere=True)
    found = (record for record, _ in scan.records if record.properties.get(MARK) == mark.id)
    return next(found, None)


def _explain(what: str, error: LanceNamespaceError) -> str:
    return (
        f"{what} may have the entry that manages the table's versions, and cannot be read: {error}"
    )


def read(files: TableFiles) -> Mark | None:
    """Return the mark at a location, or None if there is none.

    Raises:
        ManagedElsewhereError: (19) it cannot be read.
        ServiceUnavailableError: (17) or another error of the storage.
    """
    data = files.read(MARK_FILE)
    if data is None:
        return None
    try:
        return Mark.parse(data)
    except ValueError as error:
        raise ManagedElsewhereError(
            f"{files.location}/{MARK_FILE}, which says which entry manages the table's versions, "
            "cannot be read. Delete the file if you know that no other entry does"
        ) from error


def place(table: TableEntry, *, force: bool) -> str:
    """Write the mark of an entry that is about to manage its versions; return the mark's id.

    A local directory is not created for it: then the first commit writes it.

    Args:
        force: Whether to replace the mark of another entry.

    Raises:
        ManagedElsewhereError: (19) another entry manages them.
        ConcurrentModificationError: (14) another client writes or removes a mark.
        ServiceUnavailableError: (17) or another error of the storage.
    """
    mark, files = Mark.of(table), table.files(write=True)
    if locations.is_local(table.uri) and not is_directory(table.uri):
        return mark.id
    if files.put_own(MARK_FILE, mark.to_bytes()):
        return mark.id
    found = _read_any(files) if force else read(files)
    if found is None and not force:
        raise concurrent_modification(table.path)
    if found is not None and found.id == mark.id:
        return mark.id
    if found is not None and not force:
        _require_manager(table, files, found)
    if found is not None and found.is_at(mark.location):
        mark = mark.after(found)
    files.put_over(MARK_FILE, mark.to_bytes())
    return mark.id


def _read_any(files: TableFiles) -> Mark | None:
    """Return the mark at a location, or None if there is none that can be read."""
    try:
        return read(files)
    except ManagedElsewhereError:
        return None


def move(table: TableEntry) -> None:
    """Write the mark of a renamed entry. A failure is logged, and costs a search for the entry."""
    if MARK not in table.record.properties:
        return
    try:
        require_manager(table)
        files, mark = table.files(write=True), Mark.of(table)
        found = read(files)
        mark = mark if found is None else mark.after(found)
        files.put_over(MARK_FILE, mark.to_bytes())
    except LanceNamespaceError as error:
        logger.warning("the mark of %s has its former name: %s", table.name, error)


def remove(table: TableEntry, mark_id: str | None = None) -> None:
    """Delete the mark of an entry that no longer manages its versions; a failure is logged.

    Args:
        mark_id: The id of the mark, if the entry does not have it.
    """
    own = mark_id or table.record.properties.get(MARK)
    files = table.files(write=True)
    try:
        found = read(files)
        if found is not None and found.id == own:
            _retire(files, found)
    except LanceNamespaceError as error:
        logger.warning("the mark of %s in %s remains: %s", table.name, table.uri, error)
