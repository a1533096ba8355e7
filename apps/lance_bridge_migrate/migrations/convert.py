"""``convert``: converts what Spark can read, in any format, to Lance tables.

The source is a table of one of the session's catalogs, or a path. The plan reports all problems
with types, names and vector lengths, and pins the snapshot of sources that have snapshots.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from pydantic import Field, field_validator

from lance_bridge import locations
from lance_bridge.dataset import parse_index_type
from lance_bridge.dotted_names import by_name, find_name, first_names
from lance_bridge.errors import display, invalid
from lance_bridge.requests import Ref
from lance_bridge_spark.rows import address_in, index_request

from .. import Level
from ..arrow_files import FORMATS, ArrowFiles
from ..endpoints import Endpoints, Selection
from ..migration import MigrationType, PlainLocation, StepContext, Survey
from ..plan import Item, Options, Problem, blocker, blockers_in, warning
from ..record import Check
from ..run import FailureLimit
from ..second_reader import check as second_reader
from ..second_reader import parquet_orc_avro
from ..second_reader.check import Made, SecondReading
from ..second_reader.parquet_orc_avro import FileSchemas, SparkSchemas
from ..spark import listing, sources, writing
from ..spark.session import become_active, session_at, spark_errors
from ..spark.sources import OWN_CATALOG, SourceTable, problems_of
from ..spark.writing import read_back
from ..targets import Candidate, EntryFacts, load_own_table, plan_items
from . import loading
from .loading import LOAD, ArrowFacts, ConvertFacts, IndexOptions, facts_of, loading_steps
from .verification import sample_row_numbers

Names = tuple[str, ...]
Describe = Callable[[], SourceTable | ArrowFiles | None]
"""Describes one source, or returns None if it should not be converted."""

_THREADS = 8
"""The number of sources to read in parallel."""
_NOT_COUNTED = {"count_rows": False, "find_vectors": False}
_FOR_SPARK = ("casts", "find_vectors")


# -- options ---------------------------------------------------------------------------------------


class PathSource(Options):
    """A directory or file that becomes a table.

    Attributes:
        table: The table's name.
        reader: What reads it: ``spark``, or ``pyarrow`` in this process, which has types that
            Spark does not have.
        read_options: Options of Spark's reader, such as ``header`` for CSV.
    """

    path: PlainLocation
    format: str
    table: str
    reader: Literal["spark", "pyarrow"] = "spark"
    read_options: dict[str, str] = Field(default_factory=dict)


class TableOptions(Options):
    """Options that override `ConvertOptions` for the tables of one pattern; None keeps those.

    Attributes:
        name: The name of the new table, or with ``{table}``; see `ConvertOptions` for the others.
    """

    name: str | None = None
    casts: dict[str, str] | None = None
    renames: dict[str, str] | None = None
    vectors: dict[str, int] | None = None
    sort_by: tuple[str, ...] | None = None
    indices: tuple[IndexOptions, ...] | None = None
    properties: dict[str, str] | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)
    accept_differences: bool | None = None


class ConvertOptions(Selection):
    """What to convert, and the settings of the new tables.

    Attributes:
        catalog: The Spark catalog of the selected tables.
        paths: Directories and files to convert instead of tables of the catalog.
        namespace: The namespace of all new tables. By default each goes into the namespace of its
            own name; if the target has fewer levels, only the last names are used.
        name: The name of each new table, with ``{table}`` for the name of the source.
        make_namespaces: Creates missing namespaces.
        casts: Spark SQL types by column, for types that Lance does not support.
        renames: New names by column. All options except ``casts`` use the new names.
        vectors: Vector lengths by column.
        find_vectors: Reads all columns that are lists of floats, and converts those whose lists
            have the same length to vectors.
        count_rows: Counts the rows for the plan.
        ignore_statistics: Treats statistics of the catalog that count more data than exists as
            outdated, not as a sign of missing files.
        accept_differences: Converts what Spark reads where it differs from the files.
        sort_by: Columns to sort by, if a table has all of them.
        indices: Indices to build on each table that has the column.
        properties: Properties of the new tables.
        data_storage_version: The version of the Lance files; likewise max_rows_per_file.
        tables: Overrides for some tables, by patterns as in ``include``; the first matching
            pattern applies.
    """

    catalog: str = OWN_CATALOG
    paths: tuple[PathSource, ...] = ()
    namespace: tuple[str, ...] = ()
    name: str = "{table}"
    make_namespaces: bool = True
    casts: dict[str, str] = Field(default_factory=dict)
    renames: dict[str, str] = Field(default_factory=dict)
    vectors: dict[str, int] = Field(default_factory=dict)
    find_vectors: bool = False
    count_rows: bool = True
    ignore_statistics: bool = False
    accept_differences: bool = False
    sort_by: tuple[str, ...] = ()
    indices: tuple[IndexOptions, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    data_storage_version: str | None = None
    max_rows_per_file: int | None = Field(default=None, ge=1)
    tables: dict[str, TableOptions] = Field(default_factory=dict)

    def for_table(self, names: tuple[str, ...]) -> ConvertOptions:
        """Return the options of one table."""
        name = display(names).lower()
        for pattern, own in self.tables.items():
            if fnmatchcase(name, pattern.lower()):
                given = {key: getattr(own, key) for key in own.model_fields_set}
                return self.model_copy(update=given)
        return self

    @field_validator("indices")
    @classmethod
    def _have_unique_names(cls, indices: tuple[IndexOptions, ...]) -> tuple[IndexOptions, ...]:
        names = [each.index_name for each in indices]
        if len(set(names)) < len(names):
            raise ValueError("two indices have the same name: name each")
        return indices


# -- the migration ---------------------------------------------------------------------------------


class Convert(MigrationType):
    """The migration type that this module describes."""

    name = "convert"
    reading_step = LOAD
    options_type = ConvertOptions
    connect_source = staticmethod(session_at)
    steps = staticmethod(loading_steps)

    def survey(self, endpoints: Endpoints, options: ConvertOptions) -> Survey:
        tables, spark = endpoints.target_tables, endpoints.source
        if "{table}" not in options.name and len(options.paths) != 1:
            raise invalid("The option name must contain {table}, so that names of tables differ")
        listing.require_no_skipped_files(spark)
        found = _survey_all(spark, options, tables.connection.capabilities.levels)
        candidates = [each for _, each in found if each is not None]
        notes = _unused_notes(options, candidates) if candidates else ["Nothing was selected"]
        left_out = [display(names) for names, each in found if each is None]
        if left_out:
            names = first_names(left_out, 20)
            notes.append(f"{len(left_out)} views and Lance tables are skipped: {names}")
        notes += [hint for each in candidates for hint in each.hints]
        items = plan_items(tables, candidates, make_namespaces=options.make_namespaces)
        return Survey(items, notes + _space_notes(tables.connection.config.root, items))

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:
        facts = facts_of(item)
        if isinstance(facts, ArrowFacts):
            files = facts.arrow_files
            return ArrowFiles.at_path(files.path, files.format, {}).fingerprint()
        become_active(endpoints.source)
        return listing.describe_again(endpoints.source, facts.source).fingerprint()

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:
        facts = facts_of(work.item)
        if isinstance(facts, ArrowFacts):
            return list(loading.checks(work, facts, level))
        become_active(work.endpoints.source)
        with spark_errors(f"'{work.item.name}' cannot be verified"):
            return list(_checks(work, facts, level))


# -- planning --------------------------------------------------------------------------------------


def _sources(spark: Any, options: ConvertOptions) -> Iterator[tuple[Names, Describe]]:
    """Yield the names of each source, with a function that describes it."""
    if options.paths:
        for each in options.paths:
            yield (each.path, each.table), partial(_describe_path, spark, each)
        return
    tables = list(listing.tables_in(spark, options.catalog, options))
    known = listing.describe_all(spark, options.catalog, tables)
    for names in tables:
        yield names, partial(listing.describe, spark, options.catalog, names, known.get(names))


def _describe_path(spark: Any, source: PathSource) -> SourceTable | ArrowFiles:
    if source.reader == "pyarrow":
        return ArrowFiles.at_path(source.path, source.format, source.read_options)
    try:
        return listing.at_path(spark, source.path, source.format, source.read_options)
    except LanceNamespaceError as error:
        advice = _advice(source)
        if not advice:
            raise
        raise invalid(f"{error}{advice}") from error


def _target_of(names: Names, options: ConvertOptions, levels: int) -> Names:
    table = options.name.replace("{table}", names[-1])
    if options.namespace:
        return (*options.namespace, table)
    if options.paths:
        raise invalid("Paths have no namespace: name the target's with the option namespace")
    return (*names[:-1][-levels:], table)


def _space_notes(root: str | None, items: Sequence[Item]) -> list[str]:
    """Return a note if a local root has less free space than the size of the sources."""
    root = locations.for_lance(root) if root else ""
    if not root.startswith("/"):
        return []
    wanted = sum(item.bytes or 0 for item in items if item.is_to_do)
    existing = next(each for each in (Path(root), *Path(root).parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if wanted <= free:
        return []
    return [f"The sources have {wanted:,} bytes, and {free:,} are free in {root}"]


def _survey_all(
    spark: Any, options: ConvertOptions, levels: int
) -> list[tuple[Names, Candidate | None]]:
    """Return the names of each source with its candidate, or None if it is left out."""
    limit = FailureLimit()

    def survey(source: tuple[Names, Describe]) -> Candidate | None:
        become_active(spark)
        names, describe = source
        own = options.for_table(names[-1:] if options.paths else names)
        target = _target_of(names, own, levels)
        try:
            described = describe()
            found: Candidate | None = None
            if isinstance(described, ArrowFiles):
                found = arrow_candidate(described, target, own)
            elif described is not None:
                found = _candidate(spark, described, target, own)
        except LanceNamespaceError as error:
            if limit.add_failure(error):
                raise
            shown, problems = names[:1] if options.paths else names, [blocker(str(error))]
            formats = [each.format for each in options.paths if each.path == names[0]]
            if formats and isinstance(error, InvalidInputError):
                problems += second_reader.conflicts_at(spark, names[0], formats[0])
            return Candidate(shown, target, EntryFacts(), problems=tuple(problems))
        limit.add_success()
        return found

    sources_found = list(_sources(spark, options))
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(survey, sources_found))
    return [(names, each) for (names, _), each in zip(sources_found, found, strict=True)]


def _unused_notes(options: ConvertOptions, candidates: Sequence[Candidate]) -> list[str]:
    """Return notes about columns in the options that no table has."""
    existing = {
        name.lower()
        for each in candidates
        if isinstance(each.facts, ConvertFacts)
        for name in writing.schema_from_json(each.facts.columns).names
    }
    return [
        f"No table has the column '{name}' of the option {option}"
        for option, columns in (("casts", options.casts), ("vectors", options.vectors))
        for name in columns
        if name.lower() not in existing and name not in options.renames
    ]


def _candidate(
    spark: Any, source: SourceTable, target: Names, options: ConvertOptions
) -> Candidate:
    read, types, reading = _read(spark, source)
    source = source.model_copy(update={"columns": read.schema.json()})
    frame = writing.as_target(read, options.casts, options.renames)
    inventory = listing.take_inventory(spark, source)
    directories = [each.path for each in inventory.directories]
    unread = sources.unread_problems(spark, source, frame, directories)
    # Footers also count files below a partition that Spark lists but does not read.
    whole = reading.schemas if types is not None and types.is_complete and not unread else None
    accept = options.accept_differences
    reading = second_reader.compare(spark, source, read, reading, directories, accept=accept)
    is_same = not blockers_in(reading.problems)
    counted = options if is_same else options.model_copy(update=_NOT_COUNTED)
    rows, vectors, problems = _count(frame, source, counted, whole)
    problems += [*unread, *reading.problems]
    problems += problems_of(spark, source, read, options.casts)
    if not (unread or blockers_in(problems)):  # Spark also lists files that it does not read
        problems += second_reader.count_problems(reading, rows, accept=accept)
    problems += writing.column_problems(frame.schema, vectors, options.data_storage_version)
    problems += listing.file_problems(
        spark, frame, inventory, rows, ignore_statistics=options.ignore_statistics
    )
    hints: list[str] = []
    if is_same and (inventory.size is None or inventory.size.bytes):
        if types is None or options.casts:
            writing.check_first_rows(frame, source.name)
        if types is not None:
            problems += parquet_orc_avro.check_types(spark, source, read.schema, types)
        hints = writing.vector_hints(frame, vectors, source.name)
    facts = _facts(source, frame, vectors, options, inventory)
    if not blockers_in(problems):
        problems += _index_problems(options.indices, facts.schema_of_table)
    if options.sort_by and not facts.sort_by:
        problems.append(warning("It is not sorted: it lacks some of the columns to sort by"))
    return Candidate(
        source=source.names,
        target=target,
        facts=facts,
        fingerprint=source.fingerprint(),
        problems=tuple(problems),
        rows=rows,
        bytes=facts.bytes_before,
        hints=tuple(hints),
    )


def _indices_on(
    indices: Sequence[IndexOptions], columns: Sequence[str]
) -> tuple[IndexOptions, ...]:
    """Return the indices on existing columns, with names in the letter case of the table."""
    names = [find_name(each.column, columns) for each in indices]
    pairs = zip(indices, names, strict=True)
    return tuple(each.model_copy(update={"column": name}) for each, name in pairs if name)


def _index_problems(indices: Sequence[IndexOptions], columns: pa.Schema) -> Iterator[Problem]:
    """Yield the problems of indices for a table with these columns."""
    for each in indices:
        name = find_name(each.column, columns.names)
        if name is None:
            yield warning(f"There is no column for an index of {each.kind}", each.column)
            continue
        field, index_type = columns.field(name), parse_index_type(each.kind)
        index_request(name, each.kind, each.name, each.parameters)
        if not index_type.fits(field):
            text = f"{index_type.name} is for {index_type.needs}, and not for {field.type}"
            yield blocker(text, name)


def _facts(
    source: SourceTable,
    frame: Any,
    vectors: dict[str, int],
    options: ConvertOptions,
    inventory: listing.Inventory,
) -> ConvertFacts:
    size = inventory.size
    sorted_by = [find_name(column, frame.columns) for column in options.sort_by]
    return ConvertFacts(
        properties=options.properties,
        source=source,
        accepts_differences=options.accept_differences,
        columns=frame.schema.json(),
        casts=options.casts,
        renames=options.renames,
        max_rows_per_file=options.max_rows_per_file,
        vectors=vectors,
        sort_by=() if None in sorted_by else tuple(filter(None, sorted_by)),
        indices=_indices_on(options.indices, frame.columns),
        bytes_before=sources.size_of(frame) if size is None else size.bytes,
        files=size,
    )


def _count(
    frame: Any, source: SourceTable, options: ConvertOptions, whole: FileSchemas | None
) -> tuple[int | None, dict[str, int], list[Problem]]:
    """Return the number of rows, the lengths of vector columns, and problems with the vectors.

    Args:
        whole: Footers that count all rows, or None.
    """
    vectors = by_name(options.vectors, frame.columns)
    if whole is not None and not options.find_vectors:
        return (whole.rows if options.count_rows else None), vectors, []
    if not (options.count_rows or options.find_vectors):
        return None, vectors, []
    found = writing.count_rows(frame, source.name, find_vectors=options.find_vectors)
    return found[0], {**found[1], **vectors}, found[2]


def _read(spark: Any, source: SourceTable) -> tuple[Any, SparkSchemas | None, SecondReading]:
    """Return the rows of a source, and the columns of its files as two readers read them."""
    source.refresh_files(spark)
    frame = source.read(spark, refresh=False)
    reading = second_reader.read_footers(spark, source, frame)
    found = parquet_orc_avro.read_by_spark(spark, source, frame, reading.schemas)
    if found is None:  # Spark counts the rows, and rows cached by the session may be outdated
        frame = source.read(spark)
    return frame, found, reading


def _checks(work: StepContext, facts: ConvertFacts, level: Level) -> Iterator[Check]:
    """Compare the source with the version that the migration wrote."""
    spark = work.endpoints.source
    source = facts.read(spark)
    version = int(work.facts["version"])
    dataset = load_own_table(work).open(Ref(version=version))
    yield writing.schema_check(facts.schema_of_table, dataset.schema)
    count = dataset.count_rows()
    ignore = work.options.ignore_statistics
    yield listing.files_check(spark, facts.source, ignore_statistics=ignore)
    if not facts.accepts_differences:
        yield second_reader.verify(spark, facts.source, level)
    planned = work.item.rows
    if planned is not None:
        yield Check(name="rows of the plan", ok=count >= planned, expected=planned, found=count)
    if level.includes(Level.CHECKSUMS):
        address = address_in(work.endpoints.target, work.item.target)
        yield from writing.compare_checksums(source, read_back(spark, address, version))
    else:
        rows = source.count()
        yield Check(name="rows", ok=rows == count, expected=rows, found=count)
    if level is Level.SAMPLE:
        yield writing.compare_sample(source, dataset, sample_row_numbers(count))
    made = Made(dataset, facts.schema_of_table, facts.casts, facts.accepts_differences)
    yield from second_reader.compare_rows(spark, facts.source, made, level)


# -- files that pyarrow reads ----------------------------------------------------------------------


def _advice(source: PathSource) -> str:
    """Return which columns need pyarrow if Spark cannot read a path, and the option; or ""."""
    if source.format not in FORMATS or source.read_options:
        return ""
    try:
        columns = ArrowFiles.at_path(source.path, source.format, {}).schema
    except LanceNamespaceError:
        return ""
    found = [f"{each.name} ({each.type})" for each in columns if not _is_in_spark(each.type)]
    if not found:
        return ""
    return (
        f". Spark has no type for {first_names(found, 5)}: have pyarrow read it (--reader "
        "pyarrow, or reader: pyarrow of the path)"
    )


def _is_in_spark(of: pa.DataType) -> bool:
    if isinstance(of, pa.BaseExtensionType):
        return not isinstance(of, pa.UuidType) and _is_in_spark(of.storage_type)
    if pa.types.is_decimal(of):
        return bool(of.precision <= 38)
    if pa.types.is_timestamp(of):
        return bool(of.unit != "ns")
    if pa.types.is_time(of) or pa.types.is_float16(of) or pa.types.is_duration(of):
        return False
    return all(_is_in_spark(of.field(number).type) for number in range(of.num_fields))


def arrow_candidate(
    files: ArrowFiles, target: tuple[str, ...], options: ConvertOptions
) -> Candidate:
    """Return a table to convert.

    Raises:
        InvalidInputError: (13) an option needs Spark, or the columns cannot be read.
        ServiceUnavailableError: (17)
    """
    given = [name for name in _FOR_SPARK if getattr(options, name)]
    if given:
        raise invalid(f"The option {given[0]} needs Spark: {files.path} is read with pyarrow")
    facts = ArrowFacts(
        arrow_files=files,
        properties=options.properties,
        renames=options.renames,
        max_rows_per_file=options.max_rows_per_file,
        vectors=options.vectors,
        bytes_before=files.bytes,
    )
    columns = facts.schema_of_table
    indices = _indices_on(options.indices, columns.names)
    facts = facts.model_copy(update={"indices": indices})
    problems = files.problems()
    problems += writing.problems_in_lance(columns, options.data_storage_version)
    if not blockers_in(problems):
        problems += _index_problems(options.indices, columns)
    if options.sort_by:
        problems.append(warning("It is not sorted: pyarrow reads the files in their order"))
    return Candidate(
        source=(files.path,),
        target=target,
        facts=facts,
        fingerprint=files.fingerprint(),
        problems=tuple(problems),
        rows=files.count_rows() if options.count_rows else None,
        bytes=files.bytes,
    )
