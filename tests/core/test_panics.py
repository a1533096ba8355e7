"""Panics in pylance's Rust code: they are errors of the operation, as all others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import InternalError, InvalidInputError

from lance_bridge.dataset import create as create_module
from lance_bridge.dataset import rows as request_rows
from lance_bridge.errors import is_panic
from lance_bridge.testing.calls import Calls

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .writing import create, dataset, insert, make, merge, overwrite, place, rows, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#rows-of-a-request")]

NAME = "eu.shop.sales.Orders"
MERGE = partial(merge, on="d")


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


@pytest.fixture
def unaligned(monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Rows that pylance panics on while it writes, for they are not aligned on the way to it."""
    monkeypatch.setattr(request_rows, "align_batch", lambda batch: batch)
    return misaligned_decimals()


@pytest.mark.parametrize("is_read_once", [False, True])
def test_a_create_that_panics_leaves_no_entry(
    namespace: MemoryNamespace, unaligned: pa.Table, tmp_path: Path, is_read_once: bool
) -> None:
    with pytest.raises(InternalError, match=f"'{NAME}'.*panicked.*not aligned") as caught:
        create(namespace, iter(unaligned.to_batches()) if is_read_once else unaligned)
    assert is_panic(find_root(caught.value))
    assert not namespace.server.tables
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    create(namespace, pa.table({"d": [1]}))
    assert rows(namespace) == [{"d": 1}]


@pytest.mark.parametrize("write", [create, insert, MERGE])
def test_a_write_that_panics_leaves_a_declared_table_declared(
    namespace: MemoryNamespace, unaligned: pa.Table, write: Any
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    with pytest.raises(InternalError, match=f"'{NAME}'.*panicked"):
        write(namespace, unaligned)
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
    assert described.is_only_declared
    assert tuple(TABLE) in namespace.server.tables


@pytest.mark.parametrize("write", [insert, MERGE, overwrite])
def test_a_write_that_panics_leaves_the_table_as_it_was(
    namespace: MemoryNamespace, unaligned: pa.Table, write: Any
) -> None:
    make(namespace, unaligned.schema.empty_table())
    with unchanged(namespace, InternalError, f"'{NAME}'.*panicked"):
        write(namespace, unaligned)


@pytest.mark.parametrize(
    ("method", "operation", "fields"),
    [
        ("delete", "delete_from_table", {"predicate": "a = 1"}),
        ("restore", "restore_table", {"version": 1}),
    ],
)
def test_a_panic_beside_another_commit_is_no_conflict(
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    operation: str,
    fields: dict[str, Any],
) -> None:
    make(namespace, pa.table({"a": [1]}))

    def overtaken(*_: Any) -> None:
        lance.write_dataset(pa.table({"a": [2]}), place(namespace), mode="append")
        lance.write_dataset(misaligned_decimals(), "memory://")

    monkeypatch.setattr(lance.LanceDataset, method, overtaken)
    with pytest.raises(InternalError, match=f"'{NAME}'.*panicked"):
        Calls(namespace).call(operation, TABLE, **fields)


@pytest.fixture
def unstorable(monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Rows that pylance refuses while it writes, for they are not checked on the way to it."""
    monkeypatch.setattr(request_rows, "check_types", lambda _: None)
    monkeypatch.setattr(request_rows, "require_storable", lambda _: None)
    return pa.table({"c": pa.array([{}, None], pa.struct([]))})


def test_a_create_whose_rows_lance_refuses_leaves_no_entry(
    namespace: MemoryNamespace, unstorable: pa.Table
) -> None:
    with pytest.raises(InvalidInputError, match="field c is an empty struct"):
        create(namespace, unstorable)
    assert not namespace.server.tables


def test_a_create_whose_rows_are_refused_keeps_the_data_of_another_client(
    namespace: MemoryNamespace, unstorable: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_written = create_module.not_written

    def overtaken(*arguments: Any) -> Any:
        create(namespace, pa.table({"c": [1]}))  # another client completes the declared table
        return not_written(*arguments)

    monkeypatch.setattr(create_module, "not_written", overtaken)
    with pytest.raises(InvalidInputError, match="field c is an empty struct"):
        create(namespace, unstorable)
    assert dataset(namespace).count_rows() == 1


def find_root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
