"""Compare a source with what Spark reads of it, and a new table with the source's files.

The first gives problems of a plan, the second checks of a verification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lance_bridge.dataset import batch_rows, scan_limits
from lance_bridge.dotted_names import first_names
from lance_bridge.errors import translate_lance_errors

from .. import Level
from ..plan import Problem, Severity, blocker, blockers_in, warning
from ..record import Check
from ..spark import sources
from ..spark.sources import FORMATS, OWN_CATALOG, SourceTable, session_catalog, table_identifier
from . import columns, csv_check, delta_iceberg, json_check, parquet_orc_avro
from .columns import Difference
from .hashes import Hashes, combined
from .parquet_orc_avro import FileSchemas
from .rows import MOST_ROWS, Column, FileRows, SourceRows, TextRows, columns_of
from .storage import (
    ACCEPT,
    Storage,
    StoredFile,
    UnreachableError,
    hidden_files,
    path_in,
    unregistered_partitions,
    visible,
)

_FIELDS = 20
"""The maximum number of columns and fields that are reported one by one."""
_MERGE = "mergeSchema"
TEXTS = ("csv", "json")
"""The formats of which rows are compared."""
_SEPARATOR = "\x1e"
_OF_OPTIONS = ("pathglobfilter", "modifiedbefore", "modifiedafter")
"""Options of Spark's reader with which a user chooses the files."""


@dataclass(frozen=True)
class SecondReading:
    """What the second reader found about one source.

    Attributes:
        schemas: The content of the footers, or of Avro's headers; None for other formats, and if
            they cannot be read.
        unreachable: Why something could not be read, or "".
        problems: The differences from what Spark reads, and what was not read.
        records: The number of records of CSV and Avro files, or of a snapshot; None if unknown, and
            for other formats.
    """

    schemas: FileSchemas | None = None
    unreachable: str = ""
    problems: tuple[Problem, ...] = ()
    records: int | None = None


def can_check(session: Any, source: SourceTable) -> bool:
    """Return whether the second reader checks a source: one of files, in this process."""
    is_of_files = source.format in FORMATS and not source.has_snapshots
    return is_of_files and bool(source.location) and getattr(session, "_jvm", None) is not None


def has_metadata(session: Any, source: SourceTable) -> bool:
    """Return whether the second reader reads a source's own metadata, as Delta and Iceberg have."""
    return source.has_snapshots and getattr(session, "_jvm", None) is not None


def read_footers(session: Any, source: SourceTable, frame: DataFrame) -> SecondReading:
    """Read the footers of all files of a source."""
    if source.format not in parquet_orc_avro.FORMATS or not can_check(session, source):
        return SecondReading()
    try:
        storage = Storage(session)
        files = _files_of(storage, source, frame)
        return SecondReading(
            parquet_orc_avro.read_all(storage, source.format, files) if files else None
        )
    except (PySparkException, Py4JError):  # Spark's own check gives the error
        return SecondReading()
    except UnreachableError as error:
        return SecondReading(unreachable=str(error))


def _files_of(storage: Storage, source: SourceTable, frame: DataFrame) -> list[str]:
    """Return the URIs of all files; none if one of Hive's readers reads them, but for Avro."""
    files = sorted(frame.inputFiles())
    # One of Hive's readers reads the table's directory.
    directory = path_in(source.location).rstrip("/")
    if not source.catalog or all(path_in(each).rstrip("/") != directory for each in files):
        return files
    is_of_avro = source.format == "avro" and not source.partitions
    if not is_of_avro or not storage.is_local(source.location):
        return []
    found = visible(storage.files_below(source.location))
    return sorted(each.uri for each in found if "/" not in each.inside)


def compare(
    session: Any,
    source: SourceTable,
    frame: DataFrame,
    reading: SecondReading,
    directories: Sequence[str],
    *,
    accept: bool,
) -> SecondReading:
    """Compare a source with what Spark reads of it; return that with its problems.

    Args:
        frame: The rows as Spark reads them, without casts and renames.
        reading: The result of `read_footers`.
        directories: The directories of the table, or of its partitions in the catalog.
        accept: Whether differences are warnings, not blockers.
    """
    if has_metadata(session, source):
        reading = _of_snapshot(session, source, frame)
        accepted = [_accepted(each) for each in reading.problems]
        return replace(reading, problems=tuple(accepted)) if accept else reading
    if not can_check(session, source):
        return reading
    storage, records = Storage(session), None
    found: list[Problem] = []
    if reading.schemas is not None:
        records = reading.schemas.rows if source.format == "avro" else None
        found += _column_problems(session, source, frame, reading.schemas)
    unreachable = reading.unreachable
    try:
        found += _file_problems(storage, source, directories)
        problems, counted = _text_problems(session, storage, source, frame)
        found += problems
        records = records if counted is None else counted
    except UnreachableError as error:
        unreachable = unreachable or str(error)
    if unreachable:
        found.append(_not_compared(unreachable))
    if accept:
        found = [_accepted(each) for each in found]
    return replace(reading, problems=tuple(found), records=records)


