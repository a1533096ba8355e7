"""Finds problems of one table: its location, its entry, and its files in storage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge.catalog import IMPLEMENTATION, LATEST, MANAGED_BY, STORAGE
from lance_bridge.entry import TableEntry
from lance_bridge.errors import BrokenNameError
from lance_bridge.managed import OutOfBand
from lance_bridge.managed_state import State
from lance_bridge.names import written
from lance_bridge.storage import RESERVED_FILE, DataState, Presence, VersionDirectory
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from .catalog_checks import check_entry, storage_finding
from .findings import Commands, Finding, Kind

_MANAGERS = (STORAGE, "catalog", IMPLEMENTATION)
"""Values of `managed_by`; ``catalog`` is another implementation's value for storage."""
_OWNED = "MANAGED"
"""The prefix of table types whose files the catalog may delete."""
_AGED = timedelta(days=3)
"""Lance's clean-up deletes files that no version names once they are 7 days old."""
_RISK = (
    "Decide soon: a clean-up by the table's location, such as LanceDB's optimize(), reads only "
    "versions, and deletes data that is older than 7 days"
)


@dataclass(frozen=True)
class TableChecks:
    """Checks tables, and changes nothing. ``idle`` is in seconds.

    Leftovers of a crash are reported only after that time without changes: a first write, which has
    no version until it ends, looks the same.
    """

    tables: Tables
    commands: Commands
    idle: float

    def check(self, entries: Sequence[TableEntry]) -> list[Finding]:
        """Return the problems of a table; a broken name has more than one entry."""
        first, *others = entries
        return self._check_broken_name(entries) if others else self._check_table(first)

    def _check_broken_name(self, entries: Sequence[TableEntry]) -> list[Finding]:
        try:
            self.tables.load_entry(entries[0].path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return []  # dropped concurrently
        except LanceNamespaceError as error:
            each_at = "; ".join(f"{e.record.identity} at {e.record.location}" for e in entries)
            message = f"{error}. The entries are {each_at}"
            return [broken_name(written(entries[0].path), message, error, self.commands)]
        return []  # it was changed while it was listed

    def _check_table(self, entry: TableEntry) -> list[Finding]:
        if entry.record.link_to:
            return []  # the target is checked itself
        found = self._check_entry(entry)
        return found if found and self._still_exists(entry) else []

    def _still_exists(self, entry: TableEntry) -> bool:
        """Return whether the table has not been dropped since its entry was read."""
        try:
            found = self.tables.load_entry(entry.path)
            return found.record.identity == entry.record.identity
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        except LanceNamespaceError:
            return True

    def _check_entry(self, entry: TableEntry) -> list[Finding]:
        if not entry.location:
            message = "Its entry has no location"
            return [self._finding(Kind.LOCATION_GONE, entry, message, "table deregister")]
        try:
            found = [
                *check_entry(entry, time.time()),
                *self._check_ownership(entry),
                *self._check_fields(entry),
            ]
        except InvalidTableStateError as error:
            return [self._inconsistent(entry, str(error))]
        try:
            return [*found, *self._check_storage(Table.of(entry))]
        except LanceNamespaceError as error:
            name = written(entry.path)
            return [*found, storage_finding(error, entry.location, self.commands, name)]

    # -- the entry -------------------------------------------------------------------------------

    def _check_ownership(self, entry: TableEntry) -> Iterator[Finding]:
        record, state = entry.record, entry.managed
        manager = record.properties.get(MANAGED_BY, STORAGE).lower()
        is_others = manager == IMPLEMENTATION and state is None and not entry.manager
        if manager not in _MANAGERS or is_others:
            yield self._inconsistent(
                entry,
                f"Its entry has {MANAGED_BY}={manager}, but no version that lance-bridge "
                "committed: nothing can be written through this catalog",
            )
        elif state is None and LATEST in record.properties:
            message = (
                f"Its entry has its latest version, as for a table that the catalog manages, but "
                f"{MANAGED_BY}={manager}: commits bypass the catalog"
            )
            yield self._finding(Kind.INCONSISTENT_ENTRY, entry, message, "managed begin")
        if record.entry_type.upper().startswith(_OWNED):
            yield self._inconsistent(
                entry,
                f"The catalog has it as {record.entry_type}: "
                "dropping it elsewhere deletes its files",
            )

    def _check_fields(self, entry: TableEntry) -> Iterator[Finding]:
        """Yield a finding for fields that other tools refuse, if the catalog can change them."""
        if not entry.record.problems or self.tables.connection.capabilities.no_alter:
            return
        message = (
            f"Its entry has {', '.join(entry.record.problems)}: other tools may refuse it, or fail "
            "to list its namespace"
        )
        yield self._finding(Kind.INCOMPLETE_ENTRY, entry, message, "table refresh-entry")

    def _inconsistent(self, entry: TableEntry, message: str) -> Finding:
        """Return a finding that a new entry for the same data fixes."""
        found = self._finding(Kind.INCONSISTENT_ENTRY, entry, message, "table deregister")
        register = self.commands.on_catalog("table register", found.subject, entry.uri)
        return replace(found, command=f"{found.command} && {register}")

    def _finding(
        self, kind: Kind, entry: TableEntry, message: str, command: str, *arguments: str
    ) -> Finding:
        """Return a finding of a table, which is the first argument of the command."""
        name = written(entry.path)
        return Finding(kind, name, message, self.commands.on_catalog(command, name, *arguments))

    # -- storage ---------------------------------------------------------------------------------

    def _check_storage(self, table: Table) -> Iterator[Finding]:
        found = table.presence()
        if found.error is not None:
            raise found.error
        if found.state is DataState.MISSING:
            message = f"Its data is missing: there is no version at {table.uri}, {found.reason}"
            yield self._finding(Kind.LOCATION_GONE, table, message, "table deregister")
            return
        problems = [*self._check_manager(table)]
        if table.managed is not None and not problems:
            problems += self._check_versions(table, table.managed)
        yield from problems
        if found.state is DataState.PRESENT and not problems:
            yield from self._check_columns(table)
        if found.state is not DataState.PRESENT and not problems:
            yield from self._check_unwritten(table, found)

    def _check_manager(self, table: Table) -> Iterator[Finding]:
        """Yield a finding if another entry manages the versions, or did when this one was added."""
        other = table.other_manager()
        if table.manager and not other:
            yield self._inconsistent(
                table, f"It only reads, because its versions were managed by {table.manager}"
            )
        if other is None or table.manager:
            return
        message = (
            f"Its versions are managed by {other}: this entry writes nothing, and what pylance or "
            "LanceDB write through it bypasses that one"
        )
        if other.id:
            yield self._finding(Kind.MANAGED_ELSEWHERE, table, message, "table deregister")
        else:
            message = f"Its versions were managed by {other}: it lacks those committed since"
            yield self._finding(Kind.MANAGED_ELSEWHERE, table, message, "managed begin", "--force")

    def _check_columns(self, table: Table) -> Iterator[Finding]:
        problem = table.find_outdated_columns()
        if problem:
            yield self._finding(
                Kind.OUTDATED_COLUMNS, table, f"Its entry {problem}", "table refresh-entry"
            )

    def _check_unwritten(self, table: Table, found: Presence) -> Iterator[Finding]:
        files = table.files().list("")
        idle = min(
            [self.tables.connection.declarations.age(table.record)]
            + [time.time() - meta["last_modified"].timestamp() for meta in files]
        )
        if idle < self.idle:
            return
        if found.state is DataState.UNDECIDED:
            message = (
                f"There is no version at {table.uri}, and nothing says whether there ever was one: "
                "it was never written, or its data was deleted"
            )
            yield self._finding(Kind.DECLARED_ONLY, table, message, "table deregister")
            return
        count = sum(meta["path"] != RESERVED_FILE for meta in files)
        what = f"has {count} files but no version" if count else "was never written"
        message = (
            f"It is declared and {what} at {table.uri}, for {_format_age(idle)}: its writer failed"
        )
        yield self._finding(
            Kind.DECLARED_ONLY, table, message, "table drop", "--if-only-declared", "--yes"
        )

    def _check_versions(self, table: Table, state: State) -> Iterator[Finding]:
        directory = VersionDirectory(table.files())
        staged = directory.within(state.staged) if state.staged else ""
        has_final = directory.find(state.version) is not None
        has_version = has_final or (staged and directory.files.head(staged))
        found = table.out_of_band_versions()
        if state.version and not has_version:
            yield self._version_gone(table, state, found)
        elif found.versions or found.quarantined:
            yield self._out_of_band(table, found, state)
        elif staged and not has_final and _is_aged(table):
            message = (
                f"The manifest of version {state.version} has no final name yet: its writer died. "
                f"{_RISK}"
            )
            yield self._finding(Kind.UNPROTECTED_DATA, table, message, "table versions")

    def _version_gone(self, table: Table, state: State, found: OutOfBand) -> Finding:
        message = f"Version {state.version}, the latest by its entry, is gone"
        later = {each.version for each in found.versions}
        later |= {each for each in found.quarantined_versions if each and each > state.version}
        if later:
            message = f"{message}; version {max(later)} is there, without the catalog"
            return self._finding(Kind.INCONSISTENT_ENTRY, table, message, "managed adopt")
        message = f"{message}, and only older ones are there: restore its manifest from a backup"
        again = self.commands.on_catalog("doctor")
        return Finding(Kind.INCONSISTENT_ENTRY, written(table.path), message, again)

    def _out_of_band(self, table: Table, found: OutOfBand, state: State) -> Finding:
        later = [each for each in found.quarantined_versions if each and each > state.version]
        can_adopt = bool(found.versions or later)
        versions = ", ".join(str(each.version) for each in found.versions)
        what = f"versions {versions}" if versions else f"{len(found.quarantined)} quarantined"
        writers = f" by {', '.join(found.writers)}" if found.writers else ""
        message = f"Not visible, because committed without the catalog{writers}: {what}"
        if found.unique:
            message += f". Nothing else has the rows of {', '.join(found.unique)}"
        elif can_adopt:
            discard = self.commands.on_catalog("managed discard", written(table.path), "--yes")
            message += f". To delete them instead: {discard}"
        fix = ["managed adopt"] if can_adopt else ["managed discard", "--yes"]
        if found.unique and not can_adopt:
            fix = ["managed adopt", "--append"]
        kind = Kind.OUT_OF_BAND
        if _is_aged(table):
            kind, message = Kind.UNPROTECTED_DATA, f"{message}. {_RISK}"
        return self._finding(kind, table, message, *fix)


def _is_aged(table: Table) -> bool:
    """Return whether data that a clean-up by path may delete is old enough to say so."""
    since = table.unprotected_since()
    return since is not None and time.time() - since > _AGED.total_seconds()


def broken_name(name: str, message: str, error: LanceNamespaceError, commands: Commands) -> Finding:
    """Return a finding for a name with several entries, and how to keep others from breaking."""
    remedy = error.remedy if isinstance(error, BrokenNameError) else ""
    text = f"{message}. {remedy}" if remedy else message
    return Finding(Kind.BROKEN_NAME, name, text, commands.on_catalog("doctor"))


def _format_age(seconds: float) -> str:
    if seconds == float("inf"):
        return "an unknown time"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
