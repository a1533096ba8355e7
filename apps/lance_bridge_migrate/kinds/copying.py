"""``copy``: the Lance tables of one catalog become tables of another, with their files.

The files are copied as they are, without Spark: all versions up to the one of the plan, their
tags, branches and indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import lance
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import TableRecord
from lance_bridge.entries.tables import load_lance
from lance_bridge.errors import display
from lance_bridge.lance_errors import translate_lance_errors
from lance_bridge.managed import conversion
from lance_bridge.ref import Ref
from lance_bridge.table import Table
from lance_bridge.tables.history.references import branches_of
from lance_bridge.tables.spark_types import columns_of

from .. import files, namespaces, targets
from ..ends import bridge_of
from ..files import Place
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Facts, Item, What, blocker
from . import entering, entries
from .catalogs import BetweenCatalogs, Namespace, target_bridge
from .comparing import compare
from .entering import Candidate
from .placing import own_entry, place_of


class CopyOptions(entries.EntriesOptions):
    """What is copied, and where to; see `EntriesOptions`."""


_MANIFESTS = "manifests"
"""The fact with the digests of the manifests that are copied. Any other is somebody else's."""

CopyEnds = Ends[Namespace, Namespace]
CopyWork = Work[Namespace, Namespace, CopyOptions]


class Copy(BetweenCatalogs[CopyOptions]):
    """See the module."""

    name = "copy"
    summary = "Copy the tables of one catalog into another, with all their versions"
    reading_step = "files"
    options_type = CopyOptions

    def survey(self, ends: CopyEnds, options: CopyOptions) -> Survey:
        source = bridge_of(ends.source)
        found, notes = entries.candidates(ends, options)
        made = [_surveyed(source, record, each) for record, each in found]
        items = entering.items_for(bridge_of(ends.target), made, make=options.make_namespaces)
        return Survey(items, notes)

    def fingerprint(self, ends: CopyEnds, options: CopyOptions, item: Item) -> str:  # noqa: ARG002
        return targets.fingerprint_of(load_lance(bridge_of(ends.source), item.source))

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        if item.what is What.NAMESPACE:
            return namespaces.steps(target_bridge)
        steps = [Step("entry", _enter, _take_back, _check_take_back), Step("files", _copy)]
        return [*steps, Step("manage", _manage)] if item.facts.get("managed") else steps

    def verify(self, work: CopyWork, level: Level) -> Sequence[Check]:
        if work.item.what is What.NAMESPACE:
            return []
        bridge = target_bridge(work)
        version = work.item.facts["version"]
        made = Table(bridge, own_entry(bridge, work)).open(Ref(version=version))
        return compare(_source(work), made, level)


# -- planning --------------------------------------------------------------------------------------


def _surveyed(bridge: Bridge, record: TableRecord, found: Candidate) -> Candidate:
    try:
        if not found.problems and Table(bridge, record).is_declared():
            return replace(found, location="", nothing_to_do="It is declared and holds no data yet")
        return _with_data(bridge, record, found) if not found.problems else found
    except LanceNamespaceError as error:
        return replace(found, location="", problems=(*found.problems, blocker(str(error))))


def _with_data(bridge: Bridge, record: TableRecord, found: Candidate) -> Candidate:
    dataset = Table(bridge, record).open()
    version = int(dataset.version)
    problems = found.problems
    if _has_other_bases(dataset):
        problems += (blocker("It is a shallow clone: some of its files are another table's"),)
    if branches_of(dataset):
        text = (
            "It has branches, whose versions name files where they are: delete the branches first"
        )
        problems += (blocker(text),)
    size = sum(files.files_of(_place(bridge, record), version).values())
    facts = {"version": version, "bytes_before": size}
    rows = dataset.count_rows()
    return replace(found, location="", problems=problems, facts=facts, rows=rows, bytes=size)


def _has_other_bases(dataset: lance.LanceDataset) -> bool:
    """Return whether the latest version, or the first one that is kept, has files elsewhere."""
    with translate_lance_errors(f"The versions of {dataset.uri} could not be read"):
        first = min(int(each["version"]) for each in dataset.versions())
        fragments = [*dataset.get_fragments(), *dataset.checkout_version(first).get_fragments()]
    kept = (file for each in fragments for file in each.metadata.files)
    return any(getattr(file, "base_id", None) is not None for file in kept)


def _place(bridge: Bridge, record: TableRecord, *, write: bool = False) -> Place:
    return Place(record.location or "", bridge.storage(record, write=write))


def _source(work: CopyWork) -> lance.LanceDataset:
    bridge = bridge_of(work.ends.source)
    record = load_lance(bridge, work.item.source)
    return Table(bridge, record).open(Ref(version=work.item.facts["version"]))


# -- steps -----------------------------------------------------------------------------------------


def _enter(work: CopyWork) -> Facts:
    bridge = target_bridge(work)
    place = place_of(bridge, work)
    work.note(location=place)
    columns = columns_of(_source(work).schema)
    properties = work.item.facts["properties"]
    record = targets.claim(bridge, work, place, properties, declared=True, columns=columns)
    return {"after": targets.state_of(record), "location": record.location}


def _copy(work: CopyWork) -> Facts:
    bridge, origin = target_bridge(work), bridge_of(work.ends.source)
    record = own_entry(bridge, work)
    source = _place(origin, load_lance(origin, work.item.source))
    target = _place(bridge, record, write=True)
    wanted = files.files_of(source, work.item.facts["version"])
    manifests = files.manifests_of(source, wanted)
    if files.others_manifests(target, manifests):
        raise InvalidTableStateError(
            f"'{display(record.path)}' has data already: somebody else has written to it"
        )
    work.note(**{_MANIFESTS: manifests})
    size = files.copy(
        source,
        target,
        wanted,
        stopping=work.stopping,
        advance=lambda size: work.advance(size=size),
    )
    work.advance(rows=work.item.rows or 0)
    return {"rows_written": work.item.rows, "bytes_written": size, "bytes_after": size}


def _manage(work: CopyWork) -> Facts:
    bridge = target_bridge(work)
    return {"after": targets.state_of(conversion.begin(bridge, own_entry(bridge, work)))}


def _check_take_back(work: CopyWork) -> None:
    """Raise InvalidTableState (19) where somebody changed the entry, or wrote to the table."""
    bridge = target_bridge(work)
    targets.require_unchanged(bridge, work, work.facts.get("after", {}))
    record = targets.own(bridge, work)
    if record is not None:
        _require_own_files(bridge, work, record)


def _require_own_files(bridge: Bridge, work: CopyWork, record: TableRecord) -> None:
    """Raise InvalidTableState (19) where the table has versions that were not copied."""
    if Table(bridge, record).is_declared():
        return
    others = files.others_manifests(_place(bridge, record), work.facts.get(_MANIFESTS, {}))
    dataset = Table(bridge, record).open()
    others += [f"branch {name}" for name in sorted(branches_of(dataset))]
    if others:
        raise InvalidTableStateError(
            f"'{display(record.path)}' has what migration {work.plan.id} did not copy "
            f"({', '.join(others[:3])}): undoing would delete what others wrote"
        )


def _take_back(work: CopyWork) -> None:
    bridge = target_bridge(work)
    check = partial(_require_own_files, bridge, work)
    source = bridge_of(work.ends.source)
    after = work.facts.get("after", {})
    targets.take_back(bridge, work, after, check_files=check, source=source)