def _of_snapshot(session: Any, source: SourceTable, frame: DataFrame) -> SecondReading:
    """Compare what Spark reads of a snapshot with the metadata of Delta or Iceberg."""
    try:
        found = delta_iceberg.read_snapshot(session, Storage(session), source)
    except UnreachableError as error:
        return SecondReading(problems=(_not_compared(error),))
    if found is None:
        return SecondReading()
    differing = columns.differences({found.file: found.columns}, frame.schema, ())
    known = {name.lower() for name in found.columns.names}
    dropped = [name for name in frame.columns if name.lower() not in known]
    advice = (
        "its columns were changed after its last snapshot: write one with no rows (INSERT INTO "
        f"{source.name} SELECT * FROM {source.name} WHERE false), or accept what Spark reads with "
        f"the option {ACCEPT}"
    )
    problems = [_problem(each, advice) for each in differing[:_FIELDS]]
    text = f"Spark reads it, and {path_in(found.file)} does not have it: {advice}"
    problems += [blocker(text, name) for name in dropped]
    return SecondReading(problems=tuple(problems), records=found.rows)


def _not_compared(reason: UnreachableError | str) -> Problem:
    return warning(f"The second reader did not compare all of its files: {reason}")


def verify(session: Any, source: SourceTable, level: Level) -> Check:
    """Compare a source again after its conversion, because files may have come since the plan.

    Args:
        level: Rows of CSV and JSON are compared from the level of samples on.
    """
    expected, found = "none", ""
    if can_check(session, source):
        frame = source.read(session)
        reading = read_footers(session, source, frame)
        if source.format not in TEXTS or level.includes(Level.SAMPLE):
            reading = compare(session, source, frame, reading, (source.location,), accept=False)
        blockers = blockers_in(reading.problems)
        found = "; ".join(f"{each.column} {each.text}".strip() for each in blockers)
    return Check(
        name="differences from the files", ok=not found, expected=expected, found=found or expected
    )


def count_problems(reading: SecondReading, rows: int | None, *, accept: bool) -> list[Problem]:
    """Return a problem if Spark counts other rows than the second reader."""
    if reading.records is None or rows is None or reading.records == rows:
        return []
    problem = blocker(
        f"By its files, it has {reading.records:,} rows, and Spark reads {rows:,}: correct the "
        f"files, or accept what Spark reads with the option {ACCEPT}"
    )
    return [_accepted(problem) if accept else problem]


def _accepted(problem: Problem) -> Problem:
    return problem.model_copy(update={"severity": Severity.WARNING})


# -- columns ---------------------------------------------------------------------------------------


def _column_problems(
    session: Any, source: SourceTable, frame: DataFrame, schemas: FileSchemas
) -> Iterator[Problem]:
    partitions = partitions_of(source, frame)
    yield from _type_warnings(schemas)
    found = columns.differences(schemas.schemas, frame.schema, partitions)
    if not found:
        return
    left = _differences_after_merging(session, source, schemas, partitions)
    for each in found[:_FIELDS]:
        yield _problem(each, _advice(source, each, left))
    if len(found) > _FIELDS:
        yield blocker(f"{len(found) - _FIELDS} further columns or fields differ in the same way")


def _type_warnings(schemas: FileSchemas) -> Iterator[Problem]:
    """Yield a warning for each column of extension types, of which Spark reads the storage."""
    stored = {each.name: each for schema in schemas.schemas.values() for each in schema}
    for name, field in stored.items():
        if columns.has_extension(field):
            text = f"Spark does not keep its type {field.type}: have pyarrow read it"
            yield warning(f"{text} (--reader pyarrow)", name)


def partitions_of(source: SourceTable, frame: DataFrame) -> tuple[str, ...]:
    """Return the partition columns of a table, or of the directories of a path."""
    if source.catalog:
        return source.partitions
    base = source.options.get("basepath", source.location)
    start = path_in(base) if ":/" in base else base
    names = {
        name.partition("=")[0].lower()
        for uri in frame.inputFiles()
        for name in path_in(uri)[len(start) :].split("/")[:-1]
        if "=" in name
    }
    return tuple(each for each in frame.columns if each.lower() in names)


