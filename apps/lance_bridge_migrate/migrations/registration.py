"""Plan entries for tables in a catalog, and register tables without moving them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import lance
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
)
from pydantic import Field

from lance_bridge import locations
from lance_bridge.catalog import Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display
from lance_bridge.records import check_properties
from lance_bridge.table import Table
from lance_bridge.tables import Tables

from ..levels import Level
from ..migration import ItemFacts, Step, StepContext
from ..namespaces import missing_namespaces, namespace_steps
from ..plan import Facts, Item, ItemType, Problem, blocker, blockers_in, warning
from ..record import Check
from ..targets import (
    AFTER,
    MANAGING,
    create_entry,
    entries_of_names,
    entry_facts,
    load_own_table,
    require_unchanged,
    undo_entry,
)
from .verification import compare

_THREADS = 8
"""Locations that are read at once."""
NO_DATA = "It is declared and has no data yet"


class EntryFacts(ItemFacts):
    """The facts about a table that gets an entry.

    Attributes:
        location: Its existing location, or "" if a step allocates one.
        properties: The properties of its entry that callers see.
        managed: Whether the catalog will manage its versions.
    """

    location: str = ""
    properties: dict[str, str] = Field(default_factory=dict)
    managed: bool = False


@dataclass(frozen=True)
class Candidate:
    """A table that should get an entry.

    Attributes:
        source: Its identifier in the source.
        target: Its identifier in the catalog, not validated yet.
        facts: The facts, not validated yet.
        fingerprint: See `Item`; likewise nothing_to_do, rows and bytes.
        hints: Notes for the plan.
    """

    source: Path
    target: Path
    facts: EntryFacts
    fingerprint: str = ""
    nothing_to_do: str = ""
    problems: tuple[Problem, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    hints: tuple[str, ...] = ()


def plan_items(
    tables: Tables, candidates: Iterable[Candidate], *, make_namespaces: bool
) -> list[Item]:
    """Return the items of a plan: missing namespaces and the tables.

    Args:
        make_namespaces: Whether to create missing namespaces; otherwise their tables are blocked.
    """
    planned = [_plan_table(tables, each) for each in candidates]
    wanted = {item.target for item in planned if item.is_to_do}
    missing = missing_namespaces(tables.connection, wanted)
    absent = {item.target for item in missing}
    parents = {path[:-1] for path in wanted} - absent
    existing = entries_of_names(tables, {path for path in wanted if path[:-1] in parents})
    managing = {path for path in parents if _manages_versions(tables, path)}
    if not make_namespaces:
        planned = [_require_namespace(item, absent) for item in planned]
    planned = [_compare_with_entry(item, existing.get(item.target)) for item in planned]
    with ThreadPoolExecutor(_THREADS) as threads:
        planned = list(threads.map(partial(_require_unmanaged, tables), planned))
    managed = {"managed": True}
    return [*(missing if make_namespaces else []), *(
        item.model_copy(update={"facts": {**item.facts, **managed}})
        if item.target[:-1] in managing else item
        for item in planned
    )]  # fmt: skip


def _plan_table(tables: Tables, found: Candidate) -> Item:
    """Return the item of a table, with the problems of its names, location and properties."""
    problems = list(found.problems)
    target, location = found.target, found.facts.location
    if not blockers_in(problems):
        try:
            target = tables.path_of(found.target)
            location = locations.check(location) if location else ""
        except InvalidInputError as error:
            problems.append(blocker(str(error)))
    properties, refused = _check_properties(found.facts.properties)
    facts = found.facts.model_copy(update={"location": location, "properties": properties})
    return Item(
        source=found.source,
        target=target,
        facts=facts.to_json(),
        fingerprint=found.fingerprint,
        nothing_to_do=found.nothing_to_do,
        problems=(*problems, *refused),
        rows=found.rows,
        bytes=found.bytes,
    )


def _check_properties(given: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    kept: dict[str, str] = {}
    problems = []
    for key, value in given.items():
        try:
            kept.update(check_properties({key: value}))
        except InvalidInputError as error:
            problems.append(warning(f"A property is left out: {error}"))
    return kept, problems


def _require_namespace(item: Item, absent: set[Path]) -> Item:
    outer = [item.target[:depth] for depth in range(1, len(item.target))]
    missing = [path for path in outer if path in absent]
    if not missing or not item.is_to_do:
        return item
    text = f"Namespace '{display(missing[0])}' does not exist: create it, or let the migration"
    return item.with_problems(blocker(f"{text} create it"))


def _manages_versions(tables: Tables, namespace: Path) -> bool:
    """Return whether the catalog manages the versions of new tables in a namespace."""
    with suppress(NamespaceNotFoundError):
        return tables.wants_management((*namespace, ""))
    return False


def _compare_with_entry(item: Item, entry: TableEntry | None) -> Item:
    """Return the item, blocked or with nothing to do if its name already has an entry."""
    if entry is None or not item.is_to_do:
        return item
    if not entry.record.is_readable:
        return item.with_problems(
            blocker("The name is already used by an entry that exists and cannot be read")
        )
    location = item.facts["location"] and locations.key(item.facts["location"])
    is_lance = entry.record.is_lance
    if is_lance and entry.location and locations.key(entry.location) == location:
        return item.model_copy(update={"nothing_to_do": "It has an entry for that location"})
    found = f"a Lance table at {entry.location}" if is_lance else entry.describe_type()
    return item.with_problems(blocker(f"The name is already used by {found}"))


def _require_unmanaged(tables: Tables, item: Item) -> Item:
    """Return the item, blocked if another entry manages the versions at its location."""
    location = item.facts["location"]
    if not item.is_to_do or not location:
        return item
    try:
        manager = tables.find_manager(item.target, location)
    except LanceNamespaceError as error:
        return item.with_problems(blocker(str(error)))
    if not manager:
        return item
    return item.with_problems(
        blocker(
            f"Its versions are managed by {manager}. Return them to the storage with `lance-bridge "
            "managed end`, or register an entry that only reads with `lance-bridge table register "
            "--force`"
        )
    )


# -- steps ---------------------------------------------------------------------------------------


def registration_steps(item: Item) -> Sequence[Step]:
    """Return the steps of a namespace, or of a table that keeps its location."""
    if item.type is ItemType.NAMESPACE:
        return namespace_steps()
    steps = [Step("entry", _create, undo_entry, require_unchanged)]
    if EntryFacts.of(item).managed:
        steps.append(Step("manage", manage_versions, None, require_unchanged))
    return steps


def _create(work: StepContext) -> Facts:
    facts = EntryFacts.of(work.item)
    return {AFTER: entry_facts(create_entry(work, facts.location, facts.properties))}


def manage_versions(work: StepContext) -> Facts:
    """Make the catalog manage the versions of the table."""
    work.note(**{MANAGING: True})
    return {AFTER: entry_facts(load_own_table(work).manage()), MANAGING: False}


def verify_registration(
    work: StepContext, level: Level, open_source: Callable[[int], lance.LanceDataset]
) -> list[Check]:
    """Compare an entry with the plan, and its table with the source.

    `StepContext.prefetched` must be the entry from `targets.find_entries`.

    Args:
        open_source: Opens a version of the source through the source's own catalog or store.
    """
    if work.item.type is ItemType.NAMESPACE:
        return []
    entry: TableEntry | None = work.prefetched
    expected = EntryFacts.of(work.item).location
    found = entry.record.location if entry is not None and entry.record.is_lance else None
    is_same = found is not None and locations.key(found) == locations.key(expected)
    checks = [Check(name="entry", ok=is_same, expected=expected, found=found)]
    if entry is None or not is_same:
        return checks
    dataset = Table.of(entry).open()
    return checks + compare(open_source(int(dataset.version)), dataset, level)
