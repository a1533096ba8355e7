"""Compare two Lance datasets: schema, number of rows, and values of some or all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import lance
import pyarrow as pa
import pyarrow.compute as pc

from lance_bridge.errors import translate_lance_errors

from ..journal import Check
from ..levels import Level

_SAMPLE = 100
_BATCH = 4096


def compare(source: lance.LanceDataset, target: lance.LanceDataset, level: Level) -> list[Check]:
    """Compare two datasets, whose rows must be in the same order.

    Values are compared by column: at level `SAMPLE` those of evenly spaced rows, at `CHECKSUMS`
    those of all rows.

    Raises:
        ServiceUnavailableError: (17) one of them cannot be read.
    """
    with translate_lance_errors(f"{source.uri} and {target.uri} could not be compared"):
        return list(_checks(source, target, level))


def _checks(
    source: lance.LanceDataset, target: lance.LanceDataset, level: Level
) -> Iterator[Check]:
    if not level.includes(Level.COUNTS):
        return
    schemas = (str(source.schema), str(target.schema))
    yield Check(
        name="schema",
        ok=source.schema.equals(target.schema),
        expected=schemas[0],
        found=schemas[1],
    )
    rows = (source.count_rows(), target.count_rows())
    yield Check(name="rows", ok=rows[0] == rows[1], expected=rows[0], found=rows[1])
    if rows[0] != rows[1] or schemas[0] != schemas[1]:
        return
    if level.includes(Level.CHECKSUMS):
        yield from compare_values("values", _batches(source), _batches(target), source.schema.names)
    elif level.includes(Level.SAMPLE):
        chosen = sample_row_numbers(rows[0])
        pair = ([source.take(chosen)], [target.take(chosen)])
        yield from compare_values("sample", iter(pair[0]), iter(pair[1]), source.schema.names)


def sample_row_numbers(rows: int) -> list[int]:
    """Return evenly spaced row numbers, including the first and the last."""
    count = min(rows, _SAMPLE)
    return [] if not count else sorted({i * (rows - 1) // max(count - 1, 1) for i in range(count)})


def _batches(dataset: lance.LanceDataset) -> Iterator[pa.RecordBatch]:
    return iter(dataset.scanner(batch_size=_BATCH, scan_in_order=True).to_batches())


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
    """Return whether two columns of the same type have the same values.

    Unlike in pyarrow's own comparison, NaN is equal to NaN, also in lists, structs and maps.
    """
    if one.equals(other):
        return True
    one, other = _plain(one), _plain(other)
    if not one.is_valid().equals(other.is_valid()):
        return False
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