def _problem(each: Difference, advice: str) -> Problem:
    file = path_in(each.file)
    if not each.read_as:
        text = f"Spark does not read it, and {file} has it, of type {each.stored}: {advice}"
    else:
        text = f"{file} has {each.stored}, which Spark reads as {each.read_as}: {advice}"
    return blocker(text, each.path)


def _advice(source: SourceTable, each: Difference, left: set[tuple[str, str]] | None) -> str:
    """Return the advice for a difference.

    Args:
        left: The differences that are left if Spark merges the schemas; None if it cannot.
    """
    accept = f"accept that it is left out with the option {ACCEPT}"
    if left is not None and (each.path.lower(), each.stored) not in left:
        return (
            f"give the read option {_MERGE}=true (--read-option {_MERGE}=true), with which Spark "
            f"reads it; or {accept}"
        )
    if each.read_as:
        return (
            "convert the files of each type as a table of their own, have pyarrow read them "
            f"(--reader pyarrow), or accept what Spark reads with the option {ACCEPT}"
        )
    if source.catalog:
        return f"add it to the table (ALTER TABLE … ADD COLUMNS), or {accept}"
    if source.format == "avro":
        return (
            f"give a schema with all columns and fields as the read option avroSchema, or {accept}"
        )
    return f"convert its files as a table of their own, or {accept}"


def _differences_after_merging(
    session: Any, source: SourceTable, schemas: FileSchemas, partitions: Sequence[str]
) -> set[tuple[str, str]] | None:
    """Return the differences that are left if Spark merges the schemas; None if it cannot."""
    is_merged = source.options.get(_MERGE.lower(), "").lower() == "true"
    if source.catalog or is_merged or source.format == "avro":
        return None
    reader = session.read.format(source.format).options(**source.read_options)
    try:
        merged = reader.option(_MERGE, "true").load(source.location).schema
    except (PySparkException, Py4JError):
        return None
    left = columns.differences(schemas.schemas, merged, partitions)
    return {(each.path.lower(), each.stored) for each in left}


def conflicts_at(session: Any, path: str, format: str) -> list[Problem]:
    """Return the columns with several types in the files of a path that Spark cannot read.

    Spark's own error often names neither the column nor the file.
    """
    if format not in parquet_orc_avro.FORMATS or getattr(session, "_jvm", None) is None:
        return []
    storage = Storage(session)
    try:
        stored = storage.files_below(path)
        uris = sorted(each.uri for each in visible(stored) if storage.is_local(path))
        found = columns.conflicts(parquet_orc_avro.read_all(storage, format, uris).schemas)
    except UnreachableError as error:
        return [blocker(f"The second reader cannot read {error}")]
    return [
        blocker(
            f"{path_in(each.file)} has {each.stored}, and another file {each.read_as}: convert the "
            "files of each type as a table of their own",
            each.path,
        )
        for each in found[:_FIELDS]
    ]


# -- files -----------------------------------------------------------------------------------------


def _file_problems(
    storage: Storage, source: SourceTable, directories: Sequence[str]
) -> Iterator[Problem]:
    if not source.options.keys().isdisjoint(_OF_OPTIONS):
        return
    stored = storage.files_below(source.location)
    hidden = hidden_files(storage, source.format, stored)
    if hidden:
        names = first_names(hidden, 3)
        yield blocker(
            f"Spark skips {len(hidden)} files because of their names: {names}. Rename them if "
            f"their rows belong to the table, or accept that they are left out with the option "
            f"{ACCEPT}"
        )
    yield from _partition_problems(source, stored, directories)


def _partition_problems(
    source: SourceTable, stored: Sequence[StoredFile], directories: Sequence[str]
) -> Iterator[Problem]:
    if not source.catalog or not source.partitions or list(directories) == [source.location]:
        return
    found = sorted(unregistered_partitions(stored, directories, len(source.partitions)))
    if found:
        yield warning(
            f"{len(found)} directories of partitions are not in the catalog, so that Spark does "
            f"not read them: {first_names(found, 3)}. Register them (MSCK REPAIR TABLE) if "
            "their rows belong to the table"
        )


def _text_problems(
    session: Any, storage: Storage, source: SourceTable, frame: DataFrame
) -> tuple[list[Problem], int | None]:
    """Compare rows of CSV and JSON files; those of Hive's text files are of no such format.

    Returns the problems, and the number of records if it is known.
    """
    options, files = text_options(session, source), list[str]()
    with suppress(PySparkException, Py4JError):  # Spark's own check gives the error
        files = [] if options is None else sorted(frame.inputFiles())
    if options is None or not files:
        return [], None
    partitions = {name.lower() for name in partitions_of(source, frame)}
    data = [each for each in frame.schema.fields if each.name.lower() not in partitions]
    is_local = storage.is_local(source.location)
    check = csv_check.check if source.format == "csv" else json_check.check
    return check(session, storage, files, StructType(data), options, is_local=is_local)


