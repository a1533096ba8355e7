"""Verification: compares Lance datasets by schema, number of rows, and values of some or all rows.

Of blobs, the bytes are compared: a scan without further arguments reads descriptions of them only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_bridge import blobs
from lance_bridge.dataset import READ_AHEAD, batch_rows, row_bytes
from lance_bridge.errors import translate_lance_errors

from .. import Level
from ..record import Check

_SAMPLE = 100
_BATCH = 4096
_ROW_ID = "_rowid"
Sizes = np.ndarray[Any, Any]
"""The bytes of rows."""


def compare(
    source: lance.LanceDataset, target: lance.LanceDataset, level: Level
) -> Iterator[Check]:
    """Compare two datasets, whose rows must be in the same order.

    Values are compared by column: at level `SAMPLE` those of evenly spaced rows, at `CHECKSUMS`
    those of all rows.

    Raises:
        ServiceUnavailableError: (17) one of them cannot be read.
    """
    if not level.includes(Level.COUNTS):
        return
    with translate_lance_errors(f"{source.uri} and {target.uri} could not be compared"):
        schemas, is_same = (str(source.schema), str(target.schema)), source.schema == target.schema
        yield Check(name="schema", ok=is_same, expected=schemas[0], found=schemas[1])
        rows, found = source.count_rows(), target.count_rows()
        yield Check(name="rows", ok=rows == found, expected=rows, found=found)
        if rows != found or schemas[0] != schemas[1]:
            return
        if level.includes(Level.CHECKSUMS):
            most = min(map(rows_per_batch, (source, target)))
            pair = (read_all(source, most), read_all(target, most))
            yield from compare_values("values", *pair, source.schema.names)
        elif level.includes(Level.SAMPLE):
            chosen = sample_row_numbers(rows)
            sizes = sizes_of(source, chosen) + sizes_of(target, chosen)
            pair = (read_rows(source, chosen, sizes), read_rows(target, chosen, sizes))
            yield from compare_values("sample", *pair, source.schema.names)


def sample_row_numbers(rows: int) -> list[int]:
    """Return evenly spaced row numbers, including the first and the last."""
    count = min(rows, _SAMPLE)
    return [] if not count else sorted({i * (rows - 1) // max(count - 1, 1) for i in range(count)})


def rows_per_batch(dataset: lance.LanceDataset) -> int:
    """Return how many rows a batch may have, so that it fits in memory."""
    with_blobs = _with_blobs(dataset)
    most = blobs.batch_rows(dataset, with_blobs, _BATCH) if with_blobs else _BATCH
    return batch_rows(dataset, most_rows=most)


def read_all(dataset: lance.LanceDataset, rows: int) -> Iterator[pa.RecordBatch]:
    """Return all rows in their order, with the bytes of blobs, in batches of so many rows."""
    arguments = blobs.scan_arguments(dataset.schema, dataset.schema.names)
    if rows < _BATCH:
        arguments["io_buffer_size"] = READ_AHEAD
    scanner = dataset.scanner(
        batch_size=rows, strict_batch_size=True, scan_in_order=True, **arguments
    )
    return iter(scanner.to_batches())


def sizes_of(dataset: lance.LanceDataset, numbers: list[int]) -> Sizes:
    """Return the bytes of some rows: of blobs in top-level columns exactly."""
    with_blobs = _with_blobs(dataset)
    sizes = np.full(len(numbers), row_bytes(dataset), np.int64)
    for column in dataset.take(numbers, columns=with_blobs).columns if with_blobs else ():
        found = blobs.row_sizes([column.combine_chunks()])
        sizes += blobs.UNKNOWN_SIZE if found is None else found
    return sizes


def read_rows(dataset: lance.LanceDataset, numbers: list[int], sizes: Sizes) -> Iterator[pa.Table]:
    """Yield rows by their numbers, with the bytes of blobs, in tables that fit in memory.

    Args:
        sizes: The bytes of each of the rows.
    """
    names = dataset.schema.names
    if not _with_blobs(dataset):
        for start, length in blobs.slices(sizes, len(numbers)):
            yield dataset.take(numbers[start : start + length])
        return
    ids = dataset.take(numbers, columns=[_ROW_ID]).column(_ROW_ID).combine_chunks()
    for start, length in blobs.slices(sizes, len(numbers)):
        taken = blobs.take_rows(dataset, ids.slice(start, length), names)
        yield pa.table({name: taken[name] for name in names})


def _with_blobs(dataset: lance.LanceDataset) -> list[str]:
    return blobs.columns_with_blobs(dataset.schema, dataset.schema.names)


def compare_values(
    name: str,
    source: Iterator[pa.RecordBatch | pa.Table],
    target: Iterator[pa.RecordBatch | pa.Table],
    columns: Sequence[str],
) -> Iterator[Check]:
    """Compare rows by column; the batches of both must have the same sizes."""
    differing: dict[str, int] = {}
    read = 0
    for one, other in zip_longest(source, target):
        for column in columns:
            if one is None or other is None or not _is_same(one[column], other[column]):
                differing.setdefault(column, read)
        read += one.num_rows if one is not None else 0
    for column in columns:
        at = differing.get(column)
        found = None if at is None else f"a difference in the batch from row {at} on"
        yield Check(name=name, column=column, ok=at is None, found=found)


def _is_same(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether two columns of the same type, or of blobs and bytes, have the same values.

    Unlike in pyarrow's own comparison, NaN is equal to NaN, also in lists, structs and maps.
    """
    if one.equals(other):
        return True
    one, other = _plain(one), _plain(other)
    if one.equals(other):
        return True
    return bool(one.is_valid().equals(other.is_valid())) and _have_same_parts(one, other)


def _have_same_parts(one: pa.Array, other: pa.Array) -> bool:
    if pa.types.is_floating(one.type):
        nan = (pc.is_nan(one), pc.is_nan(other))
        return bool(nan[0].equals(nan[1]) and _without_nan(one).equals(_without_nan(other)))
    if pa.types.is_struct(one.type):
        return all(map(_is_same, one.flatten(), other.flatten()))
    if _is_list(one.type):
        lengths = (pc.list_value_length(one), pc.list_value_length(other))
        return bool(lengths[0].equals(lengths[1])) and _is_same(one.flatten(), other.flatten())
    return False


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values as one array of a type whose parts can be compared."""
    if isinstance(values, pa.ChunkedArray):
        return _plain(values.combine_chunks())
    if blobs.is_blob_type(values.type):
        return values.storage.flatten()[values.type.storage_type.get_field_index("data")]
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    if pa.types.is_dictionary(values.type):
        return _plain(values.dictionary_decode())
    if pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        return values.cast(pa.list_(entry))
    # Not every function has a variant for float16.
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(values), pa.scalar(0.0, values.type), values)


def _is_list(of: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(of) for check in checks)
