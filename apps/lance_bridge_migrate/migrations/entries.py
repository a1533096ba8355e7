"""``entries``: the Lance tables of one catalog get entries in another; no data is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, Path, TableRecord
from lance_bridge.errors import invalid
from lance_bridge.records import visible_properties
from lance_bridge.requests import Ref
from lance_bridge.tables.collection import Tables

from ..endpoints import Endpoints, connection_of
from ..journal import Check
from ..levels import Level
from ..migration import MigrationType, Step, Survey, Work
from ..plan import Item, Problem, blocker, warning
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
    """What is taken over, and where to.

    Attributes:
        namespace: Where the target has fewer names than it has levels: what its tables' own
            namespaces are put into, as in ``main`` for ``sales.t`` to become ``main.sales.t``.
            Where it has as many names as levels: the one namespace of all tables.
        make_namespaces: Creates namespaces that do not exist.
    """

    namespace: tuple[str, ...] = ()
    make_namespaces: bool = True


class Entries(MigrationType):
    """See the module."""

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
            connection_of(endpoints.target),
            [each for _, each in found],
            make_namespaces=options.make_namespaces,
        )
        return Survey(items, [warned, *notes])

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        return entry_fingerprint(connection_of(endpoints.source).catalog.load_table(item.source))

    def steps(self, item: Item) -> Sequence[Step]:
        return registration_steps(item)

    def prefetch(self, endpoints: Endpoints, items: Sequence[Item]) -> Mapping[str, Any]:
        return find_entries(connection_of(endpoints.target), items)

    def verify(self, work: Work, level: Level) -> Sequence[Check]:
        source = work.source_connection
        return verify_registration(
            work,
            level,
            lambda version: Tables(source).load(work.item.source).open(Ref(version)),
        )


def find_candidates(
    endpoints: Endpoints, options: EntriesOptions
) -> tuple[list[tuple[TableRecord, Candidate]], list[str]]:
    """Return the selected Lance tables, with a candidate for each, and notes about other tables.

    Raises:
        InvalidInputError: (13) the namespace has more names than the target has levels.
    """
    levels = connection_of(endpoints.target).capabilities.levels
    if len(options.namespace) > levels:
        raise invalid(f"The namespace has more names than the catalog's {levels} levels")
    records = list(entries_of(connection_of(endpoints.source), options))
    ours = [each for each in records if each.is_lance]
    others = len(records) - len(ours)
    notes = [f"{others} entries that are not Lance tables are left out"] if others else []
    return [(each, _candidate(each, options, levels)) for each in ours], notes


def _candidate(record: TableRecord, options: EntriesOptions, levels: int) -> Candidate:
    return Candidate(
        source=record.path,
        target=(*_namespace_of(record.path[:-1], options.namespace, levels), record.path[-1]),
        facts=EntryFacts(
            location=record.location or "", properties=visible_properties(record.properties)
        ),
        fingerprint=entry_fingerprint(record),
        problems=tuple(_problems(record)),
    )


def _namespace_of(own: Path, outer: Path, levels: int) -> Path:
    if len(outer) == levels:
        return outer
    inner = own[len(own) - (levels - len(outer)) :]
    return (*outer, *inner)


def _problems(record: TableRecord) -> list[Problem]:
    problems = []
    if not record.location:
        problems.append(blocker("Its entry has no location"))
    if record.properties.get(MANAGED_BY, "").lower() == IMPLEMENTATION:
        problems.append(
            blocker(
                "The source catalog holds its versions, which would not be seen through the "
                "target: leave them to its storage first (management --to storage)"
            )
        )
    if record.link_to:
        problems.append(warning(f"It is a link to {record.link_to}; the entry will be none"))
    return problems
