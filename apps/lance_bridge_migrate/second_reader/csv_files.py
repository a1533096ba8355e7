"""The dialect of CSV that read options describe, and its rows as the second reader parses them."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from .storage import UnreachableError

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
