"""Registers Lance tables in a catalog, without moving data.

``register`` takes them from a directory, ``entries`` from another catalog.

Lance's directory namespace has two layouts. Version 1 is a directory ``<name>.lance`` for each
table. Version 2 is a manifest: a Lance table ``__manifest`` with a row for each table and
namespace, whose tables may be anywhere below the root. A directory may have both. Source: Lance
Directory Namespace spec, and the files that pylance writes.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import lance
import obstore
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
    TableNotFoundError,
)
from pydantic import Field

from lance_bridge import locations
from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import LANCE_ERRORS, display, invalid, translate_lance_errors
from lance_bridge.requests import Ref, parse_table_namespace
from lance_bridge.storage import RESERVED_FILE, store_errors
from lance_bridge.table import Table

from .. import Level
from ..endpoints import Directory, Endpoints, Selection, directory_at, entries_of
from ..migration import MigrationType, Step, StepContext, Survey
from ..plan import Facts, Item, ItemType, Problem, blocker, warning
from ..record import Check
from ..targets import (
    AFTER,
    NO_DATA,
    Candidate,
    EntryFacts,
    create_entry,
    entries_of_names,
    entry_facts,
    entry_fingerprint,
    manage_versions,
    plan_items,
    require_unchanged,
    undo_entry,
)
from .verification import compare

_HAS_DATA = "has data"
MANIFEST = "__manifest"
DELIMITER = "$"
"""The delimiter of identifiers in the manifest."""
_DEREGISTERED_FILE = ".lance-deregistered"
_SUFFIX = ".lance"
_THREADS = 16


class _Registration(MigrationType):
    """Registers tables that keep their locations."""

    def steps(self, item: Item) -> Sequence[Step]:
        steps = [Step("entry", _create, undo_entry, require_unchanged)]
        if EntryFacts.of(item).managed:
            steps.append(Step("manage", manage_versions, None, require_unchanged))
        return steps

    def prefetch(self, endpoints: Endpoints, items: Sequence[Item]) -> Mapping[str, Any]:
        keys = {item.target: item.key for item in items if item.type is ItemType.TABLE}
        found = entries_of_names(endpoints.target_tables, keys)
        return {key: found[path] for path, key in keys.items() if path in found}

    @abstractmethod
    def open_source(self, work: StepContext, version: int) -> lance.LanceDataset:
        """Open a version of the source through the source's own catalog or store."""

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:
        """Compare an entry with the plan, and its table with the source."""
        entry: TableEntry | None = work.prefetched
        expected = EntryFacts.of(work.item).location
        found = entry.record.location if entry is not None and entry.record.is_lance else None
        is_same = found is not None and locations.key(found) == locations.key(expected)
        checks = [Check(name="entry", ok=is_same, expected=expected, found=found)]
        if entry is None or not is_same:
            return checks
        dataset = Table.of(entry).open()
        source = self.open_source(work, int(dataset.version))
        return [*checks, *compare(source, dataset, level)]


def _create(work: StepContext) -> Facts:
    facts = EntryFacts.of(work.item)
    return {AFTER: entry_facts(create_entry(work, facts.location, facts.properties))}


# -- a directory -----------------------------------------------------------------------------------


class RegisterOptions(Selection):
    """Which tables to register, and where.

    Attributes:
        namespace: The namespace of tables in the root of the directory. Tables of child namespaces
            keep their namespaces; if the catalog has more levels than these, they are prefixed
            with the first names of `namespace`.
        flatten: Puts all tables into `namespace`, with the names of child namespaces and table
            joined by ``_``.
        make_namespaces: Creates missing namespaces.
    """

    namespace: tuple[str, ...] = Field(min_length=1)
    flatten: bool = False
    make_namespaces: bool = True


class Register(_Registration):
    """The migration type that registers the tables of a directory."""

    name = "register"
    options_type = RegisterOptions
    connect_source = staticmethod(directory_at)

    def survey(self, endpoints: Endpoints, options: RegisterOptions) -> Survey:
        tables, source = endpoints.target_tables, endpoints.source
        capabilities = tables.connection.capabilities
        parse_table_namespace(options.namespace, capabilities)
        found = [each for each in tables_in(source) if options.selects(each.names)]
        candidates = [_candidate(each, options, capabilities.levels) for each in found]
        items = plan_items(tables, candidates, make_namespaces=options.make_namespaces)
        return Survey(items, () if found else (f"There are no tables in {source.root}",))

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        location = EntryFacts.of(item).location
        if not endpoints.source.storage.has_dataset(location):
            raise TableNotFoundError(f"There is no longer a Lance table at {location}")
        return _HAS_DATA

    def open_source(self, work: StepContext, version: int) -> lance.LanceDataset:
        location = EntryFacts.of(work.item).location
        options = work.endpoints.source.storage.options or None
        with translate_lance_errors(f"The table at {location} could not be opened"):
            return lance.dataset(location, version=version, storage_options=options)


