"""The records of CSV files as the second reader parses them, and their values beside Spark's."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv
from pyspark.sql import types as spark

from lance_bridge.dotted_names import first_names

from ..plan import Problem, blocker, warning
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


# -- values beside Spark's -------------------------------------------------------------------------


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
            for number, column in enumerate(columns.fields):
                cell = record[number] if number < len(record) else Cell("")
                if not rules.is_same(cell, row[number], column.dataType):
                    text = f"{path} has {_shown(cell.text)}, and Spark reads {_shown(row[number])}"
                    return column.name, text, not isinstance(column.dataType, spark.StringType)
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


# -- dialects and records --------------------------------------------------------------------------

_DEFAULT_SEPARATOR, _DEFAULT_QUOTE, _BACKSLASH = ",", '"', "\\"
_UNSUPPORTED = ("lineSep", "comment", "unescapedQuoteHandling", "charToEscapeQuoteEscaping")


@dataclass(frozen=True)
class Cell:
    """A value in a file: its text, and whether it has quotes, as an empty text has."""

    text: str
    is_quoted: bool = False


Record = list[Cell]


@dataclass(frozen=True)
class Dialect:
    """How values are separated and quoted.

    Attributes:
        escape: The character before a quote in a quoted value: the quote itself in most files.
        encoding: As the read option gives it, or "".
        line_end: The last character of a line: a return in files of old systems.
    """

    separator: str = _DEFAULT_SEPARATOR
    quote: str = _DEFAULT_QUOTE
    escape: str = _DEFAULT_QUOTE
    has_header: bool = False
    encoding: str = ""
    line_end: str = "\n"

    def records(self, text: str) -> Iterator[Record]:
        """Yield the records of a text, without empty lines."""
        pattern = self._pattern()
        at, record = 0, list[Cell]()
        while at < len(text):
            found = pattern.match(text, at)
            assert found is not None, "the pattern matches an empty value"
            quoted, after, plain, end = found.groups()
            if quoted is not None:
                record.append(Cell(self._unescaped(quoted) + after, is_quoted=True))
            else:
                record.append(Cell(plain))
            at = found.end()
            if end == self.separator and at < len(text):
                continue
            if end == self.separator:  # the last value of the text is empty
                record.append(Cell(""))
            if record != [Cell("")]:
                yield record
            record = []

    def _pattern(self) -> re.Pattern[str]:
        quote, separator = re.escape(self.quote), re.escape(self.separator)
        escape = re.escape(self.escape)
        inside = rf"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
        if self.escape != self.quote:
            inside = rf"[^{quote}{escape}]*(?:{escape}.[^{quote}{escape}]*)*"
        value = rf"{quote}({inside}){quote}([^{separator}\r\n]*)|([^{separator}\r\n]*)"
        return re.compile(rf"(?:{value})({separator}|\r\n|\n|\r|\Z)", re.DOTALL)

    def _unescaped(self, text: str) -> str:
        if self.escape == self.quote:
            return text.replace(self.quote * 2, self.quote)
        quoted = re.escape(self.quote)
        return re.sub(rf"{re.escape(self.escape)}({quoted}|{re.escape(self.escape)})", r"\1", text)


def dialect_of(read_options: Mapping[str, str]) -> Dialect:
    """Return the dialect that read options describe.

    An escape character counts only if it is given: without one, doubled quotes are the rule.

    Raises:
        UnreachableError: The second reader cannot do what an option says.
    """
    options = {key.lower(): value for key, value in read_options.items()}
    unknown = next((key for key in _UNSUPPORTED if options.get(key.lower())), None)
    separator = options.get("sep", options.get("delimiter", _DEFAULT_SEPARATOR))
    separator = separator.replace("\\t", "\t")
    quote = options.get("quote", _DEFAULT_QUOTE)
    if unknown is not None or len(separator) != 1 or len(quote) != 1 or not separator.isascii():
        name = unknown or ("sep" if len(separator) != 1 else "quote")
        raise UnreachableError(f"the read option {name}")
    return Dialect(
        separator,
        quote,
        options.get("escape", quote),
        options.get("header", "").lower() == "true",
        options.get("encoding", options.get("charset", "")),
    )


def parsed(text: str, dialect: Dialect, names: Sequence[str], skipped: int) -> pa.Table | None:
    """Return records as pyarrow parses them, ten times as fast as `Dialect.records`.

    Args:
        names: The names of all columns.
        skipped: The number of first records to skip.

    Returns:
        Texts by column; None if some records have another number of values, the text has a NUL (in
        which pyarrow loses records), or the dialect an escape character of its own.
    """
    if dialect.escape != dialect.quote or dialect.line_end == "\r" or "\0" in text:
        return None
    try:
        return csv.read_csv(
            io.BytesIO(text.encode()),
            csv.ReadOptions(column_names=names, skip_rows_after_names=skipped),
            csv.ParseOptions(
                delimiter=dialect.separator, quote_char=dialect.quote, newlines_in_values=True
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowException:
        return None


# -- scans -----------------------------------------------------------------------------------------


_CHUNK = 1 << 20
"""Small enough for the caches of a processor."""
_LONGEST = 64 << 20
"""The longest record; a longer one comes from a quote that does not end."""
_OF_A_KIND = 3
_KINDS = ("return", "encoding", "break", "pair", "empty", "backslash", "stray")
"""Kinds of odd records: line breaks, quotes, backslashes, and bytes in quoted values."""
_NEWLINE, _RETURN, _BACKSLASH_BYTE = 10, 13, 92

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


@dataclass
class Scan:
    """What a scan found.

    Attributes:
        head: The first records, at most as many as wanted.
        odd: Some records of each kind on which readers disagree.
        longer: Records, by number, with more values than the first one.
        shorter: The number of records with fewer values than the first one.
        is_utf8: Whether all of the file is UTF-8.
        is_whole: Whether the file was scanned to its end.
    """

    head: bytes = b""
    odd: list[bytes] = field(default_factory=list)
    longer: list[tuple[int, bytes]] = field(default_factory=list)
    shorter: int = 0
    records: int = 0
    values: int = 0
    is_utf8: bool = True
    is_whole: bool = True
    seen: dict[str, int] = field(default_factory=dict)


def scan(stream: BinaryIO, dialect: Dialect, head: int, limit: int | None = None) -> Scan:
    """Scan a file in an encoding that contains ASCII.

    Args:
        head: The number of first records to return.
        limit: The number of bytes to read; by default all.
    """
    found, rest, read = Scan(), b"", 0
    while True:
        more = stream.read(_CHUNK if limit is None else min(_CHUNK, limit - read))
        read += len(more)
        is_end = not more or (limit is not None and read >= limit)
        data = rest + more
        if is_end and more and stream.read(1):
            found.is_whole = False
        chunk = _Chunk(data, dialect, is_end=is_end and found.is_whole)
        _add(found, chunk, head)
        rest = data[chunk.end :]
        if is_end or len(rest) > _LONGEST:
            found.is_whole = found.is_whole and is_end
            return found


def chunks(stream: BinaryIO, dialect: Dialect) -> Iterator[bytes]:
    """Yield a file in an encoding that contains ASCII in parts, each with whole records."""
    rest, more = b"", b"x"
    while more:
        more = stream.read(_CHUNK)
        data = rest + more
        chunk = _Chunk(data, dialect, is_end=not more or len(data) > _LONGEST)
        rest = data[chunk.end :]
        if chunk.end:
            yield chunk.data


class _Chunk:
    """Records of a file, from the start of one to the end of another."""

    def __init__(self, data: bytes, dialect: Dialect, *, is_end: bool) -> None:
        values: Bytes = np.frombuffer(data, dtype=np.uint8)
        quotes = values == ord(dialect.quote)
        if dialect.escape != dialect.quote:
            quotes[1:] &= values[:-1] != ord(dialect.escape)
        self._marks: Positions = np.flatnonzero(quotes)
        self._line_end = ord(dialect.line_end)
        self.ends: Positions = self._outside(np.flatnonzero(values == self._line_end)) + 1
        if is_end and data and (not len(self.ends) or self.ends[-1] < len(data)):
            self.ends = np.append(self.ends, len(data))
        self.end = int(self.ends[-1]) if len(self.ends) else 0
        self.starts: Positions = np.concatenate(([0], self.ends[:-1])).astype(np.int64)
        self.data, self.values = data[: self.end], values[: self.end]
        self._padded = np.pad(self.values, (1, 2), constant_values=_NEWLINE)
        self._dialect = dialect

    def _is_inside(self, positions: Positions) -> Any:
        """Return for each position whether it is in a quoted value, or begins one."""
        return np.searchsorted(self._marks, positions, side="right") & 1 == 1

    def _outside(self, positions: Positions) -> Positions:
        return positions[~self._is_inside(positions)] if len(self._marks) else positions

    def _within(self, positions: Positions) -> Positions:
        return positions[self._is_inside(positions)] if len(self._marks) else positions[:0]

    def counts(self) -> Positions:
        """Return the number of values of each record; 0 for empty lines."""
        separators = self._outside(np.flatnonzero(self.values == ord(self._dialect.separator)))
        before = np.searchsorted(separators, self.ends)
        counts: Positions = np.diff(before, prepend=0) + 1
        sizes = self.ends - self.starts
        last = self.values[np.maximum(self.ends - 2, 0)] if self.end else self.values[:0]
        counts[(sizes <= 1) & (self.values[self.starts] == self._line_end)] = 0
        counts[(sizes == 2) & (last == _RETURN)] = 0
        return counts

    def odd(self, kinds: Collection[str]) -> Iterator[tuple[str, Positions]]:
        """Yield the positions of some kinds."""
        if "return" in kinds:
            returns = np.flatnonzero(self.values == _RETURN)
            alone = returns[self._byte(returns + 1) != _NEWLINE]
            yield "return", alone if self._line_end == _NEWLINE else self._within(alone)
        if "encoding" in kinds:
            try:
                self.data.decode("utf-8")
            except UnicodeDecodeError as error:
                yield "encoding", np.array([error.start])
        if len(self._marks):
            yield from self._odd_quotes(kinds)

    def _odd_quotes(self, kinds: Collection[str]) -> Iterator[tuple[str, Positions]]:
        marks = self._marks[: np.searchsorted(self._marks, self.end)]
        if "break" in kinds:
            is_break = (self.values == _NEWLINE) | (self.values == _RETURN)
            yield "break", self._within(np.flatnonzero(is_break))
        if {"pair", "empty"}.intersection(kinds):
            numbers = np.flatnonzero(np.diff(marks) == 1)
            pairs = marks[numbers]
            is_empty = numbers % 2 == 0  # the first quote begins a value
            is_empty &= self._is_border(self._byte(pairs - 1))
            is_empty &= self._is_border(self._byte(pairs + 2))
            yield "pair", pairs[~is_empty]
            yield "empty", pairs[is_empty]
        if "backslash" in kinds:
            yield "backslash", self._within(np.flatnonzero(self.values == _BACKSLASH_BYTE))
        if "stray" in kinds:
            inner = marks[~self._is_beside(self._byte(marks - 1))]
            yield "stray", inner[~self._is_beside(self._byte(inner + 1))]

    def _byte(self, positions: Positions) -> Bytes:
        """Return the bytes at positions, and line ends for those just outside of the records."""
        return self._padded[positions + 1]

    def _is_beside(self, values: Bytes) -> Any:
        return self._is_border(values) | (values == ord(self._dialect.quote))

    def _is_border(self, values: Bytes) -> Any:
        separator = ord(self._dialect.separator)
        return (values == separator) | (values == _NEWLINE) | (values == _RETURN)

    def records_at(self, position: int, *, is_start: bool) -> bytes:
        """Return the record at a position with those beside it."""
        number = int(np.searchsorted(self.ends, position, side="right"))
        first, last = max(number - 1, 0), min(number + 1, len(self.ends) - 1)
        if is_start:  # the first record may be a header, and is in the head
            first = max(first, 1)
        return self.data[self.starts[first] : self.ends[last]] if first <= last else b""


def _add(found: Scan, chunk: _Chunk, head: int) -> None:
    if not len(chunk.ends):
        return
    counts = chunk.counts()
    if not found.values:
        found.values = int(next((each for each in counts if each), 0))
    if found.records < head:
        last = min(head - found.records, len(chunk.ends)) - 1
        found.head += chunk.data[: chunk.ends[last]]
    for number in np.flatnonzero(counts > found.values)[: _OF_A_KIND - len(found.longer)]:
        text = chunk.data[chunk.starts[number] : chunk.ends[number]]
        found.longer.append((found.records + int((counts[: number + 1] > 0).sum()), text))
    found.shorter += int(((counts > 0) & (counts < found.values)).sum())
    wanted = [each for each in _KINDS if found.seen.get(each, 0) < _OF_A_KIND]
    for kind, positions in chunk.odd(wanted):
        if kind == "encoding":
            found.is_utf8 = False
        _add_odd(found, chunk, kind, positions)
    found.records += int((counts > 0).sum())


def _add_odd(found: Scan, chunk: _Chunk, kind: str, positions: Positions) -> None:
    wanted = _OF_A_KIND - found.seen.get(kind, 0)
    for position in positions[: max(wanted, 0)]:
        text = chunk.records_at(int(position), is_start=not found.records)
        found.seen[kind] = found.seen.get(kind, 0) + 1
        if text and text not in found.odd:
            found.odd.append(text)
