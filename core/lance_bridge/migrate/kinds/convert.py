"""``convert``: what Spark reads, in whatever format, becomes tables of Lance.

The source is a table of one of the session's catalogs, or a path. All that can be wrong is in the
plan: types, names, lengths of vectors. Sources with snapshots are read at the one of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
)
from pydantic import Field, field_validator

from ...errors import display, invalid
from ...tables.dataset import Ref, open_dataset
from .. import namespaces
from ..ends import bridge_of
from ..failures import FailureLimit
from ..journal import Check
from ..kind import Ends, Level, Options, Step, Survey, Work
from ..plan import Address, Item, Problem, Severity, What, blocker, warning
from ..secrecy import PlainLocation
from ..selection import Selection
from ..spark import checksums, completeness, listing, schema, sources
from ..spark.files import Size
from ..spark.session import become_active, session_at
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back, sample_of
from . import entering, loading
from .catalogs import IntoCatalog, Namespace, target_bridge
from .comparing import spread
from .entering import Candidate
from .loading import IndexOptions
from .placing import own_entry

Find = Callable[[], SourceTable | None]
"""Describes one source; None for what is not to be converted."""


class PathSource(Options):
    """A directory or file that becomes a table.

    Attributes:
        table: The table's name.
        read_options: Those of Spark's reader, such as ``header`` of CSV.
    """

    path: PlainLocation
    format: str
    table: str
    read_options: dict[str, str] = Field(default_factory=dict)


class ConvertOptions(Selection):
    """What is converted, and what the tables are to be like.

    Attributes:
        catalog: Spark's catalog of the tables that are selected.
        paths: Directories and files; where there are any, no tables of the catalog are taken.
        namespace: Where all tables go. By default each goes into the namespace of its own name,
            with the last names where the target has fewer levels.
        name: The name of each table, with ``{table}`` for the one that it has.
        make_namespaces: Makes namespaces that are not there.
        casts: Types of Spark's SQL for columns of these names: for types that do not fit.
        vectors: Lengths of vectors, for columns of these names.
        find_vectors: Looks through columns of lists of floats, and makes those vectors whose
            lists all have one length.
        count_rows: Counts the rows for the plan.
        ignore_statistics: Takes a catalog's statistics that count more than there is for outdated
            ones, and not for a sign that files are missing.
        sort_by: Columns that the rows are sorted by, where a table has all of them.
        indices: What is built on each table that has the column.
        properties: Of the new tables.
        data_storage_version: Of Lance's files; max_rows_per_file alike.
    """

    catalog: str = sources.OWN_CATALOG
    paths: tuple[PathSource, ...] = ()
    namespace: tuple[str, ...] = ()
    name: str = "{table}"
    make_namespaces: bool = True
    casts: dict[str, str] = Field(default_factory=dict)
    vectors: dict[str, int] = Field(default_factory=dict)
    find_vectors: bool = False
    count_rows: bool = True
    ignore_statistics: bool = False
    sort_by: tuple[str, ...] = ()
    indices: tuple[IndexOptions, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)

    @field_validator("indices")
    @classmethod
    def _have_names_of_their_own(
        cls, indices: tuple[IndexOptions, ...]
    ) -> tuple[IndexOptions, ...]:
        names = [each.index_name for each in indices]
        if len(set(names)) < len(names):
            raise ValueError("two indices of one name: give each a name of its own")
        return indices


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
        candidates, left_out, limit = [], 0, FailureLimit()
        for names, find in _sources(ends.source, options):
            target = _target_of(names, options, levels)
            candidate = _surveyed(ends.source, names, target, find, options, limit=limit)
            if candidate is None:
                left_out += 1
            else:
                candidates.append(candidate)
        notes = ["Nothing was selected"] if not candidates else _unused(options, candidates)
        if left_out:
            notes.append(f"{left_out} views and tables of Lance are left out")
        items = entering.items_for(bridge, candidates, make=options.make_namespaces)
        return Survey(items, notes)

    def fingerprint(self, ends: ConvertEnds, options: ConvertOptions, item: Item) -> str:  # noqa: ARG002
        become_active(ends.source)
        return sources.described_again(ends.source, source_of(item)).fingerprint()

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
    for names in listing.tables_in(spark, options.catalog, options):
        yield names, partial(_described, spark, options.catalog, names)


def _described(spark: Any, catalog: str, names: tuple[str, ...]) -> SourceTable | None:
    found = listing.described(spark, catalog, names)
    return None if found is None else sources.with_schema(spark, found)


def _target_of(names: tuple[str, ...], options: ConvertOptions, levels: int) -> tuple[str, ...]:
    table = options.name.replace("{table}", names[-1])
    if options.namespace:
        return (*options.namespace, table)
    if options.paths:
        raise invalid("Paths have no namespace: name the target's with the option namespace")
    return (*names[:-1][-levels:], table)


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
        if name.lower() not in there
    ]


def _candidate(
    spark: Any, source: SourceTable, target: tuple[str, ...], options: ConvertOptions
) -> Candidate:
    frame = schema.cast(source.read(spark), options.casts)
    names = {name.lower() for name in frame.columns}
    vectors = {k: v for k, v in options.vectors.items() if k.lower() in names}
    rows, problems = None, list[Problem]()
    if options.count_rows or options.find_vectors:
        find = options.find_vectors
        rows, found, problems = schema.counted(frame, source.name, find_vectors=find)
        given = {name.lower() for name in vectors}
        vectors = {**{k: v for k, v in found.items() if k.lower() not in given}, **vectors}
    inventory = completeness.take_inventory(spark, source)
    problems += sources.unread_problems(spark, source, frame)
    problems += schema.problems_of(frame.schema, vectors, options.data_storage_version)
    problems += completeness.problems_of(
        spark, frame, inventory, rows, ignore_statistics=options.ignore_statistics
    )
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
        "vectors": vectors,
        "sort_by": list(options.sort_by) if is_sorted else [],
        "indices": [
            each.model_dump(mode="json") for each in indices if each.column in frame.columns
        ],
        "partitions": list(source.partitions),
        "bytes_before": size,
        "files": None if counted is None else asdict(counted),
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


# -- what steps and later rounds read --------------------------------------------------------------


def source_of(item: Item) -> SourceTable:
    """Return the source that an item's plan is of."""
    return SourceTable.model_validate(item.facts["source"])


