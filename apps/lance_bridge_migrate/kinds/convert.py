"""``convert``: what Spark reads, in whatever format, becomes tables of Lance.

The source is a table of one of the session's catalogs, or a path. All that can be wrong is in the
plan: types, names, lengths of vectors. Sources with snapshots are read at the one of the plan.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import location as locations
from lance_bridge.bridge import Bridge
from lance_bridge.errors import display, invalid
from lance_bridge.ref import Ref
from lance_bridge.table import Table

from .. import namespaces
from ..ends import bridge_of
from ..failures import FailureLimit
from ..journal import Check
from ..kind import Ends, Step, Survey, Work
from ..levels import Level
from ..plan import Address, Item, Problem, Severity, What, blocker, warning
from ..spark import checksums, completeness, footers, listing, schema, sources
from ..spark.footers import Footers
from ..spark.session import become_active, session_at
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back, sample_of
from . import entering, loading, missing_files
from .catalogs import IntoCatalog, Namespace, target_bridge
from .comparing import spread
from .convert_options import ConvertOptions
from .entering import Candidate
from .placing import own_entry

Find = Callable[[], SourceTable | None]
"""Describes one source; None for what is not to be converted."""


_AT_ONCE = 8
"""How many sources are looked at at the same time."""
_SHOWN = 20
_HINTS = "hints"
"""What a candidate's facts hold for the notes of the plan, until these are made."""


ConvertEnds = Ends[Any, Namespace]
ConvertWork = Work[Any, Namespace, ConvertOptions]


class Convert(IntoCatalog[Any, ConvertOptions]):
    """See the module."""

    name = "convert"
    summary = "Write tables that Spark reads (Parquet, Delta, Iceberg, …) as tables of Lance"
    reading_step = loading.LOAD
    options_type = ConvertOptions

    def connect_source(
        self, address: Address, secrets: Mapping[str, str]
    ) -> AbstractContextManager[Any]:
        return session_at(address, secrets)

    def survey(self, ends: ConvertEnds, options: ConvertOptions) -> Survey:
        bridge = bridge_of(ends.target)
        levels = bridge.capabilities.levels
        if "{table}" not in options.name and len(options.paths) != 1:
            raise invalid("The option name must have {table} in it, for tables to have many names")
        completeness.require_all_read(ends.source)
        found = _survey_all(ends.source, options, levels)
        candidates = [each for _, each in found if each is not None]
        notes = ["Nothing was selected"] if not candidates else _unused(options, candidates)
        left_out = [display(names) for names, each in found if each is None]
        if left_out:
            shown = f"{', '.join(left_out[:_SHOWN])}{' …' if len(left_out) > _SHOWN else ''}"
            notes.append(f"{len(left_out)} views and tables of Lance are left out: {shown}")
        for each in candidates:
            notes += each.facts.pop(_HINTS, ())
        items = entering.items_for(bridge, candidates, make=options.make_namespaces)
        notes += _space_notes(bridge, items)
        return Survey(items, notes)

    def fingerprint(self, ends: ConvertEnds, options: ConvertOptions, item: Item) -> str:  # noqa: ARG002
        become_active(ends.source)
        return listing.described_again(ends.source, source_of(item)).fingerprint()

    def steps(self, item: Item) -> Sequence[Step[Any, Any, Any]]:
        if item.what is What.NAMESPACE:
            return namespaces.steps(target_bridge)
        return loading.steps(_schema, _ordered, loading.item_indices(item))

    def verify(self, work: ConvertWork, level: Level) -> Sequence[Check]:
        if work.item.what is What.NAMESPACE:
            return []
        become_active(work.ends.source)
        return list(checks_of(work, rows_of(work), level))


# -- planning --------------------------------------------------------------------------------------


def _sources(spark: Any, options: ConvertOptions) -> Iterator[tuple[tuple[str, ...], Find]]:
    """Yield the names of each source, and what describes it."""
    if options.paths:
        for each in options.paths:
            find = partial(sources.at_path, spark, each.path, each.format, each.read_options)
            yield (each.path, each.table), find
        return
    tables = list(listing.tables_in(spark, options.catalog, options))
    known = listing.describe_all(spark, options.catalog, tables)
    for names in tables:
        yield names, partial(listing.described, spark, options.catalog, names, known.get(names))


