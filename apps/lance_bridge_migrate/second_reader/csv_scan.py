"""Scan a CSV file for the records of which readers are known to disagree.

A file of any size is scanned once, in chunks. Only the records found go to both readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from .csv_dialect import Dialect

_CHUNK = 1 << 20
"""Small enough for the caches of a processor."""
_LONGEST = 64 << 20
"""The longest record; a longer one comes from a quote that does not end."""
_OF_A_KIND = 3
_KINDS = ("return", "encoding", "break", "pair", "empty", "backslash", "stray")
"""Kinds of odd records: line breaks, quotes, backslashes, and bytes in quoted values."""
_NEWLINE, _RETURN, _BACKSLASH = 10, 13, 92

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
            yield "backslash", self._within(np.flatnonzero(self.values == _BACKSLASH))
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
