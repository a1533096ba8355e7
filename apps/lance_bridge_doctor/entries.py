"""What is wrong with one table: its location, its marks, and what is in storage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, STORAGE, TableRecord
from lance_bridge.entries.declarations import DECLARED_AT
from lance_bridge.managed import foreign
from lance_bridge.managed.state import LATEST, State, state_of
from lance_bridge.names import written
from lance_bridge.table_files import RESERVED_FILE
from lance_bridge.tables.history.manifests import TableFiles, VersionDirectory

from . import clocks
from .connection import of_storage
from .findings import Commands, Finding, Kind, both

_MANAGERS = (STORAGE, "catalog", IMPLEMENTATION)
"""What `managed_by` may say; ``catalog`` is another implementation's word for storage."""
_OWNED = "MANAGED"
"""How catalogs' kinds of tables begin whose files the catalog may delete."""


@dataclass(frozen=True)
class Examiner:
    """Looks at tables, and changes nothing. ``idle`` is in seconds.

    What crashes left is told only where nothing has happened for as long: a first write, which has
    no version until it ends, looks the same.
    """

    bridge: Bridge
    commands: Commands
    idle: float

    def of_name(self, records: Sequence[TableRecord]) -> list[Finding]:
        """Return what is wrong with a name, for which a catalog may list more than one entry."""
        first, *others = records
        return self._of_broken_name(records) if others else self.of_table(first)

    def _of_broken_name(self, records: Sequence[TableRecord]) -> list[Finding]:
        try:
            self.bridge.catalog.load_table(records[0].path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return []  # dropped meanwhile
        except LanceNamespaceError as error:
            entries = "; ".join(f"{each.identity} at {each.location}" for each in records)
            again = self.commands.on_catalog(["doctor"])
            message = f"{error}. The entries are {entries}"
            return [Finding(Kind.BROKEN_NAME, written(records[0].path), message, again)]
        return []  # read while it was changed

    def of_table(self, record: TableRecord) -> list[Finding]:
        """Return what is wrong with a Lance table's entry and its storage."""
        if record.link_to:
            return []  # its target's, which is looked at where it is
        found = self._of_entry(record)
        return found if found and self._is_still_there(record) else []

    def _is_still_there(self, record: TableRecord) -> bool:
        """Return whether the table has not been dropped since its entry was read."""
        try:
            return self.bridge.catalog.load_table(record.path).identity == record.identity
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        except LanceNamespaceError:
            return True

    def _of_entry(self, record: TableRecord) -> list[Finding]:
        if not record.location:
            message = "Its entry has no location, so that nobody can open it"
            return [self._gone(record, message)]
        try:
            state = state_of(record)
        except InvalidTableStateError as error:
            return [self._anew(record, str(error))]
        found = [*clocks.of_entry(record, state, time.time()), *self._marks(record, state)]
        try:
            return [*found, *self._stored(record, state)]
        except LanceNamespaceError as error:
            subject = written(record.path)
            return [*found, of_storage(error, subject, record.location, self.commands)]

    # -- marks -----------------------------------------------------------------------------------

    def _marks(self, record: TableRecord, state: State | None) -> Iterator[Finding]:
        manager = record.properties.get(MANAGED_BY, STORAGE).lower()
        if manager not in _MANAGERS or (manager == IMPLEMENTATION and state is None):
            yield self._anew(
                record,
                f"It is marked {MANAGED_BY}={manager}, and its entry has no version of ours: "
                "nothing can be written through this catalog",
            )
        elif state is None and LATEST in record.properties:
            yield Finding(
                Kind.MARKS_DISAGREE,
                written(record.path),
                f"Its entry has its latest version, as tables have that the catalog manages, and "
                f"is marked {MANAGED_BY}={manager}: commits go past the catalog",
                self.commands.on_catalog(["managed", "begin"], written(record.path)),
            )
        if record.kind.upper().startswith(_OWNED):
            yield self._anew(
                record,
                f"The catalog has it as {record.kind}: others that drop it there delete its files",
            )

    def _anew(self, record: TableRecord, message: str) -> Finding:
        """Return a finding that another entry for the same data mends."""
        name, place = written(record.path), locations.for_lance(record.location or "")
        command = both(
            self.commands.on_table("deregister", name),
            self.commands.on_table("register", name, place),
        )
        return Finding(Kind.MARKS_DISAGREE, name, message, command)

    # -- storage ---------------------------------------------------------------------------------

    def _stored(self, record: TableRecord, state: State | None) -> Iterator[Finding]:
        location = record.location or ""
        storage = self.bridge.storage(record)
        if not storage.has_dataset(location):
            yield from self._without_versions(record, state)
        elif state is not None:
            yield from self._managed(record, state)

    def _without_versions(self, record: TableRecord, state: State | None) -> Iterator[Finding]:
        place = locations.for_lance(record.location or "")
        files = TableFiles(self.bridge.storage(record), record.location or "").list("")
        is_declared = DECLARED_AT in record.properties if state is None else state.version == 0
        # A catalog that makes directories has one left, with a mark, from the declaration on.
        is_lost = not files and self.bridge.capabilities.makes_directories
        if not is_declared or is_lost or _had_versions([meta["path"] for meta in files]):
            what = "files, but no version, are" if files else "nothing is"
            yield self._gone(record, f"Its entry is there, and {what} at {place}")
            return
        quiet = min(
            [self.bridge.declarations.age(record)]
            + [time.time() - meta["last_modified"].timestamp() for meta in files]
        )
        if quiet < self.idle:
            return
        left = [meta for meta in files if meta["path"] != RESERVED_FILE]
        what = f"has {len(left)} files, but no version" if left else "was never written"
        yield Finding(
            Kind.DECLARED_ONLY,
            written(record.path),
            f"It is declared and {what} at {place}, for {_hours(quiet)}: who declared it has died, "
            "or its data was deleted",
            self.commands.on_table("drop", written(record.path), "--if-only-declared", "--yes"),
        )

    def _gone(self, record: TableRecord, message: str) -> Finding:
        name = written(record.path)
        command = self.commands.on_table("deregister", name)
        return Finding(Kind.LOCATION_GONE, name, message, command)

    def _managed(self, record: TableRecord, state: State) -> Iterator[Finding]:
        name = written(record.path)
        directory = VersionDirectory(TableFiles(self.bridge.storage(record), record.location or ""))
        staged = directory.within(state.staged) if state.staged else ""
        is_there = directory.find(state.version) or (staged and directory.files.head(staged))
        if state.version and not is_there:
            yield self._anew(
                record, f"Its entry says that version {state.version} is the latest, which is gone"
            )
            return
        past = foreign.look(self.bridge, record)
        if past.versions or past.set_aside:
            versions = ", ".join(str(each.version) for each in past.versions)
            what = f"versions {versions}" if versions else f"{len(past.set_aside)} set aside"
            adoptable = any((version or 0) > state.version for version in past.set_aside_versions)
            verb = "adopt" if versions or adoptable else "discard"
            yes = ["--yes"] if verb == "discard" else []
            yield Finding(
                Kind.OUT_OF_BAND,
                name,
                f"Something wrote past the catalog, and is not shown: {what}",
                self.commands.on_catalog(["managed", verb], name, *yes),
            )


def _had_versions(paths: list[str]) -> bool:
    """Return whether there is more than a first write leaves that was not committed.

    That are data, and at most the record of its transaction.
    """
    others = [each for each in paths if each != RESERVED_FILE and not each.startswith("data/")]
    return len(others) > 1 or any(not each.startswith("_transactions/") for each in others)


def _hours(seconds: float) -> str:
    if seconds == float("inf"):
        return "an unknown time"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
