"""A diagnosis: the connection first, then tables, then storage, page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby, islice
from typing import TypeVar

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError

from lance_bridge.catalog import Path
from lance_bridge.config import named_catalogs
from lance_bridge.dotted_names import written
from lance_bridge.entry import TableEntry
from lance_bridge.errors import BrokenNameError
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge.paging import PageRequest
from lance_bridge.registry import connect, is_implementation, require_lance_bridge
from lance_bridge_federated.children import hides

from .checks import (
    TableChecks,
    broken_name,
    check_catalog,
    check_gateway,
    check_servers,
    properties_finding,
)
from .findings import Commands, Finding, Kind
from .orphans import Candidate, OccupiedLocations, Orphans, UnlistedNamespaces

MIN_IDLE = timedelta(hours=1)
"""More recent changes may be in progress."""

_REST = "rest"
"""The name of pylance's namespace that is a client of REST servers."""
_THREADS = 8
_TABLES, _STORAGE = "1", "2"
"""The first part of keys: tables come before directories without an entry."""

T = TypeVar("T")
Key = tuple[str, ...]
Report = Callable[[int, int | None], None]
"""Takes the number of objects that were checked, and their total if it is known."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of one page. ``page_token`` is None if everything was checked."""

    findings: tuple[Finding, ...]
    tables: int
    """Number of tables that were checked."""
    directories: int
    """Number of directories without an entry that were checked."""
    page_token: str | None = None
    catalogs: int | None = None
    """Number of catalogs of a gateway that were checked; None for a catalog."""


def diagnose(
    catalog: str,
    properties: Mapping[str, str] | None = None,
    *,
    limit: int = 1000,
    page_token: str | None = None,
    idle: timedelta = MIN_IDLE,
    report: Report = lambda _done, _total: None,
) -> Diagnosis:
    """Find problems of a catalog and its tables. Nothing is changed.

    Of a gateway, that is a server of lance-bridge as pylance's ``rest``, only its catalogs are
    checked: whether they respond to it.

    Args:
        catalog: As for `lance_bridge.connect`, with its properties.
        limit: Tables, and directories without an entry, to check. The connection and the clocks are
            checked each time, and all entries are read to compare storage with them.
        page_token: The token of an earlier diagnosis, to continue it.
        idle: Declared tables without data, and data without an entry, are skipped if they changed
            more recently: they may be in progress.
        report: Called as the diagnosis proceeds.

    Raises:
        InvalidInputError: (13) the limit, the token, or a catalog that is pylance's own, unless it
            is a gateway.
    """
    commands = Commands(catalog, dict(properties or {}), is_secret=lambda _key: True)
    try:
        is_configured = not is_implementation(catalog) and catalog in named_catalogs()
        commands = replace(commands, is_configured=is_configured)
        entry = named_catalogs()[catalog] if is_configured else {"impl": catalog}
        found = None if entry["impl"] == _REST else connect(catalog, properties)
    except LanceNamespaceError as error:
        return Diagnosis((properties_finding(error, commands),), 0, 0)
    if found is None:
        return _diagnose_gateway({**entry, **(properties or {})}, commands)
    with require_lance_bridge(found, catalog) as namespace:
        return _diagnose(namespace, commands, limit, page_token, idle=idle, report=report)


def _diagnose_gateway(properties: Mapping[str, str], commands: Commands) -> Diagnosis:
    found, catalogs = check_gateway(properties, replace(commands, is_secret=hides))
    return Diagnosis(tuple(found), 0, 0, catalogs=catalogs)


def diagnose_namespace(
    namespace: LanceNamespace,
    catalog: str,
    *,
    limit: int = 1000,
    page_token: str | None = None,
    idle: timedelta = MIN_IDLE,
) -> Diagnosis:
    """Find problems of a connected catalog, like `diagnose`.

    Args:
        catalog: Its name, for the commands that fix what is found.

    Raises:
        InvalidInputError: (13) the limit, the token, or a catalog that is pylance's own.
    """
    found = require_lance_bridge(namespace, catalog)
    return _diagnose(found, Commands(catalog), limit, page_token, idle=idle)


def diagnose_table(
    namespace: LanceNamespace,
    catalog: str,
    identifier: Sequence[str],
    *,
    idle: timedelta = MIN_IDLE,
) -> tuple[Finding, ...]:
    """Find problems of one table of a connected catalog. Nothing is changed.

    Args:
        catalog: Its name, for the commands that fix what is found.
        identifier: The identifier of the table in the namespace.

    Raises:
        InvalidInputError: (13) the catalog is pylance's own, or the identifier is malformed.
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
    """
    found = require_lance_bridge(namespace, catalog)
    commands = Commands(catalog, is_secret=found.config_type.is_secret)
    entry = found.tables.load_entry(found.tables.path_of(identifier))
    checks = TableChecks(found.tables, commands, idle.total_seconds())
    return tuple(checks.check([entry]))


def _diagnose(
    namespace: LanceBridgeNamespace,
    commands: Commands,
    limit: int,
    token: str | None,
    *,
    idle: timedelta,
    report: Report = lambda _done, _total: None,
) -> Diagnosis:
    page = PageRequest.parse(f"doctor {namespace.namespace_id()}", limit, token)
    commands = replace(commands, is_secret=namespace.config_type.is_secret)
    checks = TableChecks(namespace.tables, commands, idle.total_seconds())
    return _Page(namespace, checks, page, report).run()


