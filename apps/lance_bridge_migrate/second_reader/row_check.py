"""Compare the rows of a new table with those that the second reader reads from the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lance_bridge.errors import translate_lance_errors

from ..levels import Level
from ..record import Check
from ..spark import sources
from ..spark.sources import SourceTable
from . import footers, lakes
from .check import TEXTS, can_check, has_metadata, partitions_of, read_footers, text_options
from .file_rows import Column, FileRows, columns_of, rows_at_once
from .footers import FileSchemas
from .hashes import Hashes, combined, hashes
from .storage import Storage, UnreachableError
from .text_rows import TextRows

_COUNT, _VALUES = "rows in the files", "values in the files"
_SAMPLE = 100
_CALENDARS = (
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInRead",
)


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

    def columns(self, source: SourceTable, partitions: Sequence[str]) -> list[Column]:
        """Return its columns with those of the source."""
        return columns_of(source.schema_read, self.schema, self.casts, partitions)


class SourceRows(Protocol):
    """Rows that the second reader reads; see `FileRows`."""

    columns: list[Column]
    left_out: dict[str, str]
    old_calendar: bool

    def all(self) -> Iterator[list[Hashes]]:
        """Yield the hashes of all rows by column, batch by batch."""
        ...


def compare(session: Any, source: SourceTable, made: Made, level: Level) -> Iterator[Check]:
    """Compare the rows of files: from level `SAMPLE` on some, at level `CHECKSUMS` all.

    Of a snapshot of Delta or Iceberg, only their number is compared, at any level.
    What the second reader cannot read is a check that names the reason, and does not fail.
    """
    is_checked = can_check(session, source) and level.includes(Level.SAMPLE)
    if not (is_checked or has_metadata(session, source)):
        return
    try:
        if not is_checked:
            yield from _of_snapshot(session, source, made.dataset.count_rows())
            return
        with translate_lance_errors(f"The rows of {made.dataset.uri} could not be compared"):
            if source.format in TEXTS:
                yield from _of_texts(session, source, made, level)
            else:
                yield from _of_footers(session, source, made, level)
    except UnreachableError as error:
        yield Check(name=_VALUES, ok=True, found=f"not compared: {error}")


def _of_snapshot(session: Any, source: SourceTable, count: int) -> Iterator[Check]:
    found = lakes.read(session, Storage(session), source)
    if found is not None and found.rows is not None:
        yield Check(name=_COUNT, ok=found.rows == count, expected=found.rows, found=count)


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
    columns = made.columns(source, partitions_of(source, frame))
    rows = FileRows(storage, source.format, files, schemas, columns)
    rows.old_calendar = rows.old_calendar or _has_old_calendar(session)
    yield from _not_compared(rows)
    if not rows.columns or not count:
        return
    if level.includes(Level.CHECKSUMS) and storage.is_local(source.location):
        yield from compare_all(rows, dataset)
    else:  # other storages are read through one process of Java, which takes long
        yield _compare_sample(rows, dataset)


def _has_old_calendar(session: Any) -> bool:
    """Return whether a session reads days and times as those of the calendar before 1582."""
    return any(str(session.conf.get(key)).upper() == "LEGACY" for key in _CALENDARS)


def _of_texts(session: Any, source: SourceTable, made: Made, level: Level) -> Iterator[Check]:
    options = text_options(session, source)
    if options is None or made.accept_differences or not level.includes(Level.CHECKSUMS):
        return
    frame, storage = source.read(session), Storage(session)
    if not storage.is_local(source.location):
        raise UnreachableError("its files are not on this machine")
    rows = TextRows(storage, source.format, sorted(frame.inputFiles()), options)
    rows.choose(made.columns(source, partitions_of(source, frame)), source.schema_read)
    if not rows.columns:
        return
    checks = [*compare_all(rows, made.dataset)]
    yield from _not_compared(rows)
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
    return files, footers.read_all(storage, source.format, files)


def _not_compared(rows: SourceRows) -> Iterator[Check]:
    for name, reason in rows.left_out.items():
        yield Check(name=_VALUES, ok=True, column=name, found=f"not compared: {reason}")


# -- all rows --------------------------------------------------------------------------------------


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
    scanner = dataset.scanner(columns=names, batch_size=_batch_size(dataset))
    for batch in scanner.to_batches():
        yield _hashes(rows, batch)


def _hashes(rows: SourceRows, batch: Any) -> list[Hashes]:
    return [_of_column(rows, each, batch.column(each.field.name)) for each in rows.columns]


def _of_column(rows: SourceRows, column: Column, values: Any) -> Hashes:
    return hashes(column.as_compared(values), column.field.type, old_calendar=rows.old_calendar)


def _batch_size(dataset: lance.LanceDataset) -> int:
    files = [file for each in dataset.get_fragments() for file in each.metadata.files]
    size = sum(int(file.file_size_bytes or 0) for file in files)
    return rows_at_once(size, dataset.count_rows())


# -- a sample --------------------------------------------------------------------------------------


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
    expected = len(parts[0])
    found = expected - wanted.total()
    return Check(name=_VALUES, ok=not wanted, expected=expected, found=found)


def _with_values(
    rows: FileRows, dataset: lance.LanceDataset, column: Column, values: Hashes
) -> Iterator[list[Hashes]]:
    """Yield the rows of the table with some values in a column."""
    names, first = [each.field.name for each in rows.columns], 0
    size = _batch_size(dataset)
    scanner = dataset.scanner(columns=[column.field.name], batch_size=size, scan_in_order=True)
    for batch in scanner.to_batches():
        is_there = np.isin(_of_column(rows, column, batch.column(0)), values)
        found = np.flatnonzero(is_there) + first
        first += batch.num_rows
        for start in range(0, len(found), size):
            chosen = found[start : start + size].tolist()
            yield _hashes(rows, dataset.take(chosen, columns=names))