def _target_of(names: tuple[str, ...], options: ConvertOptions, levels: int) -> tuple[str, ...]:
    table = options.name.replace("{table}", names[-1])
    if options.namespace:
        return (*options.namespace, table)
    if options.paths:
        raise invalid("Paths have no namespace: name the target's with the option namespace")
    return (*names[:-1][-levels:], table)


def _space_notes(bridge: Bridge, items: Sequence[Item]) -> list[str]:
    """Say where there is less space than the sources take, for a root on this machine's disks."""
    root = locations.for_lance(bridge.config.root) if bridge.config.root else ""
    if not root.startswith("/"):
        return []
    wanted = sum(item.bytes or 0 for item in items if item.is_to_do)
    there = next(each for each in (Path(root), *Path(root).parents) if each.exists())
    free = shutil.disk_usage(there).free
    if wanted <= free:
        return []
    return [f"The sources have {wanted:,} bytes, and {free:,} are free in {root}"]


def _survey_all(
    spark: Any, options: ConvertOptions, levels: int
) -> list[tuple[tuple[str, ...], Candidate | None]]:
    """Return the names of each source, and what was found of it; None for what is left out."""
    limit = FailureLimit()

    def survey(source: tuple[tuple[str, ...], Find]) -> Candidate | None:
        become_active(spark)
        names, find = source
        own = options.for_table(names[-1:] if options.paths else names)
        return _surveyed(spark, names, _target_of(names, own, levels), find, own, limit=limit)

    sources_found = list(_sources(spark, options))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            found = list(pool.map(survey, sources_found))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [(names, each) for (names, _), each in zip(sources_found, found, strict=True)]


def _surveyed(
    spark: Any,
    names: tuple[str, ...],
    target: tuple[str, ...],
    find: Find,
    options: ConvertOptions,
    *,
    limit: FailureLimit,
) -> Candidate | None:
    try:
        source = find()
        candidate = None if source is None else _candidate(spark, source, target, options)
        limit.add_success()
        return candidate
    except LanceNamespaceError as error:
        if limit.is_reached_by(error):
            raise
        shown = names[:1] if options.paths else names
        return Candidate(shown, target, "", problems=(blocker(str(error)),))


def _unused(options: ConvertOptions, candidates: Sequence[Candidate]) -> list[str]:
    """Return notes on columns that options name and no table has."""
    there = {
        name.lower()
        for each in candidates
        if "columns" in each.facts
        for name in schema.from_json(each.facts["columns"]).names
    }
    return [
        f"No table has the column '{name}' of the option {option}"
        for option, columns in (("casts", options.casts), ("vectors", options.vectors))
        for name in columns
        if name.lower() not in there and name not in options.renames
    ]


