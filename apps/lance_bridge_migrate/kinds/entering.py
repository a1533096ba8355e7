"""What kinds have in common that add entries for tables which stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import lance
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.catalog import Path, TableRecord
from lance_bridge.entries import properties as entry_properties
from lance_bridge.entries.placement import Home
from lance_bridge.entries.tables import what_is
from lance_bridge.errors import concurrent_modification, display
from lance_bridge.managed import conversion
from lance_bridge.table import Table

from .. import namespaces, targets
from ..journal import Check
from ..kind import Step
from ..levels import Level
from ..plan import Facts, Item, Problem, What, blocker, warning
from ..targets import AnyWork
from .comparing import compare

Target = Callable[[AnyWork], Bridge]
OpenSource = Callable[[int], lance.LanceDataset]

_AFTER = "after"
"""The fact that holds the entry as the migration made it."""


@dataclass(frozen=True)
class Candidate:
    """A table that is to get an entry.

    Attributes:
        source: Its names where it is.
        target: Its names in the catalog, not checked yet; empty where there are none for it.
        location: Where it lies and stays; "" for one that its kind finds a place for.
        properties: What its entry is to hold, as far as callers see it.
        fingerprint: See `Item.fingerprint`.
        nothing_to_do: See `Item.nothing_to_do`.
        facts: What its kind needs beside the location and the properties.
        rows: See `Item.rows`; bytes alike.
    """

    source: Path
    target: Path
    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    nothing_to_do: str = ""
    problems: tuple[Problem, ...] = ()
    facts: Facts = field(default_factory=dict)
    rows: int | None = None
    bytes: int | None = None


def items_for(bridge: Bridge, candidates: Iterable[Candidate], *, make: bool) -> list[Item]:
    """Return the items of a plan: the namespaces that are missing, and the tables.

    Args:
        make: Whether missing namespaces are made, or else block their tables.
    """
    tables = [_checked(bridge, each) for each in candidates]
    wanted = {item.target for item in tables if item.is_to_do}
    missing = namespaces.missing(bridge, wanted)
    absent = {item.target for item in missing}
    parents = {path[:-1] for path in wanted} - absent
    there = _entries_of(bridge, parents)
    managing = {path for path in parents if _manages(bridge, path)}
    if not make:
        tables = [_without_namespace(item, absent) for item in tables]
    tables = [_beside(item, there.get(item.target)) for item in tables]
    return [*(missing if make else []), *(_managed(item, managing) for item in tables)]


def _checked(bridge: Bridge, found: Candidate) -> Item:
    """Return the item of a table, with what is wrong with its names, location and properties."""
    problems = list(found.problems)
    target, place = found.target, found.location
    if not problems:
        try:
            target = targets.path_in(bridge, found.target)
            place = locations.check(found.location) if found.location else ""
        except InvalidInputError as error:
            problems.append(blocker(str(error)))
    properties, refused = _properties(found.properties)
    problems += refused
    return Item(
        source=found.source,
        target=target,
        facts={**found.facts, "location": place, "properties": properties},
        fingerprint=found.fingerprint,
        nothing_to_do=found.nothing_to_do,
        problems=tuple(problems),
        rows=found.rows,
        bytes=found.bytes,
    )


def _properties(given: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    kept: dict[str, str] = {}
    problems = []
    for key, value in given.items():
        try:
            kept.update(entry_properties.checked({key: value}))
        except InvalidInputError as error:
            problems.append(warning(f"A property is left out: {error}"))
    return kept, problems


def _without_namespace(item: Item, absent: set[Path]) -> Item:
    outer = [item.target[:depth] for depth in range(1, len(item.target))]
    missing = [path for path in outer if path in absent]
    if not missing or not item.is_to_do:
        return item
    return item.with_problems(
        blocker(f"Namespace '{display(missing[0])}' is not there: create it, or have it made")
    )


def _entries_of(bridge: Bridge, parents: Iterable[Path]) -> dict[Path, TableRecord]:
    """Return all entries of these namespaces, by their paths."""
    there: dict[Path, TableRecord] = {}
    for namespace in sorted(parents):
        with suppress(NamespaceNotFoundError):  # dropped since it was looked for
            there.update({each.path: each for each in bridge.catalog.scan_tables(namespace)})
    return there


def _manages(bridge: Bridge, namespace: Path) -> bool:
    """Return whether the catalog is to hold the versions of a namespace's new tables."""
    home = Home(bridge, namespace)
    with suppress(NamespaceNotFoundError):
        return conversion.is_wanted(bridge, (*namespace, ""), home, None)
    return False


def _managed(item: Item, managing: set[Path]) -> Item:
    if item.what is What.NAMESPACE or item.target[:-1] not in managing:
        return item
    return item.model_copy(update={"facts": {**item.facts, "managed": True}})


def _beside(item: Item, there: TableRecord | None) -> Item:
    """Return the item as it is beside the entry that has its name already."""
    if there is None or item.what is What.NAMESPACE or not item.is_to_do:
        return item
    own = item.facts["location"] and locations.key(item.facts["location"])
    if there.is_lance and there.location and locations.key(there.location) == own:
        return item.model_copy(update={"nothing_to_do": "It has an entry for that location"})
    what = f"a Lance table at {there.location}" if there.is_lance else what_is(there)
    return item.with_problems(blocker(f"The name is taken by {what}"))


# -- steps ---------------------------------------------------------------------------------------


def steps(item: Item, target: Target) -> Sequence[Step[Any, Any, Any]]:
    """Return the steps of an item of `items_for`.

    Args:
        target: Returns the bridge of the target that a work has.
    """
    if item.what is What.NAMESPACE:
        return namespaces.steps(target)
    check = partial(_require_unchanged, target)
    entry = Step("entry", partial(_enter, target), partial(_take_back, target), check)
    if not item.facts.get("managed"):
        return [entry]
    return [entry, Step("manage", partial(_manage, target), None, check)]


def _enter(target: Target, work: AnyWork) -> Facts:
    facts = work.item.facts
    record = targets.claim(target(work), work, facts["location"], facts["properties"])
    return {_AFTER: targets.state_of(record)}


def _manage(target: Target, work: AnyWork) -> Facts:
    bridge = target(work)
    record = targets.own(bridge, work)
    if record is None:
        raise concurrent_modification(work.item.target)
    return {_AFTER: targets.state_of(conversion.begin(bridge, record))}


def _take_back(target: Target, work: AnyWork) -> None:
    targets.take_back(target(work), work, work.facts.get(_AFTER, {}))


def _require_unchanged(target: Target, work: AnyWork) -> None:
    targets.require_unchanged(target(work), work, work.facts.get(_AFTER, {}))


def verify(bridge: Bridge, work: AnyWork, level: Level, open_source: OpenSource) -> list[Check]:
    """Compare an entry with what the plan says, and the table behind it with the source.

    `Work.seen` is the entry, as `targets.entries_of` has it.

    Args:
        open_source: Opens the source at a version, with the source's own means.
    """
    if work.item.what is What.NAMESPACE:
        return []
    record: TableRecord | None = work.seen
    expected = work.item.facts["location"]
    found = record.location if record is not None and record.is_lance else None
    is_same = found is not None and locations.key(found) == locations.key(expected)
    checks = [Check(name="entry", ok=is_same, expected=expected, found=found)]
    if record is None or not is_same:
        return checks
    dataset = Table(bridge, record).open()
    return checks + compare(open_source(int(dataset.version)), dataset, level)
