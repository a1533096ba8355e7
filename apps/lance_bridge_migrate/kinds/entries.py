"""``entries``: the Lance tables of one catalog get entries in another; no data is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import lance

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import IMPLEMENTATION, MANAGED_BY, Path, TableRecord
from lance_bridge.entries.properties import visible
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import invalid
from lance_bridge.ref import Ref
from lance_bridge.table import Table

from ..ends import bridge_of
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Item, Problem, blocker, warning
from ..selection import Selection
from ..selection import entries_of as selected
from ..targets import entries_of, fingerprint_of
from . import entering
from .catalogs import BetweenCatalogs, Namespace, target_bridge
from .entering import Candidate


class EntriesOptions(Selection):
    """What is taken over, and where to.

    Attributes:
        namespace: Where the target has fewer names than it has levels: what its tables' own
            namespaces are put into, as in ``main`` for ``sales.t`` to become ``main.sales.t``.
            Where it has as many names as levels: the one namespace of all tables.
        make_namespaces: Makes namespaces that are not there.
    """

    namespace: tuple[str, ...] = ()
    make_namespaces: bool = True


EntriesEnds = Ends[Namespace, Namespace]
EntriesWork = Work[Namespace, Namespace, EntriesOptions]


class Entries(BetweenCatalogs[EntriesOptions]):
    """See the module."""

    name = "entries"
    summary = "Give the tables of one catalog entries in another, without moving data"
    options_type = EntriesOptions

    def survey(self, ends: EntriesEnds, options: EntriesOptions) -> Survey:
        if ends.source_address.connection == ends.target_address.connection:
            raise invalid("Source and target are the same catalog: name two")
        found, notes = candidates(ends, options)
        warned = (
            "Both catalogs have entries for the same files then: in one of them, deregister tables "
            "and never drop them"
        )
        made = [each for _, each in found]
        items = entering.items_for(bridge_of(ends.target), made, make=options.make_namespaces)
        return Survey(items, [warned, *notes])

    def fingerprint(self, ends: EntriesEnds, options: EntriesOptions, item: Item) -> str:  # noqa: ARG002
        return fingerprint_of(bridge_of(ends.source).catalog.load_table(item.source))

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        return entering.steps(item, target_bridge)

    def look(self, ends: EntriesEnds, items: Sequence[Item]) -> Mapping[str, Any]:
        return entries_of(bridge_of(ends.target), items)

    def verify(self, work: EntriesWork, level: Level) -> Sequence[Check]:
        source = bridge_of(work.ends.source)
        return entering.verify(
            target_bridge(work), work, level, partial(_open, source, work.item.source)
        )


def _open(source: Bridge, path: Path, version: int) -> lance.LanceDataset:
    return Table(source, load_lance(source, path)).open(Ref(version))


def candidates(
    ends: EntriesEnds, options: EntriesOptions
) -> tuple[list[tuple[TableRecord, Candidate]], list[str]]:
    """Return the Lance tables that are selected, what becomes of each, and what to tell of others.

    Raises:
        InvalidInputError: (13) the namespace has more names than the target has levels.
    """
    levels = bridge_of(ends.target).capabilities.levels
    if len(options.namespace) > levels:
        raise invalid(f"The namespace has more names than the catalog's {levels} levels")
    records = list(selected(bridge_of(ends.source), options))
    ours = [each for each in records if each.is_lance]
    others = len(records) - len(ours)
    notes = [f"{others} entries that are not Lance tables are left out"] if others else []
    return [(each, _candidate(each, options, levels)) for each in ours], notes


def _candidate(record: TableRecord, options: EntriesOptions, levels: int) -> Candidate:
    return Candidate(
        source=record.path,
        target=(*_namespace_of(record.path[:-1], options.namespace, levels), record.path[-1]),
        location=record.location or "",
        properties=visible(record.properties),
        fingerprint=fingerprint_of(record),
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
                "Its versions are held by the source catalog, and would not be seen through the "
                "target: leave them to its storage first (management --to storage)"
            )
        )
    if record.link_to:
        problems.append(warning(f"It is a link to {record.link_to}; the entry will be none"))
    return problems
