"""``convert``: what Spark reads, in whatever format, becomes tables of Lance.

The source is a table of one of the session's catalogs, or a path. All that can be wrong is in the
plan: types, names, lengths of vectors. Sources with snapshots are read at the one of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError
from pydantic import Field, field_validator

from ...errors import invalid
from ...tables.dataset import Ref, open_dataset
from .. import namespaces
from ..ends import bridge_of
from ..journal import Check
from ..kind import Ends, Level, Options, Step, Survey, Work
from ..plan import Address, Item, Problem, Severity, What, blocker, warning
from ..secrecy import PlainLocation
from ..selection import Selection
from ..spark import checksums, listing, schema, sources
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
        candidates, left_out = [], 0
        for names, find in _sources(ends.source, options):
            target = _target_of(names, options, levels)
            candidate = _surveyed(ends.source, names, target, find, options)
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
    spark: Any, names: tuple[str, ...], target: tuple[str, ...], find: Find, options: ConvertOptions
) -> Candidate | None:
    try:
        source = find()
        if source is None:
            return None
        return _candidate(spark, source, target, options)
    except LanceNamespaceError as error:
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
    problems += sources.unread_problems(spark, source, frame)
    problems += schema.problems_of(frame.schema, vectors, options.data_storage_version)
    indices = loading.on_columns(options.indices, frame.columns)
    if not any(each.severity is Severity.BLOCKER for each in problems):
        made = schema.schema_for(frame.schema, vectors)
        problems += loading.index_problems(indices, made)
    is_sorted = all(column.lower() in names for column in options.sort_by)
    if not is_sorted:
        problems.append(warning("It is not sorted: it lacks some of the columns to sort by"))
    size = sources.size_of(frame)
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
    return schema.ordered(rows_of(work), work.item.facts["sort_by"])


# -- verifying -------------------------------------------------------------------------------------


def checks_of(work: ConvertWork, source: Any, level: Level) -> Iterator[Check]:
    """Compare rows of the source with the version that the migration wrote."""
    bridge = target_bridge(work)
    record = own_entry(bridge, work)
    version = int(work.facts["version"])
    dataset = open_dataset(bridge, record, Ref(version=version))
    yield checksums.schema_check(_schema(work), dataset.schema)
    count = dataset.count_rows()
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