def text_options(session: Any, source: SourceTable) -> Mapping[str, str] | None:
    """Return the options with which Spark reads a source; None if it is no CSV or JSON of Spark."""
    if source.format not in TEXTS:
        return None
    if not source.catalog:
        return source.read_options
    if source.catalog != OWN_CATALOG:
        return None
    try:
        name = table_identifier(session, source.names)
        entry = session_catalog(session).getTableMetadata(name)
        if str(entry.provider().getOrElse(None) or "").lower() != source.format:
            return None
        pairs = str(entry.storage().properties().mkString(_SEPARATOR)).split(_SEPARATOR)
    except (PySparkException, Py4JError):
        return None
    return dict(each.split(" -> ", 1) for each in pairs if " -> " in each)


# -- rows of the new table -------------------------------------------------------------------------


_COUNT, _VALUES = "rows in the files", "values in the files"
_SAMPLE = 100
_CALENDARS = (
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInRead",
)
"""Settings with which a session reads days and times of the calendar before 1582."""


@dataclass(frozen=True)
class Made:
    """The version of a table that a conversion wrote.

    Attributes:
        schema: Its planned columns.
        casts: See `ConvertOptions`; likewise accept_differences.
    """

    dataset: lance.LanceDataset
    schema: pa.Schema
    casts: Mapping[str, str]
    accept_differences: bool


def compare_rows(session: Any, source: SourceTable, made: Made, level: Level) -> Iterator[Check]:
    """Compare the rows of files: from level `SAMPLE` on some, at level `CHECKSUMS` all.

    Of a snapshot of Delta or Iceberg, only their number is compared, at any level.
    What the second reader cannot read is a check that names the reason, and does not fail.
    """
    is_checked = can_check(session, source) and level.includes(Level.SAMPLE)
    if not (is_checked or has_metadata(session, source)):
        return
    try:
        if not is_checked:
            found = delta_iceberg.read_snapshot(session, Storage(session), source)
            if found is not None and found.rows is not None:
                count = made.dataset.count_rows()
                yield Check(name=_COUNT, ok=found.rows == count, expected=found.rows, found=count)
            return
        with translate_lance_errors(f"The rows of {made.dataset.uri} could not be compared"):
            if source.format in TEXTS:
                yield from _of_texts(session, source, made, level)
            else:
                yield from _of_footers(session, source, made, level)
    except UnreachableError as error:
        yield Check(name=_VALUES, ok=True, found=f"not compared: {error}")


def _of_footers(session: Any, source: SourceTable, made: Made, level: Level) -> Iterator[Check]:
    dataset = made.dataset
    frame, storage = source.read(session), Storage(session)
    reading = read_footers(session, source, frame)
    if reading.unreachable:
        raise UnreachableError(reading.unreachable)
    if reading.schemas is None:
        return
    count = dataset.count_rows()
    files, schemas = _as_read(storage, source, frame, reading.schemas, count)
    if schemas.rows is not None:
        yield Check(name=_COUNT, ok=schemas.rows == count, expected=schemas.rows, found=count)
    if schemas.rows != count or source.format == "avro":
        return
    partitions = partitions_of(source, frame)
    columns = columns_of(source.schema_read, made.schema, made.casts, partitions)
    rows = FileRows(storage, source.format, files, schemas, columns)
    rows.old_calendar |= any(str(session.conf.get(key)).upper() == "LEGACY" for key in _CALENDARS)
    yield from _left_out(rows)
    if not rows.columns or not count:
        return
    if level.includes(Level.CHECKSUMS) and storage.is_local(source.location):
        yield from compare_all(rows, dataset)
    else:  # other storages are read through one process of Java, which takes long
        yield _compare_sample(rows, dataset)


def _of_texts(session: Any, source: SourceTable, made: Made, level: Level) -> Iterator[Check]:
    options = text_options(session, source)
    if options is None or made.accept_differences or not level.includes(Level.CHECKSUMS):
        return
    frame, storage = source.read(session), Storage(session)
    if not storage.is_local(source.location):
        raise UnreachableError("its files are not on this machine")
    partitions = partitions_of(source, frame)
    columns = columns_of(source.schema_read, made.schema, made.casts, partitions)
    files = sorted(frame.inputFiles())
    rows = TextRows(
        storage, source.format, files, options, columns=columns, read=source.schema_read
    )
    if not rows.columns:
        return
    checks = [*compare_all(rows, made.dataset)]
    yield from _left_out(rows)
    yield from checks