def rows_of(work: ConvertWork) -> Any:
    """Return the rows of the source, with the types of the target."""
    return schema.cast(source_of(work.item).read(work.ends.source), work.options.casts)


def _schema(work: ConvertWork) -> pa.Schema:
    facts = work.item.facts
    return schema.schema_for(schema.from_json(facts["columns"]), facts["vectors"])


def _ordered(work: ConvertWork) -> Any:
    _require_whole(work)
    return schema.ordered(rows_of(work), work.item.facts["sort_by"])


def _require_whole(work: ConvertWork) -> None:
    """Check that no file is missing that the plan or the catalog counts.

    Raises:
        InvalidInputError: (13) the session leaves out files that it cannot read.
        InvalidTableStateError: (19) files are missing.
        ConcurrentModificationError: (14) there is less than when the plan was made.
    """
    item, planned = work.item, work.item.facts.get("files")
    completeness.require_all_read(work.ends.source)
    missing, now = _missing_files(work)
    if missing:
        raise InvalidTableStateError(f"'{display(item.source)}' is not complete. {missing}")
    if planned and now is not None and now.bytes < planned["bytes"]:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' has {now.bytes:,} bytes in {now.files:,} files, and had "
            f"{planned['bytes']:,} in {planned['files']:,} when the plan was made: files were "
            "deleted or rewritten. Check that they are complete, and plan again"
        )


def _missing_files(work: ConvertWork) -> tuple[str, Size | None]:
    """Return what is missing of the source's files, or "", and the size of those that exist."""
    spark, source = work.ends.source, source_of(work.item)
    if source.has_snapshots:  # the snapshot names its files, and reading fails without them
        return "", None
    become_active(spark)
    found = listing.described(spark, source.catalog, source.names) if source.catalog else source
    inventory = completeness.take_inventory(spark, found or source)
    problems = completeness.problems_of(
        spark,
        source.read(spark),
        inventory,
        None,
        ignore_statistics=work.options.ignore_statistics,
    )
    blockers = [each.text for each in problems if each.severity is Severity.BLOCKER]
    return "; ".join(blockers), inventory.size


# -- verifying -------------------------------------------------------------------------------------


def checks_of(work: ConvertWork, source: Any, level: Level) -> Iterator[Check]:
    """Compare rows of the source with the version that the migration wrote."""
    bridge = target_bridge(work)
    record = own_entry(bridge, work)
    version = int(work.facts["version"])
    dataset = open_dataset(bridge, record, Ref(version=version))
    yield checksums.schema_check(_schema(work), dataset.schema)
    count = dataset.count_rows()
    yield from _completeness_checks(work, count)
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


def _completeness_checks(work: ConvertWork, count: int) -> Iterator[Check]:
    """Compare with what was counted besides the rows that Spark reads now, which may be none."""
    missing, _ = _missing_files(work)
    yield Check(name="missing files", ok=not missing, expected="none", found=missing or "none")
    planned = work.item.rows
    if planned is not None:
        is_enough = count >= planned
        yield Check(name="rows of the plan", ok=is_enough, expected=planned, found=count)