def _candidate(found: DirectoryTable, options: RegisterOptions, levels: int) -> Candidate:
    target = _target_of(found.names, options, levels)
    problem, nothing_to_do = found.problem, ""
    if not target and not problem:
        problem = f"It is in namespace '{display(found.names[:-1])}', for which the catalog has "
        problem += "too few levels: flatten the namespaces"
    if not found.has_data and not found.problem:
        nothing_to_do = NO_DATA if found.is_reserved else "It has no data"
    return Candidate(
        source=found.names,
        target=target or found.names,
        facts=EntryFacts(location=found.location, properties=dict(found.properties)),
        fingerprint=_HAS_DATA,
        nothing_to_do=nothing_to_do,
        problems=(blocker(problem),) if problem else (),
    )


def _target_of(
    names: tuple[str, ...], options: RegisterOptions, levels: int
) -> tuple[str, ...] | None:
    *inner, table = names
    if options.flatten:
        return (*options.namespace, "_".join([*inner, table]))
    if not inner:
        return (*options.namespace, table)
    return (*options.namespace[: levels - len(inner)], *names) if len(inner) <= levels else None


# -- reading a directory ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectoryTable:
    """One table of a directory.

    Attributes:
        names: The names of its namespaces in the directory, and its own name.
        location: Its location in the form that Lance uses.
        properties: The properties in the manifest.
        has_data: Whether it has a version.
        is_reserved: Whether it was declared.
        problem: Why it cannot be registered, or "".
    """

    names: tuple[str, ...]
    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    has_data: bool = True
    is_reserved: bool = False
    problem: str = ""


def tables_in(directory: Directory) -> list[DirectoryTable]:
    """Return all tables of a directory, sorted by name.

    Deregistered tables are left out. For a table in both the manifest and the listing, the manifest
    takes precedence.

    Raises:
        InvalidTableStateError: (19) the manifest cannot be read.
        ServiceUnavailableError: (17) the storage is unavailable.
    """
    named = list(_read_manifest(directory))
    known = {locations.key(each.location) for each in named}
    listed = (each for each in _list_tables(directory) if locations.key(each.location) not in known)
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda each: _inspect(directory, each), [*named, *listed])
        return sorted((each for each in found if each is not None), key=lambda each: each.names)


def _list_tables(directory: Directory) -> Iterator[DirectoryTable]:
    for name in _children(directory, directory.root)[0]:
        if name.endswith(_SUFFIX) and name != _SUFFIX:
            yield DirectoryTable(
                (name.removesuffix(_SUFFIX),), locations.join(directory.root, name)
            )


def _inspect(directory: Directory, found: DirectoryTable) -> DirectoryTable | None:
    """Return a table with the state of its location, or None if it was deregistered."""
    if found.problem:
        return found
    try:
        directories, files = _children(directory, found.location)
        if _DEREGISTERED_FILE in files:
            return None
        has_versions = "_versions" in directories and directory.storage.has_dataset(found.location)
    except (InvalidInputError, PermissionDeniedError) as error:
        return replace(found, problem=str(error))
    return replace(found, has_data=has_versions, is_reserved=RESERVED_FILE in files)


def _children(directory: Directory, location: str) -> tuple[list[str], list[str]]:
    """Return the names of directories and files at a location, which need not exist."""
    with store_errors(location):
        if locations.is_local(location):
            return _local_children(FilePath(locations.for_lance(location)))
        listed = obstore.list_with_delimiter(directory.storage.store_at(location))
        directories = [path.rstrip("/").rsplit("/", 1)[-1] for path in listed["common_prefixes"]]
        return directories, [meta["path"].rsplit("/", 1)[-1] for meta in listed["objects"]]


def _local_children(directory: FilePath) -> tuple[list[str], list[str]]:
    children: dict[str, bool] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        children = {each.name: each.is_dir() for each in directory.iterdir()}
    return [n for n in children if children[n]], [n for n in children if not children[n]]