def _as_read(
    storage: Storage, source: SourceTable, frame: DataFrame, schemas: FileSchemas, count: int
) -> tuple[list[str], FileSchemas]:
    """Return the files with their footers; if their rows are more, only those that Spark reads.

    Spark also lists files of sub-directories that are no partitions, of which the plan warns.
    """
    files = sorted(frame.inputFiles())
    if schemas.rows is None or schemas.rows <= count or source.format == "avro":
        return files, schemas
    files = sources.files_read(source, frame)
    return files, parquet_orc_avro.read_all(storage, source.format, files)


def _left_out(rows: SourceRows) -> Iterator[Check]:
    for name, reason in rows.left_out.items():
        yield Check(name=_VALUES, ok=True, column=name, found=f"not compared: {reason}")


def compare_all(rows: SourceRows, dataset: lance.LanceDataset) -> Iterator[Check]:
    """Compare all rows by column, and whether the values of each row are together."""
    with ThreadPoolExecutor(2) as pool:
        both = (rows.all(), _rows_of(rows, dataset))
        expected, found = pool.map(lambda each: _sums(each, len(rows.columns)), both)
    for column, one, other in zip(rows.columns, expected, found, strict=False):
        name = column.field.name
        if name not in rows.left_out:
            yield Check(name=_VALUES, column=name, ok=one == other, expected=one, found=other)
    if all(each.field.name not in rows.left_out for each in rows.columns):
        one, other = expected[-1], found[-1]
        yield Check(name=_VALUES, ok=one == other, expected=one, found=other)


def _sums(batches: Iterator[list[Hashes]], columns: int) -> list[str]:
    """Return the sum of the hashes of each column, and of whole rows."""
    found = np.zeros(columns + 1, np.uint64)
    for parts in batches:
        each = [*parts, combined(parts, len(parts[0]))]
        found = found + np.array([part.sum(dtype=np.uint64) for part in each])
    return [f"{each:016x}" for each in found.tolist()]


def _rows_of(rows: SourceRows, dataset: lance.LanceDataset) -> Iterator[list[Hashes]]:
    names = [each.field.name for each in rows.columns]
    scanner = dataset.scanner(columns=names, **scan_limits(dataset, names, most_rows=MOST_ROWS))
    for batch in scanner.to_batches():
        yield _hashes(rows, batch)


def _hashes(rows: SourceRows, batch: Any) -> list[Hashes]:
    return [
        each.hashes(batch.column(each.field.name), old_calendar=rows.old_calendar)
        for each in rows.columns
    ]


def _compare_sample(rows: FileRows, dataset: lance.LanceDataset) -> Check:
    """Search the table for some rows of the files, by the column with the most values."""
    parts = [np.concatenate(each) for each in zip(*rows.sample(_SAMPLE), strict=True)]
    if not parts:
        return Check(name=_VALUES, ok=True, found="not compared: the chosen files have no rows")
    wanted = Counter(combined(parts, len(parts[0])).tolist())
    number = max(range(len(parts)), key=lambda each: len(np.unique(parts[each])))
    for batch in _with_values(rows, dataset, rows.columns[number], np.unique(parts[number])):
        wanted -= Counter(combined(batch, len(batch[0])).tolist())
        if not wanted:
            break
    expected, left = len(parts[0]), wanted.total()
    return Check(name=_VALUES, ok=not left, expected=expected, found=expected - left)


def _with_values(
    rows: FileRows, dataset: lance.LanceDataset, column: Column, values: Hashes
) -> Iterator[list[Hashes]]:
    """Yield the rows of the table with some values in a column."""
    names, first = [each.field.name for each in rows.columns], 0
    size = batch_rows(dataset, names, most_rows=MOST_ROWS)
    searched = [column.field.name]
    limits = scan_limits(dataset, searched, most_rows=MOST_ROWS)
    scanner = dataset.scanner(columns=searched, scan_in_order=True, **limits)
    for batch in scanner.to_batches():
        hashed = column.hashes(batch.column(0), old_calendar=rows.old_calendar)
        is_there = np.isin(hashed, values)
        found = np.flatnonzero(is_there) + first
        first += batch.num_rows
        for start in range(0, len(found), size):
            chosen = found[start : start + size].tolist()
            yield _hashes(rows, dataset.take(chosen, columns=names))