def _candidate(
    spark: Any, source: SourceTable, target: tuple[str, ...], options: ConvertOptions
) -> Candidate:
    read, found_footers = _read(spark, source)
    source = source.model_copy(update={"columns": read.schema.json()})
    frame = schema.rename(schema.cast(read, options.casts), options.renames)
    names = {name.lower() for name in frame.columns}
    vectors = {k: v for k, v in options.vectors.items() if k.lower() in names}
    rows, problems = None, list[Problem]()
    unread = sources.unread_problems(spark, source, frame)
    # Footers also count files that Spark lists below a partition, and then leaves out.
    is_whole = found_footers is not None and found_footers.are_all and not unread
    whole = found_footers if is_whole else None
    if whole is not None and not options.find_vectors:
        rows = whole.rows if options.count_rows else None
    elif options.count_rows or options.find_vectors:
        find = options.find_vectors
        rows, found, problems = schema.counted(frame, source.name, find_vectors=find)
        given = {name.lower() for name in vectors}
        vectors = {**{k: v for k, v in found.items() if k.lower() not in given}, **vectors}
    inventory = completeness.take_inventory(spark, source)
    problems += unread
    problems += schema.problems_of(frame.schema, vectors, options.data_storage_version)
    problems += completeness.problems_of(
        spark, frame, inventory, rows, ignore_statistics=options.ignore_statistics
    )
    if inventory.size is None or inventory.size.bytes:
        if found_footers is None or options.casts:
            schema.check_first_rows(frame, source.name)
        if found_footers is not None:
            problems += footers.check_types(spark, source, read.schema, found_footers)
        hints = schema.vector_hints(frame, vectors, source.name)
    else:
        hints = []
    indices = loading.on_columns(options.indices, frame.columns)
    if not any(each.severity is Severity.BLOCKER for each in problems):
        made = schema.schema_for(frame.schema, vectors)
        problems += loading.index_problems(indices, made)
    is_sorted = all(column.lower() in names for column in options.sort_by)
    if not is_sorted:
        problems.append(warning("It is not sorted: it lacks some of the columns to sort by"))
    counted = inventory.size
    size = sources.size_of(frame) if counted is None else counted.bytes
    facts = {
        "source": source.model_dump(mode="json"),
        "columns": frame.schema.json(),
        "casts": options.casts,
        "renames": options.renames,
        "max_rows_per_file": options.max_rows_per_file,
        "vectors": vectors,
        "sort_by": list(options.sort_by) if is_sorted else [],
        "indices": [
            each.model_dump(mode="json") for each in indices if each.column in frame.columns
        ],
        "partitions": list(source.partitions),
        "bytes_before": size,
        "files": None if counted is None else asdict(counted),
        _HINTS: hints,
    }
    return Candidate(
        source=source.names,
        target=target,
        location="",
        properties=options.properties,
        fingerprint=source.fingerprint(),
        problems=tuple(problems),
        facts=facts,
        rows=rows,
        bytes=size,
    )


def _read(spark: Any, source: SourceTable) -> tuple[Any, Footers | None]:
    """Return the rows of a source, and what its files' footers say."""
    source.refresh_files(spark)
    frame = source.read(spark, refresh=False)
    found = footers.read(spark, source, frame)
    if found is None:  # the rows are counted, and those that the session caches may be outdated
        frame = source.read(spark)
    return frame, found


# -- what steps and later rounds read --------------------------------------------------------------


def source_of(item: Item) -> SourceTable:
    """Return the source that an item's plan is of."""
    return SourceTable.model_validate(item.facts["source"])


def rows_of(work: ConvertWork) -> Any:
    """Return the rows of the source, with the types of the target."""
    facts = work.item.facts
    casts = facts.get("casts", work.options.casts)
    frame = schema.cast(source_of(work.item).read(work.ends.source), casts)
    return schema.rename(frame, facts.get("renames", {}))


def _schema(work: ConvertWork) -> pa.Schema:
    facts = work.item.facts
    return schema.schema_for(schema.from_json(facts["columns"]), facts["vectors"])


def _ordered(work: ConvertWork) -> Any:
    missing_files.require_whole(work)
    return schema.ordered(rows_of(work), work.item.facts["sort_by"])


# -- verifying -------------------------------------------------------------------------------------


def checks_of(work: ConvertWork, source: Any, level: Level) -> Iterator[Check]:
    """Compare rows of the source with the version that the migration wrote."""
    bridge = target_bridge(work)
    record = own_entry(bridge, work)
    version = int(work.facts["version"])
    dataset = Table(bridge, record).open(Ref(version=version))
    yield checksums.schema_check(_schema(work), dataset.schema)
    count = dataset.count_rows()
    yield from missing_files.completeness_checks(work, count)
    if level.includes(Level.CHECKSUMS):
        address = address_at(work.ends.target, work.item.target)
        yield from checksums.compare_checksums(
            source, read_back(work.ends.source, address, version)
        )
        return
    rows = source.count()
    yield Check(name="rows", ok=rows == count, expected=rows, found=count)
    if level.includes(Level.SAMPLE):
        yield checksums.compare_sample(source, sample_of(work.ends.source, dataset, spread(count)))
