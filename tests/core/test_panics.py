"""Panics in pylance's Rust code: they are errors of the operation, as all others."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from lance_bridge.errors import is_panic


def misaligned_decimals() -> pa.Table:
    """Return a column of decimals at an address that Lance's Rust code panics at."""
    memory = bytearray(16 * 4 + 16)
    start = -pa.py_buffer(memory).address % 16 + 8
    values = pa.py_buffer(memoryview(memory)[start : start + 16 * 3])
    return pa.table({"d": pa.Array.from_buffers(pa.decimal128(38, 2), 3, [None, values])})


def test_a_panic_is_recognized() -> None:
    with pytest.raises(BaseException, match="not aligned") as caught:
        lance.write_dataset(misaligned_decimals(), "memory://")
    assert not isinstance(caught.value, Exception)
    assert is_panic(caught.value)
    for other in (ValueError("PanicException"), KeyboardInterrupt(), SystemExit()):
        assert not is_panic(other)
