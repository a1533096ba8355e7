"""``register``: a directory of Lance tables gets entries in a catalog; no data is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import lance
from lance_namespace.errors import TableNotFoundError
from pydantic import Field

from lance_bridge import identifier
from lance_bridge.errors import display
from lance_bridge.lance_errors import translate_lance_errors

from ..ends import Directory, bridge_of, directory_at
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Address, Item, blocker
from ..selection import Selection
from ..targets import entries_of
from . import entering, layout
from .catalogs import IntoCatalog, Namespace, target_bridge
from .entering import Candidate
from .layout import Found

_HAS_DATA = "has data"


class RegisterOptions(Selection):
    """What is registered, and where.

    Attributes:
        namespace: Namespace of the tables that lie in the root of the directory. Tables of its
            child namespaces go into namespaces of their own names; where the catalog has more
            levels than the directory, the first of these names go before.
        flatten: Puts all tables into `namespace`; names of child namespaces are joined with the
            table's by ``_``.
        make_namespaces: Makes namespaces that are not there.
    """

    namespace: tuple[str, ...] = Field(min_length=1)
    flatten: bool = False
    make_namespaces: bool = True


RegisterEnds = Ends[Directory, Namespace]
RegisterWork = Work[Directory, Namespace, RegisterOptions]


class Register(IntoCatalog[Directory, RegisterOptions]):
    """See the module."""

    name = "register"
    summary = "Register a directory of Lance tables in a catalog, without moving data"
    options_type = RegisterOptions

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Directory]:
        return directory_at(address, secrets)

    def survey(self, ends: RegisterEnds, options: RegisterOptions) -> Survey:
        bridge = bridge_of(ends.target)
        identifier.parse_table_namespace(options.namespace, bridge.capabilities)
        found = [each for each in layout.tables_in(ends.source) if options.takes(each.names)]
        candidates = [_candidate(each, options, bridge.capabilities.levels) for each in found]
        items = entering.items_for(bridge, candidates, make=options.make_namespaces)
        notes = () if found else (f"There are no tables in {ends.source.root}",)
        return Survey(items, notes)

    def fingerprint(self, ends: RegisterEnds, options: RegisterOptions, item: Item) -> str:  # noqa: ARG002
        if not layout.has_data(ends.source, item.facts["location"]):
            raise TableNotFoundError(
                f"There is no Lance table at {item.facts['location']} any more"
            )
        return _HAS_DATA

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        return entering.steps(item, target_bridge)

    def look(self, ends: RegisterEnds, items: Sequence[Item]) -> Mapping[str, Any]:
        return entries_of(bridge_of(ends.target), items)

    def verify(self, work: RegisterWork, level: Level) -> Sequence[Check]:
        source = work.ends.source

        def open_source(version: int) -> lance.LanceDataset:
            place = work.item.facts["location"]
            with translate_lance_errors(f"The table at {place} could not be opened"):
                return lance.dataset(
                    place, version=version, storage_options=source.storage.options or None
                )

        return entering.verify(bridge_of(work.ends.target), work, level, open_source)


def _candidate(found: Found, options: RegisterOptions, levels: int) -> Candidate:
    target = _target_of(found.names, options, levels)
    problems = [blocker(found.problem)] if found.problem else []
    if not target and not problems:
        problems = [
            blocker(
                f"It is in namespace '{display(found.names[:-1])}', for which the catalog has too "
                "few levels: flatten the namespaces"
            )
        ]
    return Candidate(
        source=found.names,
        target=target or found.names,
        location=found.location,
        properties=found.properties,
        fingerprint=_HAS_DATA,
        nothing_to_do="" if found.has_data or found.problem else _no_data(found),
        problems=tuple(problems),
    )


def _no_data(found: Found) -> str:
    return "It is declared and holds no data yet" if found.is_reserved else "It holds no data"


def _target_of(
    names: tuple[str, ...], options: RegisterOptions, levels: int
) -> tuple[str, ...] | None:
    *inner, table = names
    if options.flatten:
        return (*options.namespace, "_".join([*inner, table]))
    if not inner:
        return (*options.namespace, table)
    return (*options.namespace[: levels - len(inner)], *names) if len(inner) <= levels else None
