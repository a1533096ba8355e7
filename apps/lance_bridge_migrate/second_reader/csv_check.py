"""Compare Spark's rows of CSV files with the records that the second reader parses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import types as spark

from lance_bridge.names import first_names

from ..plan import Problem, blocker, warning
from .csv_files import Cell, Dialect, Record, Scan, dialect_of, scan
from .storage import (
    ACCEPT,
    NOT_READ,
    REMOTE_BYTES,
    Samples,
    Storage,
    UnreachableError,
    correction,
    decode,
    encoding_of,
    is_wide,
    most_useful,
    open_text,
    path_in,
    samples_of,
    shortened,
    written,
)

_HEAD = 500
"""The number of first records of a file in its sample."""
_WIDE_BYTES = 4 << 20
_START = 1 << 16
_NULL_TEXT = "\\N"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_SEPARATORS = (";", "\t", "|")


@dataclass(frozen=True)
class CsvSample:
    """A sample of one file, with its records as the second reader parses them."""

    uri: str
    data: bytes
    dialect: Dialect
    found: Scan
    records: list[Record]


def check(
    session: Any,
    storage: Storage,
    files: Sequence[str],
    columns: spark.StructType,
    read_options: Mapping[str, str],
    *,
    is_local: bool,
) -> tuple[list[Problem], int | None]:
    """Compare the files of a source, and find the read options that make both readers agree.

    Returns the problems, and the number of records without headers; None if not all were read.
    Files on this machine are scanned from start to end; of others, the start of some is read.

    Args:
        columns: The columns that Spark reads from the files, without those of directories.
    """
    dialect = dialect_of(read_options)
    sample = partial(sample_of, storage, dialect, is_local=is_local)
    samples, problems = samples_of(files, sample, is_local=is_local)
    problems += _shape_problems(samples, len(columns.fields))
    chosen = most_useful(samples, lambda each: each.found.odd)
    problems += _value_problems(session, chosen, columns, read_options)
    return problems, _count(samples) if is_local else None


def _count(samples: Sequence[CsvSample]) -> int | None:
    """Return the number of all records; None if one file may have been split otherwise."""
    unsure = ("stray", "return")
    if any(not s.found.is_whole or any(k in s.found.seen for k in unsure) for s in samples):
        return None
    return sum(max(s.found.records - s.dialect.has_header, 0) for s in samples)


def sample_of(storage: Storage, dialect: Dialect, uri: str, *, is_local: bool) -> CsvSample | None:
    """Return the sample of a file; None if it is empty.

    Args:
        is_local: Whether the file is scanned to its end.
    """
    with open_text(storage, uri) as stream:
        start = stream.read(_START)
    if b"\r" in start and b"\n" not in start:
        dialect = replace(dialect, line_end="\r")
    encoding = encoding_of(start, dialect.encoding, is_utf8=True)
    if is_wide(encoding):
        return _wide_sample(storage, uri, replace(dialect, encoding=encoding))
    limit = None if is_local else REMOTE_BYTES
    with open_text(storage, uri) as stream:
        found = scan(stream, dialect, _HEAD, limit)
    if "backslash" in found.seen and (found.longer or found.shorter or "stray" in found.seen):
        escaped = replace(dialect, escape="\\")
        with open_text(storage, uri) as stream:
            again = scan(stream, escaped, _HEAD, limit)
        if not (again.longer or again.shorter):
            dialect, found = escaped, again
    if not found.records:
        return None
    encoding = encoding_of(start, dialect.encoding, is_utf8=found.is_utf8)
    dialect = replace(dialect, encoding=encoding)
    parts = (found.head, *found.odd)
    data = b"".join(each if each.endswith((b"\n", b"\r")) else each + b"\n" for each in parts)
    return CsvSample(uri, data, dialect, found, [*dialect.records(decode(data, encoding))])


def _wide_sample(storage: Storage, uri: str, dialect: Dialect) -> CsvSample:
    with open_text(storage, uri) as stream:
        data = stream.read(_WIDE_BYTES + 1)
    if len(data) > _WIDE_BYTES:
        raise UnreachableError(f"{uri}, which is large and in {dialect.encoding}")
    records = [*dialect.records(decode(data, dialect.encoding))]
    counts = [len(each) for each in records]
    found = Scan(records=len(records), values=counts[0] if counts else 0, is_utf8=False)
    found.seen["encoding"] = 1
    return CsvSample(uri, data, dialect, found, records)


def _shape_problems(samples: Sequence[CsvSample], width: int) -> Iterator[Problem]:
    """Yield problems of records that have another number of values than there are columns."""
    plain = [each for each in samples if not is_wide(each.dialect.encoding)]
    widths = Counter(each.found.values for each in plain)
    if widths and {*widths} != {width}:
        rarest = sorted(plain, key=lambda each: widths[each.found.values])
        names = [f"{path_in(each.uri)} has {each.found.values}" for each in rarest]
        yield blocker(
            f"Spark reads {width} columns, and by the values of its first record "
            f"{first_names(names, 3)}: move files elsewhere that are of no table, give the "
            f"read options that they need, or accept what Spark reads with the option {ACCEPT}"
        )
        return
    for each in [each for each in samples if each.found.longer][:1]:
        number, text = each.found.longer[0]
        shown = text[:60].decode("utf-8", "replace").strip()
        yield blocker(
            f"Record {number} of {path_in(each.uri)} has more values than its first record, of "
            f"which Spark drops the last ones ({shown!r}): correct the file, or accept what Spark "
            f"reads with the option {ACCEPT}"
        )
    for each in [each for each in samples if each.found.shorter][:1]:
        yield warning(
            f"{each.found.shorter:,} records of {path_in(each.uri)} have fewer values than its "
            "first record: Spark reads the others as null"
        )


# -- values ----------------------------------------------------------------------------------------


def _value_problems(
    session: Any,
    samples: Sequence[CsvSample],
    columns: spark.StructType,
    read_options: Mapping[str, str],
) -> Iterator[Problem]:
    if not samples or not columns.fields:
        return
    with written(session, "csv", [each.data for each in samples]) as files:
        read = files.read(read_options, columns)
        if read is None:
            yield NOT_READ
            return
        found = _first_difference(samples, read[1], columns, read_options)
        if found is not None:
            options = _options_that_agree(files, samples, read_options)
            column, text, is_typed = found
            text += ": "
            if is_typed and _lower(read_options).get("inferschema", "").lower() == "true":
                text += "read it as a text (without the read option inferSchema), "
            yield blocker(text + correction(options), column)
        else:
            yield from _looks(samples)


def _lower(read_options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in read_options.items()}


def _first_difference(
    samples: Sequence[CsvSample],
    rows: Sequence[Sequence[Any]],
    columns: spark.StructType,
    options: Mapping[str, str],
) -> tuple[str, str, bool] | None:
    """Return the column of the first difference, its text, and whether the column is no text."""
    rules = _Rules.of(options)
    for sample, read in zip(samples, rows, strict=True):
        records, path = sample.records[sample.dialect.has_header :], path_in(sample.uri)
        for record, row in zip(records, read, strict=False):
            for number, field in enumerate(columns.fields):
                cell = record[number] if number < len(record) else Cell("")
                if not rules.is_same(cell, row[number], field.dataType):
                    text = f"{path} has {_shown(cell.text)}, and Spark reads {_shown(row[number])}"
                    return field.name, text, not isinstance(field.dataType, spark.StringType)
        if len(records) != len(read):
            counts = f"{len(records)} records in a sample, and Spark reads {len(read)} rows"
            return "", f"{path} has {counts}", False
    return None


def _shown(value: Any) -> str:
    return "null" if value is None else shortened(repr(str(value)))


@dataclass(frozen=True)
class _Rules:
    """How Spark's options make a value of a text."""

    null: str
    is_empty_given: bool
    strips: bool

    @classmethod
    def of(cls, read_options: Mapping[str, str]) -> _Rules:
        options = _lower(read_options)
        return cls(options.get("nullvalue", ""), "emptyvalue" in options, strips(options))

    def is_same(self, cell: Cell, read: Any, data_type: spark.DataType) -> bool:
        text = cell.text.strip() if self.strips else cell.text
        if self.null and text == self.null:
            return read is None or read == text
        if not text:
            if self.is_empty_given or not isinstance(data_type, spark.StringType):
                return True
            return bool(read == "") if cell.is_quoted else read in (None, "")
        if read is None:
            return False
        if isinstance(data_type, spark.StringType):
            read = read.strip() if self.strips else read
            # In values with several lines, Spark writes all line ends in one way.
            return bool(read == text or read == text.replace("\r\n", "\n"))
        return _is_number(text, read, data_type)