@dataclass
class _Page:
    """One page of a diagnosis."""

    namespace: LanceBridgeNamespace
    checks: TableChecks
    page: PageRequest
    report: Report
    findings: list[Finding] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    """Of what was read."""

    def run(self) -> Diagnosis:
        self.findings += check_servers(self.checks.tables.connection.config)
        broken = check_catalog(self.namespace, self.checks.commands)
        if broken is not None:
            self.findings.append(broken)
        else:
            self.findings += self._check(self._entries(), self.checks.check)
            if self._remaining() > 0:
                self._check_storage()
        _, token = self.page.cut(self.keys)
        checked = Counter(kind for kind, *_ in self.keys[: self.page.limit])
        return Diagnosis(tuple(self.findings), checked[_TABLES], checked[_STORAGE], token)

    def _remaining(self) -> int:
        """Return how many more objects to read: one more than a page, to know if it is the last."""
        return (self.page.limit or 0) + 1 - len(self.keys)

    def _check(
        self, objects: Iterator[tuple[Key, T]], check: Callable[[T], list[Finding]]
    ) -> list[Finding]:
        """Check objects up to the page's end, and return the findings."""
        found: list[Finding] = []
        with ThreadPoolExecutor(_THREADS) as threads:
            while chunk := list(islice(objects, min(self._remaining(), _THREADS * 4))):
                kept = chunk[: self._remaining() - 1]
                self.keys += [key for key, _ in chunk]
                for findings in threads.map(check, [each for _, each in kept]):
                    found += findings
                self.report(len(self.keys[: self.page.limit]), None)
        return found

    # -- tables ----------------------------------------------------------------------------------

    def _entries(self) -> Iterator[tuple[Key, list[TableEntry]]]:
        after = self.page.after
        if after is not None and after[0] != _TABLES:
            return

        def leave_out(namespace: Path, error: LanceNamespaceError) -> None:
            name = written(namespace)
            self.findings.append(self._unreadable(name, error, "ns list", name))

        try:
            namespaces = sorted(self.checks.tables.namespaces(leave_out))
        except LanceNamespaceError as error:
            self.findings.append(self._unreadable(self.checks.commands.catalog, error, "ns list"))
            return
        for namespace in namespaces:
            if after is not None and (_TABLES, *namespace) < after[:-1]:
                continue
            yield from self._tables_of(namespace, after)

    def _tables_of(
        self, namespace: Path, after: Key | None
    ) -> Iterator[tuple[Key, list[TableEntry]]]:
        """Yield the entries by name; only a broken name has more than one."""
        last = after[-1] if after is not None and after[1:-1] == namespace else None
        try:
            scan = self.checks.tables.scan(namespace, lance_only=True, after=last)
            for path, entries in groupby(scan, key=lambda entry: entry.path):
                yield (_TABLES, *path), list(entries)
        except NamespaceNotFoundError:
            return  # dropped concurrently
        except LanceNamespaceError as error:
            name = written(namespace)
            self.findings.append(self._unreadable(name, error, "table list", name))

    def _unreadable(
        self, subject: str, error: LanceNamespaceError, command: str, *arguments: str
    ) -> Finding:
        """Return a finding that entries cannot be read; its command reads them again."""
        if isinstance(error, BrokenNameError):
            return broken_name(subject, str(error), error, self.checks.commands)
        fix = self.checks.commands.on_catalog(command, *arguments)
        return Finding(Kind.CATALOG, subject, str(error), fix)

    # -- storage ---------------------------------------------------------------------------------

    def _check_storage(self) -> None:
        try:
            orphans = self._orphans()
            has_room = len(self.keys) < (self.page.limit or 0)
            candidates, failed = orphans.candidates()
            self.findings += failed
            objects = self._after(candidates)
            found = self._check(objects, orphans.check)
            if found:
                self.findings += _recheck(found, self._orphans())
            if has_room or self._remaining() > 0:
                self.findings += self._check_names(orphans.occupied)
        except BrokenNameError as error:
            if not any(each.kind is Kind.BROKEN_NAME for each in self.findings):
                self.findings.append(
                    self._unreadable(self.checks.commands.catalog, error, "doctor")
                )
        except LanceNamespaceError as error:
            # An entry that cannot be read may be for any of the directories.
            self.findings.append(self._unreadable(self.checks.commands.catalog, error, "doctor"))

    def _check_names(self, occupied: OccupiedLocations) -> list[Finding]:
        """Return the broken names of which one entry at most is Lance's.

        The others are found among the tables. Called on the page on which directories begin, and on
        later ones, which return nothing.
        """
        after = self.page.after
        if after is not None and after[0] == _STORAGE:
            return []
        return [
            finding
            for entries in occupied.repeated
            if sum(entry.record.is_lance for entry in entries) < 2
            for finding in self.checks.check(entries)
        ]

    def _orphans(self) -> Orphans:
        occupied = OccupiedLocations.read(self.checks.tables)
        return Orphans(self.checks, occupied, UnlistedNamespaces(self.checks.tables))

    def _after(self, candidates: list[Candidate]) -> Iterator[tuple[Key, Candidate]]:
        for each in candidates:
            key = (_STORAGE, each.location)
            if self.page.after is None or key > self.page.after:
                yield key, each


def _recheck(found: list[Finding], orphans: Orphans) -> Iterator[Finding]:
    """Yield the findings that still apply after reading the entries again: some may be new."""
    candidates, _ = orphans.candidates()
    present = {each.location for each in candidates}
    for finding in found:
        is_of_data = finding.kind in (Kind.ORPHANED_DATA, Kind.UNKNOWN_DATA)
        if not is_of_data or finding.subject in present:
            yield finding
