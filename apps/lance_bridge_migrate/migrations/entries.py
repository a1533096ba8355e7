"""``entries``: registers the Lance tables of one catalog in another, without moving data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import invalid
from lance_bridge.requests import Ref

from ..endpoints import Endpoints
from ..levels import Level
from ..migration import MigrationType, Step, StepContext, Survey
from ..plan import Item, Problem, blocker, warning
from ..record import Check
from ..selection import Selection, entries_of
from ..targets import entry_fingerprint, find_entries
from .registration import (
    Candidate,
    EntryFacts,
    plan_items,
    registration_steps,
    verify_registration,
)


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


class Entries(MigrationType):
    """The migration type that this module describes."""

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
        items = plan_items(
            endpoints.target_tables,
            [each for _, each in found],
            make_namespaces=options.make_namespaces,
        )
        return Survey(items, [warned, *notes])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(endpoints.source_tables.load_entry(item.source))

    def steps(self, item: Item) -> Sequence[Step]:
        return registration_steps(item)

    def prefetch(self, endpoints: Endpoints, items: Sequence[Item]) -> Mapping[str, Any]:
        return find_entries(endpoints.target_tables, items)

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:
        source, path = work.source_tables, work.item.source
        return verify_registration(
            work, level, lambda version: source.load(path).open(Ref(version))
        )


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
    return [(each, _candidate(each, options, levels)) for each in ours], notes


def _candidate(entry: TableEntry, options: EntriesOptions, levels: int) -> Candidate:
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


def _problems(entry: TableEntry) -> list[Problem]:
    problems = []
    if not entry.location:
        problems.append(blocker("Its entry has no location"))
    if entry.record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
        problems.append(
            blocker(
                "The source catalog manages its versions, which are not visible through the "
                "target: leave them to its storage first (management --to storage)"
            )
        )
    if entry.record.link_to:
        problems.append(
            warning(f"It is a link to {entry.record.link_to}; the new entry will not be one")
        )
    return problems
