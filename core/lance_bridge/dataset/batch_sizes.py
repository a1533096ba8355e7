"""How many rows a batch of a scan may have, so that its bytes are bounded.

Lance bounds a batch by rows, and fails if a column has more than 2 GiB of text or bytes in it. Its
own limit in bytes begins with a guess from the types, and learns from batches that it has decoded:
the first ones may be far too large. So the number of rows is computed here, from the sizes of files
in the manifest; from the sizes of columns in these files, where others are large; and from a few
decoded rows, because Lance compresses large values. Lance's limit then covers rows that are larger
than most.

Tables of small rows keep the number of rows that they are read with.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as arrow
from lance.file import LanceFileReader

from .. import blobs, locations
from ..dotted_names import split_name
from ..errors import LANCE_ERRORS, panics_as_errors
from . import expressions, paths

BATCH_ROWS = 8192
"""The rows of a batch if they are small."""
SCAN_BYTES = 256 * 2**20
"""About how many bytes a scan of large rows may hold. 290 MB were measured with values of 1 MiB,
and 700 MB with values of 10 MiB, of which Lance reads further ahead."""
_BATCH_PART, _AHEAD_PART = 16, 8
"""The parts of this memory for a batch, and for what is read ahead. The rest is for batches that
are decoded, converted and passed on, and for what the allocator keeps."""
BATCH_BYTES = SCAN_BYTES // _BATCH_PART
"""About how many bytes a batch of large rows has."""
READ_AHEAD = SCAN_BYTES // _AHEAD_PART
"""Bytes that Lance reads ahead. Its default of 2 GiB is larger than most tables."""

_SAMPLE = 5
"""Rows that are decoded to know how large they are."""
_SMALL_FILE = 64 * 2**10
"""Bytes of a fragment whose rows are small enough, however well they are compressed."""
_MOST_FILES = 8
"""Files of one scan whose columns are examined: the others are taken to have the same shares."""
_DICTIONARY_BYTES = 32
"""The assumed size of a value of a dictionary."""
_BY_BYTES = (2, 1)
"""The first version of data files that Lance reads in batches by bytes."""
_MOST_CACHED = 10_000
_MOST_TABLES = 32
"""Tables whose sizes of rows are cached; they take 16 bytes of memory for each fragment."""

Fragments = Sequence[lance.LanceFragment]
Columns = Sequence[str] | Mapping[str, str] | None
"""Names of columns, expressions by alias, or None for all columns."""


# -- limits of scans -------------------------------------------------------------------------------


def batch_rows(
    dataset: lance.LanceDataset,
    columns: Iterable[str] | None = None,
    *,
    fragments: Fragments | None = None,
    most_rows: int = BATCH_ROWS,
    memory: int = SCAN_BYTES,
) -> int:
    """Return how many rows a batch may have: 1 or more, and at most ``most_rows``.

    Blobs count as nothing: see `blobs.batch_rows`.

    Args:
        columns: Names or paths of the columns that are read, also by a filter; all by default.
        fragments: The fragments that are read; all by default.
        memory: About how many bytes the scan may hold.
    """
    sizes = _row_sizes(dataset, columns, fragments, memory // _BATCH_PART // most_rows)
    return _rows(sizes.largest, most_rows, memory)


def scan_limits(
    dataset: lance.LanceDataset,
    columns: Iterable[str] | None = None,
    *,
    fragments: Fragments | None = None,
    most_rows: int | None = None,
    found: int | None = None,
    memory: int = SCAN_BYTES,
) -> dict[str, Any]:
    """Return arguments of pylance's scanner, with which it holds about so many bytes at most.

    They do not fit a scan with ``strict_batch_size``.

    Args:
        columns: As for `batch_rows`, like the arguments below.
        most_rows: The rows of a batch if they are small; by default Lance chooses their number.
        found: The rows that a search finds, for which alone Lance reads most columns. It reads the
            vectors of all rows in batches of the same number of rows.
    """
    most = most_rows or BATCH_ROWS
    most = min(most, found or most)
    sizes = _row_sizes(dataset, columns, fragments, memory // _BATCH_PART // most)
    limits = _limits(sizes, None, most, memory)
    if limits["batch_size"] < most:
        return limits
    return {} if most_rows is None else {"batch_size": most_rows}


def split_scan(
    dataset: lance.LanceDataset,
    columns: Iterable[str] | None = None,
    *,
    fragments: Fragments | None = None,
    most_rows: int = BATCH_ROWS,
    memory: int = SCAN_BYTES,
) -> list[tuple[Fragments | None, dict[str, Any]]]:
    """Return runs of neighbouring fragments with rows of like sizes, each with its `scan_limits`.

    All fragments are one run if none has large rows.
    """
    sizes = _row_sizes(dataset, columns, fragments, memory // _BATCH_PART // most_rows)
    if _class(sizes.largest, most_rows, memory) == _class(sizes.smallest, most_rows, memory):
        return [(fragments, _limits(sizes, None, most_rows, memory))]
    classes = [_class(size, most_rows, memory) for size in sizes.bytes.tolist()]
    runs: list[list[int]] = []
    for number, each in enumerate(classes):
        if runs and classes[runs[-1][-1]] == each:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        ([sizes.fragments[each] for each in run], _limits(sizes, run, most_rows, memory))
        for run in runs
    ]


def row_bytes(
    dataset: lance.LanceDataset,
    columns: Iterable[str] | None = None,
    *,
    fragments: Fragments | None = None,
) -> int:
    """Return about how many bytes a row has, in the fragment where rows are largest.

    It is 0 if rows are small. The arguments are those of `batch_rows`.
    """
    small = BATCH_BYTES // BATCH_ROWS
    largest = int(_row_sizes(dataset, columns, fragments, small).largest)
    return largest if largest > small else 0


def large_row_bytes(
    dataset: lance.LanceDataset, columns: Iterable[str] | None = None
) -> int | None:
    """Return the stored bytes of an average row, or None if rows are small.

    Rows are small if `BATCH_ROWS` of them have at most `BATCH_BYTES`. No row is read.
    """
    sizes = _row_sizes(dataset, columns, None, BATCH_BYTES // BATCH_ROWS, sample=False)
    rows = int(sizes.rows.sum())
    if not rows:
        return None
    average = int((sizes.bytes * sizes.rows).sum() / rows)
    return average if average * BATCH_ROWS > BATCH_BYTES else None


def compaction_limits(dataset: lance.LanceDataset, tasks: Iterable[Any]) -> dict[str, int]:
    """Return options of a compaction, with which its tasks hold about `SCAN_BYTES` at most.

    Args:
        tasks: The tasks of a plan without these options.
    """
    ids = {fragment.id for task in tasks for fragment in task.fragments}
    fragments = [each for each in dataset.get_fragments() if each.fragment_id in ids]
    if not fragments:
        return {}
    most, names = BATCH_ROWS, dataset.schema.names
    with_blobs = blobs.columns_with_blobs(dataset.schema, names)
    if with_blobs:
        most = blobs.batch_rows(dataset, with_blobs, most, fragments=fragments)
    rows = batch_rows(dataset, fragments=fragments, most_rows=most)
    if rows == BATCH_ROWS:
        return {}
    return {"batch_size": rows, "io_buffer_size": READ_AHEAD}


def columns_read(names: list[str], columns: Columns, predicate: str | None = None) -> list[str]:
    """Return the columns that a scan reads for its result and for its filter.

    Args:
        names: The columns of the table.
    """
    read = {*names} if columns is None else {*columns}
    if isinstance(columns, Mapping):
        read = {name for sql in columns.values() for name in expressions.columns_in(sql, names)}
    if predicate is not None:
        read.update(expressions.columns_in(predicate, names))
    return sorted(read)


def _rows(size: float, most_rows: int, memory: int) -> int:
    return min(max(int(memory // _BATCH_PART / max(size, 1)), 1), most_rows)


def _class(size: float, most_rows: int, memory: int) -> int:
    """Return a number that is the same for fragments that are read with the same limits."""
    return _rows(size, most_rows, memory).bit_length()


def _limits(sizes: _Sizes, chosen: list[int] | None, most_rows: int, memory: int) -> dict[str, Any]:
    """Return the limits of a scan of some fragments, by their places, or of all."""
    largest = sizes.largest if chosen is None else float(sizes.bytes[chosen].max())
    rows = _rows(largest, most_rows, memory)
    if rows == most_rows:
        return {"batch_size": rows}
    limits = {
        "batch_size": rows,
        "batch_readahead": 2,
        "io_buffer_size": memory // _AHEAD_PART,
    }
    fragments = sizes.fragments
    if chosen is not None:
        fragments = [fragments[i] for i in chosen]
    if fragments and all(_is_read_by_bytes(each, sizes.ids) for each in fragments):
        limits["batch_size_bytes"] = memory // _BATCH_PART
    return limits


# -- sizes of rows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """The sizes of rows by fragment, or one size if the types alone give it."""

    rows: npt.NDArray[np.int64]
    """The rows of each fragment, with those that were deleted."""
    bytes: npt.NDArray[np.float64]
    """The size of a row of each fragment."""
    ids: frozenset[int]
    """The ids of all columns that are read."""
    get_fragments: Callable[[], Fragments]

    @cached_property
    def fragments(self) -> Fragments:
        """The fragments that are read, or none if the types alone give the size of a row."""
        return self.get_fragments()

    @property
    def largest(self) -> float:
        """The size of a row in the fragment where rows are largest; 0 without fragments."""
        return float(self.bytes.max(initial=0))

    @property
    def smallest(self) -> float:
        """The size of a row in the fragment where rows are smallest; 0 without fragments."""
        return float(self.bytes.min()) if len(self.bytes) else 0


@dataclass(frozen=True)
class _Columns:
    """The columns of a scan."""

    fixed: int
    """The bytes of a row in columns of a fixed width."""
    others: tuple[str, ...]
    ids: frozenset[int]
    """The ids of the other columns, and of the fields inside."""
    all_ids: frozenset[int]
    widths: Mapping[int, int] = field(compare=False)
    """The widths of all columns of the table that have one, by their ids."""


def _row_sizes(
    dataset: lance.LanceDataset,
    columns: Iterable[str] | None,
    fragments: Fragments | None,
    small: float,
    *,
    sample: bool = True,
) -> _Sizes:
    """Return the sizes of rows.

    Args:
        small: The bytes of a row whose exact size does not matter.
        sample: Whether to read a few rows.
    """
    read = _columns_of(dataset, columns)
    if not read.others:
        return _Sizes(np.array([1]), np.array([float(read.fixed)]), read.all_ids, tuple)
    key = None if fragments is not None else (*_content(dataset), read, small, sample)
    if key in _cached_tables:
        return _Sizes(*_cached_tables[key], read.all_ids, dataset.get_fragments)
    found = dataset.get_fragments() if fragments is None else fragments
    stored = [_Stored.of(fragment, read) for fragment in found]
    _examine([each for each in stored if each.bytes > small], dataset, read.ids)
    decoded = _decoded_bytes(stored, read.others) if sample else 0
    rows = np.array([each.rows for each in stored], np.int64)
    sizes = read.fixed + np.array([max(each.bytes, decoded or 0) for each in stored])
    if key is not None and decoded is not None:
        if len(_cached_tables) >= _MOST_TABLES:
            _cached_tables.clear()
        _cached_tables[key] = rows, sizes
    return _Sizes(rows, sizes, read.all_ids, lambda: found)


_cached_tables: dict[Any, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = {}
"""The rows of all fragments of a version and the sizes of their rows, by columns."""


def _content(dataset: lance.LanceDataset) -> tuple[Any, ...]:
    """Return what no other version has, even that of a table that is created again there."""
    ids = list(dataset.fragment_ids())
    last = dataset.get_fragment(ids[-1]) if ids else None
    files = () if last is None else tuple(each.path for each in last.data_files())
    return dataset.uri, dataset.version, len(ids), files


def _columns_of(dataset: lance.LanceDataset, columns: Iterable[str] | None) -> _Columns:
    schema = dataset.schema
    known = set(schema.names)
    names = known if columns is None else {_top_level(each, known) for each in columns} & known
    others, fixed = set[str](), 0
    for name in names:
        field = schema.field(name)
        if blobs.has_blobs(field):
            continue
        width = fixed_width(field.type)
        fixed += width or 0
        if width is None:
            others.add(name)
    if not others:
        return _Columns(fixed, (), frozenset(), frozenset(), {})
    ids, all_ids = paths.field_ids(dataset, others), paths.field_ids(dataset, names)
    widths = {
        each.id(): fixed_width(schema.field(each.name()).type)
        for each in dataset.lance_schema.fields()
        if not each.children()
    }
    known_widths = {number: width for number, width in widths.items() if width is not None}
    return _Columns(fixed, tuple(sorted(others)), frozenset(ids), frozenset(all_ids), known_widths)


def _top_level(name: str, known: set[str]) -> str:
    """Return the name of the column that a path is in."""
    segments = None if name in known else split_name(name)
    return segments[0] if segments else name


def _is_read_by_bytes(fragment: lance.LanceFragment, ids: frozenset[int]) -> bool:
    """Return whether Lance can limit the bytes of batches of columns.

    It cannot if they are in several files, of which it would make batches of different rows.
    """
    files = [each for each in fragment.metadata.files if not ids.isdisjoint(each.fields)]
    versions = [(each.file_major_version, each.file_minor_version) for each in files]
    return len(files) == 1 and versions[0] >= _BY_BYTES


def fixed_width(dtype: pa.DataType) -> int | None:
    """Return the bytes of a value of a type, or None if values differ in size."""
    if isinstance(dtype, pa.BaseExtensionType):
        return fixed_width(dtype.storage_type)
    if arrow.is_dictionary(dtype):
        return _DICTIONARY_BYTES
    if arrow.is_fixed_size_list(dtype):
        inner = fixed_width(dtype.value_type)
        return None if inner is None else inner * int(dtype.list_size)
    if arrow.is_struct(dtype):
        parts = [fixed_width(field.type) for field in dtype]
        return None if None in parts else sum(each or 0 for each in parts)
    try:
        return 0 if arrow.is_null(dtype) else max(int(dtype.bit_width) // 8, 1)
    except ValueError:
        return None


@dataclass
class _Stored:
    """What the manifest says about the stored size of columns of a fragment."""

    fragment: lance.LanceFragment
    rows: int
    files: list[Any]
    """The data files with these columns."""
    is_exact: bool
    """Whether all other columns in these files have a fixed width."""
    bytes: float
    """Of a row, at most; 0 if the manifest does not have the sizes of its files."""

    @classmethod
    def of(cls, fragment: lance.LanceFragment, read: _Columns) -> _Stored:
        metadata = fragment.metadata
        files = [each for each in metadata.files if not read.ids.isdisjoint(each.fields)]
        rows = int(metadata.physical_rows)
        size = sum(each.file_size_bytes or 0 for each in files) / max(rows, 1)
        others = {number for each in files for number in each.fields} - read.ids
        size -= sum(read.widths.get(number, 0) for number in others)
        return cls(fragment, rows, files, others <= read.widths.keys(), max(size, 0.0))


def _examine(stored: Sequence[_Stored], dataset: lance.LanceDataset, ids: frozenset[int]) -> None:
    """Replace the sizes of files with those of the columns that are read."""
    inexact = [each for each in stored if not each.is_exact]
    inexact.sort(key=lambda each: each.bytes * each.rows, reverse=True)
    shares = []
    for each in inexact[:_MOST_FILES]:
        sizes = [_column_bytes(dataset, file, ids) for file in each.files]
        size = sum(sizes) / max(each.rows, 1)
        shares.append(min(size / each.bytes, 1))
        each.bytes = size
    for each in inexact[_MOST_FILES:]:
        each.bytes *= max(shares)


_cached: dict[Any, float] = {}
"""What is known of files, by their names, which are unique, and by columns."""


def _keep(key: Any, size: float) -> float:
    if len(_cached) >= _MOST_CACHED:
        _cached.clear()
    _cached[key] = size
    return size


def _column_bytes(dataset: lance.LanceDataset, file: Any, ids: frozenset[int]) -> float:
    """Return the stored bytes of columns in a data file, or of the file if that is not known."""
    key = (file.path, ids)
    known = _cached.get(key)
    if known is not None:
        return known
    size = float(file.file_size_bytes or 0)
    if file.base_id is not None or len(file.column_indices) != len(file.fields):
        return size
    try:
        path = locations.join(dataset.uri, "data", file.path)
        options = dataset.latest_storage_options()
        with panics_as_errors():
            columns = LanceFileReader(path, options).file_statistics().columns
    except LANCE_ERRORS:
        # Whether the file can be read, the scan says.
        return size
    places = (i for field, i in zip(file.fields, file.column_indices, strict=True) if field in ids)
    exact = sum(columns[i].size_bytes for i in places if 0 <= i < len(columns))
    return _keep(key, float(exact))


def _decoded_bytes(stored: Sequence[_Stored], names: tuple[str, ...]) -> float | None:
    """Return the median of the sizes of a few rows, of the fragment that has the most rows.

    It is None if they cannot be read.
    """
    with_files = (each for each in stored if each.files)
    largest = max(with_files, key=lambda each: each.rows, default=None)
    if largest is None:
        return 0
    sizes = [each.file_size_bytes for each in largest.files]
    if None not in sizes and sum(sizes) < _SMALL_FILE:
        return 0
    key = (largest.files[0].path, names)
    known = _cached.get(key)
    if known is not None:
        return known
    try:
        with panics_as_errors():
            return _keep(key, _sample(largest, names))
    except LANCE_ERRORS:
        # Whether the rows can be read, the scan says.
        return None


def _sample(stored: _Stored, names: tuple[str, ...]) -> float:
    # If one row fills a batch as it is stored, none needs to be decoded.
    most = min(_SAMPLE, int(BATCH_BYTES / max(stored.bytes, 1)))
    count = stored.fragment.count_rows() if most else 0
    if not count:
        return 0
    places = sorted({i * (count - 1) // max(most - 1, 1) for i in range(most)})
    rows = stored.fragment.take(places, columns=list(names))
    return float(statistics.median(rows.slice(i, 1).nbytes for i in range(rows.num_rows)))
