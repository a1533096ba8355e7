"""Conversion of the parts of lists, structs and maps, many of which a cast of Arrow refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow

from .types import is_list

Convert = Callable[[pa.Array, pa.DataType], pa.Array]
"""Returns an array as another type."""


def convert_parts(array: pa.Array, dtype: pa.DataType, convert: Convert) -> pa.Array | None:
    """Return an array of another nested type with its parts converted; None if it is not nested."""
    found = array.type
    if is_list(found) and (arrow.is_list(dtype) or arrow.is_large_list(dtype)):
        return with_elements(array, convert(array.flatten(), dtype.value_type), dtype)
    if arrow.is_map(found) and arrow.is_map(dtype):
        return _convert_map(array, dtype, convert)
    if arrow.is_struct(found) and arrow.is_struct(dtype) and dtype.num_fields:
        parts = dict(zip([each.name for each in found], array.flatten(), strict=True))
        columns = [convert(parts[each.name], each.type) for each in dtype]
        return pa.StructArray.from_arrays(columns, fields=list(dtype), mask=_mask(array))
    return None


def with_elements(array: pa.Array, elements: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return lists with other elements in place of those that `flatten` gives."""
    offsets = _offsets(pc.list_value_length(array))
    if arrow.is_large_list(dtype):
        places, of = pa.array(offsets.astype(np.int64)), pa.LargeListArray
    else:
        places, of = pa.array(offsets.astype(np.int32)), pa.ListArray
    return of.from_arrays(places, elements, type=dtype, mask=_mask(array))


def _convert_map(array: pa.MapArray, dtype: pa.DataType, convert: Convert) -> pa.Array:
    entry = pa.struct([array.type.key_field, array.type.item_field])
    lists = array.cast(pa.list_(entry))
    keys, items = lists.flatten().flatten()
    offsets = _offsets(pc.list_value_length(lists)).astype(np.int32)
    converted = convert(keys, dtype.key_type), convert(items, dtype.item_type)
    return pa.MapArray.from_arrays(pa.array(offsets), *converted, type=dtype, mask=_mask(array))


def _offsets(lengths: pa.Array) -> np.ndarray[Any, Any]:
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(counts)])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