def _read_manifest(directory: Directory) -> Iterator[DirectoryTable]:
    location = locations.join(directory.root, MANIFEST)
    if not directory.storage.has_dataset(location):
        return
    columns = ["object_id", "object_type", "location", "metadata"]
    try:
        manifest = lance.dataset(location, storage_options=directory.storage.options or None)
        rows = manifest.to_table(columns=columns).to_pylist()
    except LANCE_ERRORS as error:
        raise InvalidTableStateError(
            f"{location} is not the manifest of a directory of tables, or cannot be read: "
            f"{str(error)[:200]}"
        ) from error
    yield from (_from_row(directory, row) for row in rows if row["object_type"] == "table")


def _from_row(directory: Directory, row: Mapping[str, Any]) -> DirectoryTable:
    names = tuple(row["object_id"].split(DELIMITER))
    location = row["location"]
    if not location:
        return DirectoryTable(names, "", problem="The directory's manifest has no location for it")
    is_relative = "://" not in location and not location.startswith("/")
    full = locations.join(directory.root, location) if is_relative else location
    return DirectoryTable(names, locations.for_lance(full), _properties(row["metadata"]))


def _properties(metadata: str | None) -> dict[str, str]:
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


# -- another catalog -------------------------------------------------------------------------------


class EntriesOptions(Selection):
    """Which tables to register, and where.

    Attributes:
        namespace: With as many names as the target has levels, the namespace of all tables. With
            fewer names, the parent of the tables' own namespaces: with ``main``, ``sales.t``
            becomes ``main.sales.t``.
        make_namespaces: Creates missing namespaces.
    """

    namespace: tuple[str, ...] = ()
    make_namespaces: bool = True


class Entries(_Registration):
    """The migration type that registers the tables of another catalog."""

    name = "entries"
    options_type = EntriesOptions

    def survey(self, endpoints: Endpoints, options: EntriesOptions) -> Survey:
        if endpoints.source_address.connection == endpoints.target_address.connection:
            raise invalid("Source and target are the same catalog: name two")
        found, notes = find_candidates(endpoints, options)
        warned = (
            "Both catalogs have entries for the same files then: in one of them, deregister tables "
            "and never drop them"
        )
        tables, candidates = endpoints.target_tables, [each for _, each in found]
        items = plan_items(tables, candidates, make_namespaces=options.make_namespaces)
        return Survey(items, [warned, *notes])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.source_tables.load_entry(item.source))

    def open_source(self, work: StepContext, version: int) -> lance.LanceDataset:
        return work.source_tables.load(work.item.source).open(Ref(version))


def find_candidates(
    endpoints: Endpoints, options: EntriesOptions
) -> tuple[list[tuple[TableEntry, Candidate]], list[str]]:
    """Return the selected Lance tables with their candidates, and notes about other tables.

    Raises:
        InvalidInputError: (13) the namespace has more names than the target has levels.
    """
    levels = endpoints.target_tables.connection.capabilities.levels
    if len(options.namespace) > levels:
        raise invalid(f"The namespace has more names than the catalog's {levels} levels")
    entries = list(entries_of(endpoints.source_tables, options))
    ours = [each for each in entries if each.record.is_lance]
    others = len(entries) - len(ours)
    notes = [f"{others} entries that are not Lance tables are skipped"] if others else []
    return [(each, _candidate_of_entry(each, options, levels)) for each in ours], notes


def _candidate_of_entry(entry: TableEntry, options: EntriesOptions, levels: int) -> Candidate:
    *own, name = entry.path
    return Candidate(
        source=entry.path,
        target=(*_namespace_of(tuple(own), options.namespace, levels), name),
        facts=EntryFacts(location=entry.location, properties=entry.properties),
        fingerprint=entry_fingerprint(entry),
        problems=tuple(_problems(entry)),
    )


def _namespace_of(own: Path, outer: Path, levels: int) -> Path:
    if len(outer) == levels:
        return outer
    inner = own[len(own) - (levels - len(outer)) :]
    return (*outer, *inner)


def _problems(entry: TableEntry) -> Iterator[Problem]:
    if not entry.location:
        yield blocker("Its entry has no location")
    if entry.record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
        yield blocker(
            "The source catalog manages its versions, which are not visible through the target: "
            "leave them to its storage first (management --to storage)"
        )
    if entry.record.link_to:
        yield warning(f"It is a link to {entry.record.link_to}; the new entry will not be one")