def strips(options: Mapping[str, str]) -> bool:
    """Return whether Spark strips values, by options in lower case."""
    spaces = ("ignoreleadingwhitespace", "ignoretrailingwhitespace")
    return any(options.get(each, "").lower() == "true" for each in spaces)


def _is_number(text: str, read: Any, data_type: spark.DataType) -> bool:
    """Return whether a number is that of a text; 01234 and 1234 are not the same."""
    plain = text.strip().lstrip("+")
    if isinstance(data_type, spark.IntegralType):
        return plain in (str(read), "-0" if read == 0 else str(read))
    if isinstance(data_type, spark.DoubleType) and plain.removeprefix("-").isdecimal():
        return bool(int(plain) == read)  # a large number is rounded
    return True


def _options_that_agree(
    files: Samples, samples: Sequence[CsvSample], read_options: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the fewest options with which Spark reads the samples as the second reader does."""
    wanted = _candidates(samples, read_options)
    if not wanted or not _agree(files, samples, {**read_options, **wanted}):
        return None
    for key in [*wanted]:
        fewer = {name: value for name, value in wanted.items() if name != key}
        if fewer and _agree(files, samples, {**read_options, **fewer}):
            wanted = fewer
    return wanted


def _candidates(samples: Sequence[CsvSample], read_options: Mapping[str, str]) -> dict[str, str]:
    given = {key.lower() for key in read_options}
    seen = {kind for each in samples for kind in each.found.seen}
    is_doubled = all(each.dialect.escape == each.dialect.quote for each in samples)
    encodings = {each.dialect.encoding for each in samples} - {""}
    wanted: dict[str, str] = {}
    if seen & {"break", "return"} or any(is_wide(each) for each in encodings):
        wanted["multiLine"] = "true"
    if seen & {"pair", "backslash", "stray", "break", "encoding"} and is_doubled:
        wanted["escape"] = samples[0].dialect.quote
    if len(encodings) == 1 and not given & {"encoding", "charset"}:
        wanted["encoding"] = encodings.pop()
    if "empty" in seen or seen & {"encoding"}:
        wanted["nullValue"] = _NULL_TEXT
    return {key: value for key, value in wanted.items() if key.lower() not in given}


def _agree(files: Samples, samples: Sequence[CsvSample], options: Mapping[str, str]) -> bool:
    width = max((each.found.values for each in samples), default=0)
    names = [f"_{number}" for number in range(width)]
    first = samples[0].records[0]
    if samples[0].dialect.has_header and len({cell.text.lower() for cell in first}) == width:
        names = [cell.text for cell in first]  # or Spark warns of each name that differs
    columns = spark.StructType([spark.StructField(name, spark.StringType()) for name in names])
    read = files.read(options, columns)
    return read is not None and _first_difference(samples, read[1], columns, options) is None


def _looks(samples: Sequence[CsvSample]) -> Iterator[Problem]:
    """Yield warnings if the first line looks like a header, or another separator is likely."""
    first = samples[0]
    head, rows = first.records[0], first.records[1:]
    if len(head) == 1 and rows:
        counts = {s: {row[0].text.count(s) for row in first.records} for s in _SEPARATORS}
        for separator, found in counts.items():
            if len(found) == 1 and found != {0}:
                yield warning(
                    f"The lines of {path_in(first.uri)} seem to be separated by {separator!r}: "
                    f"give the read option sep (--read-option 'sep={separator}') if they are"
                )
    if not first.dialect.has_header and _is_header(head, rows):
        yield warning(
            f"The first line of {path_in(first.uri)} looks like a header: give the read option "
            "header=true (--read-option header=true) if it is one"
        )


def _is_header(head: Record, rows: Sequence[Record]) -> bool:
    """Return whether a record has only names, and the others have numbers below one of them."""
    if any(not cell.text or _NUMBER.fullmatch(cell.text) for cell in head):
        return False
    for number in range(len(head)):
        texts = [row[number].text for row in rows if number < len(row) and row[number].text]
        if texts and all(_NUMBER.fullmatch(text) for text in texts):
            return True
    return False
