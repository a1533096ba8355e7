"""What a caller may hand in as rows: every form of it, read to its end, and held nowhere.

Where the Rust code of pylance panics at it, that is an error of the operation, too.
"""

from __future__ import annotations

import gzip
import io
import mmap
import os
import random
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from lance_namespace.errors import InternalError, InvalidInputError

from lance_bridge.dataset import create as create_module
from lance_bridge.dataset import rows as request_rows
from lance_bridge.dataset.rows import Rows
from lance_bridge.errors import is_panic
from lance_bridge.testing.calls import Calls

from .arrow_data import to_stream
from .memory_catalog import TABLE, MemoryNamespace
from .table_data import create, dataset, insert, ipc, make, merge, overwrite, place, rows, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#rows-of-a-request")]

ROWS = pa.table({"id": list(range(10)), "word": [f"w{i}" for i in range(10)]})
STREAM = ipc(ROWS, chunk=2)
BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
)
NAME = "eu.shop.sales.Orders"
MERGE = partial(merge, on="d")


class Grudging:
    """A binary file that gives a few bytes at once and cannot go back, as a pipe."""

    def __init__(self, data: bytes, error: BaseException | None = None) -> None:
        self._inner = io.BytesIO(data)
        self._error = error
        self.closed = False

    def read(self, size: int) -> bytes:
        piece = self._inner.read(min(size, 3))
        if not piece and self._error is not None:
            raise self._error
        return piece

    def close(self) -> None:
        self.closed = True


class GrudgingBuffers(Grudging):
    """The same, which also gives buffers to Arrow, as the body of a request does."""

    def read_buffer(self, size: int) -> pa.Buffer:
        data = b""
        while piece := self.read(size - len(data)):
            data += piece
        return pa.py_buffer(data)


class Capsule:
    """Something of another library that exports an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


def file_of(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return path.open("rb")


def mapped(data: bytes, path: Path) -> Any:
    with file_of(data, path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def unzipped(data: bytes, path: Path) -> Any:
    path.write_bytes(gzip.compress(data))
    return gzip.open(path)


def piped(data: bytes, _: Path) -> Any:
    own_end, other_end = socket.socketpair()

    def send() -> None:
        with other_end:
            other_end.sendall(data)

    threading.Thread(target=send, daemon=True).start()
    return own_end.makefile("rb", buffering=0)


IN_MEMORY: dict[str, Callable[[bytes, Path], Any]] = {
    "bytes": lambda data, _: data,
    "bytearray": lambda data, _: bytearray(data),
    "memoryview": lambda data, _: memoryview(data),
    "buffer of Arrow": lambda data, _: pa.py_buffer(data),
}
FILES: dict[str, Callable[[bytes, Path], Any]] = {
    "BytesIO": lambda data, _: io.BytesIO(data),
    "file": file_of,
    "mmap": mapped,
    "gzip": unzipped,
    "file of Arrow": lambda data, _: pa.BufferReader(data),
}
ONCE: dict[str, Callable[[bytes, Path], Any]] = {
    "socket": piped,
    "few bytes at once": lambda data, _: Grudging(data),
    "buffers": lambda data, _: GrudgingBuffers(data),
}
STREAMS = {**IN_MEMORY, **FILES, **ONCE}
BATCHES: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.combine_chunks().to_batches()[0],
    "reader": lambda: ROWS.to_reader(max_chunksize=3),
    "list of batches": lambda: ROWS.to_batches(max_chunksize=3),
    "generator of batches": lambda: (batch for batch in ROWS.to_batches(max_chunksize=3)),
    "Arrow capsule": Capsule,
}
WRITES = [insert, merge, overwrite]


# -- forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [create, insert, merge])
@pytest.mark.parametrize("form", [*STREAMS, *BATCHES])
def test_rows_are_taken_in_every_form(
    namespace: MemoryNamespace, tmp_path: Path, form: str, write: Any
) -> None:
    if write is not create:
        make(namespace, ROWS.schema.empty_table())
    is_stream = form in STREAMS
    write(namespace, STREAMS[form](STREAM, tmp_path / "s") if is_stream else BATCHES[form]())
    assert rows(namespace) == ROWS.to_pylist()


def test_a_file_is_read_from_where_it_stands_and_stays_open(namespace: MemoryNamespace) -> None:
    file = io.BytesIO(b"head" + STREAM)
    file.seek(4)
    create(namespace, file)
    assert rows(namespace) == ROWS.to_pylist()
    assert not file.closed
    pipe = Grudging(STREAM)
    insert(namespace, pipe)
    assert not pipe.closed
    assert dataset(namespace).count_rows() == 20


@pytest.mark.spec("operations.md#insertintotable")
@pytest.mark.parametrize(
    "data",
    [
        None,
        "text",
        5,
        object(),
        io.StringIO("text"),
        [],
        iter([]),
        [1],
        iter(["x"]),
        {"a": [1]},
        memoryview(STREAM)[::2],
        b"",
        io.BytesIO(),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_holds_no_rows_is_invalid_input(namespace: MemoryNamespace, data: Any) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"data|file"):
        create(namespace, data)
    assert not namespace.server.effects


# -- what is wrong with rows -----------------------------------------------------------------------

BROKEN = {
    "cut inside a batch": STREAM[: len(STREAM) // 2],
    "cut between batches": STREAM[:-8],
    "cut in the mark": STREAM[:-4],
    "goes on": STREAM + b"x",
    "no UTF-8": ipc(pa.table({"id": [1], "word": BAD_TEXT})),
}


@pytest.mark.spec("operations.md#insertintotable")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("form", ["bytes", "file", "few bytes at once"])
def test_a_broken_stream_is_refused_before_anything_is_visible(
    namespace: MemoryNamespace, tmp_path: Path, form: str, write: Any
) -> None:
    make(namespace, ROWS)
    for data in BROKEN.values():
        with unchanged(namespace, errors.InvalidInputError):
            write(namespace, STREAMS[form](data, tmp_path / "stream"))


@pytest.mark.parametrize("form", [*IN_MEMORY, *FILES])
def test_create_leaves_no_entry_for_a_broken_stream_that_can_be_read_twice(
    namespace: MemoryNamespace, tmp_path: Path, form: str
) -> None:
    for data in BROKEN.values():
        with pytest.raises(errors.InvalidInputError):
            create(namespace, STREAMS[form](data, tmp_path / "stream"))
        assert not namespace.server.effects


@pytest.mark.spec("common.md#createtable")
@pytest.mark.parametrize("form", ONCE)
@pytest.mark.parametrize("fault", BROKEN)
def test_create_leaves_a_declared_table_for_a_broken_stream_that_is_read_once(
    namespace: MemoryNamespace, tmp_path: Path, fault: str, form: str
) -> None:
    with pytest.raises(errors.InvalidInputError):
        create(namespace, STREAMS[form](BROKEN[fault], tmp_path / "stream"))
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
    assert described.is_only_declared
    create(namespace, STREAM)
    assert rows(namespace) == ROWS.to_pylist()


@pytest.mark.spec("operations.md#insertintotable", "operations.md#mergeinsertintotable")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "second",
    [
        "no batch",
        pa.record_batch({"id": ["x"], "word": ["y"]}),
        pa.record_batch({"id": [1], "word": BAD_TEXT}),
    ],
    ids=["no batch", "other schema", "no UTF-8"],
)
def test_batches_are_checked_as_streams_are(
    namespace: MemoryNamespace, write: Any, second: Any
) -> None:
    make(namespace, ROWS)
    for data in ([*ROWS.to_batches(), second], iter([*ROWS.to_batches(), second])):
        with unchanged(namespace, errors.InvalidInputError):
            write(namespace, data)


@pytest.mark.parametrize("write", [create, *WRITES])
@pytest.mark.parametrize("error", [OSError("line is dead"), KeyError("a"), KeyboardInterrupt()])
def test_what_the_caller_s_own_source_raises_is_raised_as_it_is(
    namespace: MemoryNamespace, write: Any, error: BaseException
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise error

    if write is not create:
        make(namespace, ROWS)
    in_batch = GrudgingBuffers(STREAM[:-40], error)
    for data in (failing(), Grudging(STREAM[:-8], error), in_batch):
        with pytest.raises(type(error)) as caught:
            write(namespace, data)
        assert caught.value is error
    if write is not create:
        assert (dataset(namespace).version, rows(namespace)) == (1, ROWS.to_pylist())


def test_a_source_that_fails_leaves_no_files_behind(namespace: MemoryNamespace) -> None:
    make(namespace, ROWS)
    data = os.path.join(dataset(namespace).uri, "data")
    before = set(os.listdir(data))
    with pytest.raises(errors.InvalidInputError):
        insert(namespace, Grudging(STREAM[:-8]))
    assert set(os.listdir(data)) == before


@pytest.mark.spec("operations.md#mergeinsertintotable")
def test_a_merge_that_needs_no_rows_still_reads_them_to_their_end(
    namespace: MemoryNamespace,
) -> None:
    make(namespace, ROWS.schema.empty_table())
    request = api.MergeInsertIntoTableRequest(id=TABLE, on=["id"], when_matched_update_all=True)
    with unchanged(namespace, errors.InvalidInputError, "cut short"):
        namespace.merge_insert_into_table(request, Grudging(STREAM[:-8]))
    answer = namespace.merge_insert_into_table(request, Grudging(STREAM))
    assert (answer.num_updated_rows, answer.version) == (0, 2)


KINDS = pa.table({"a": [1, 2, 3], "s": ["x", None, "zz"], "v": [[1.0], [], None]})
EOS = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def read_stream(data: bytes) -> pa.Table:
    """Return the rows of a stream, as a write would get them."""
    rows = Rows.from_data(data)
    rows.require_storable()
    return rows.reader().read_all()


# -- legal streams ---------------------------------------------------------------------------------


OLD_FRAMING: dict[str, Any] = {"use_legacy_format": True}
OLDEST = {**OLD_FRAMING, "metadata_version": pa.ipc.MetadataVersion.V4}
NOT_NULL = pa.field("x", pa.int64(), nullable=False)


def test_a_legal_stream_is_read_whole() -> None:
    assert read_stream(ipc(KINDS)) == KINDS
    assert read_stream(ipc(KINDS, chunk=1)) == KINDS
    empty = KINDS.schema.empty_table()
    assert read_stream(ipc(empty)) == empty
    for old in (OLD_FRAMING, OLDEST):
        assert not to_stream(KINDS, **old).endswith(EOS)
        assert read_stream(to_stream(KINDS, **old)) == KINDS
    hidden = pa.table({"s": [{"x": 1}, None]}, schema=pa.schema([("s", pa.struct([NOT_NULL]))]))
    assert read_stream(ipc(hidden)) == hidden
    long = pa.table({"a": list(range(10_000)), "s": ["same"] * 10_000})
    for codec in ("lz4", "zstd"):
        data = to_stream(long, compression=codec)
        assert len(data) < len(ipc(long))
        assert read_stream(data) == long


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": [1, None]}, schema=pa.schema([NOT_NULL])),
        pa.table({"s": [{"x": 1}, {"x": None}]}, schema=pa.schema([("s", pa.struct([NOT_NULL]))])),
        pa.table({"l": [[1, None]]}, schema=pa.schema([("l", pa.list_(NOT_NULL))])),
    ],
)
def test_a_null_where_the_schema_has_none_is_invalid(table: pa.Table) -> None:
    with pytest.raises(errors.InvalidInputError, match="must not be null"):
        read_stream(ipc(table))


# -- broken streams --------------------------------------------------------------------------------


@pytest.mark.spec("common.md#createtable")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        EOS,
        b"hello, this is no stream at all",
        b"ARROW1\x00\x00",
        b"PAR1",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\x00" * 16,
        b"\x00" * 4096,
        ipc(pa.table({})),
    ],
)
def test_what_is_no_stream_is_invalid(data: bytes) -> None:
    with pytest.raises(
        errors.InvalidInputError, match=r"no data|not a complete Arrow IPC stream|no columns"
    ):
        read_stream(data)


def test_a_stream_cut_anywhere_is_invalid() -> None:
    """Also before its end marker, which Arrow allows to leave out: lost batches look the same."""
    data = ipc(KINDS, chunk=1)
    for end in range(len(data)):
        with pytest.raises(errors.InvalidInputError):
            read_stream(data[:end])


@pytest.mark.spec("common.md#createtable")
@pytest.mark.parametrize("rest", [b"x", b"\x00" * 8, EOS, ipc(KINDS)])
def test_what_follows_the_end_of_a_stream_is_invalid_and_not_dropped(rest: bytes) -> None:
    with pytest.raises(errors.InvalidInputError, match=f"by {len(rest)} bytes"):
        read_stream(ipc(KINDS) + rest)


def text_array(offsets: list[int], text: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


@pytest.mark.parametrize(
    "array",
    [
        text_array([0, 1_000_000, 4, 6], b"aabbcc"),
        text_array([0, 4, 2, 6], b"aabbcc"),
        text_array([0, -5, 4, 6], b"aabbcc"),
        text_array([0, 2, 4, 6], b"aa\xff\xfecc"),
        pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int8()), pa.array(["a"]), safe=False),
    ],
    ids=["offset beyond", "offsets fall", "offset below", "no UTF-8", "no such word"],
)
def test_values_that_would_lead_outside_their_buffers_are_invalid(array: pa.Array) -> None:
    with pytest.raises(errors.InvalidInputError, match="not valid Arrow data: In column 's'"):
        read_stream(ipc(pa.table({"s": array})))


@pytest.mark.parametrize("column", [[{"x": 1}] * 5, pa.array(["a"] * 5, pa.string_view()), [1] * 5])
@pytest.mark.parametrize("length", [-(1 << 56), -1, 1 << 40])
def test_a_length_that_cannot_be_is_invalid(column: Any, length: int) -> None:
    """Arrow ends the process at the child of a struct whose length is negative."""
    stream = ipc(pa.table({"s": column}))
    last = stream.rindex(struct.pack("<q", 5))  # of the last column and field in the metadata
    with pytest.raises(errors.InvalidInputError, match="Arrow"):
        read_stream(stream[:last] + struct.pack("<q", length) + stream[last + 8 :])


def test_metadata_of_a_schema_that_is_no_text_is_invalid() -> None:
    for metadata in ({b"a": b"\xe2"}, {b"\xff": b"a"}, {b"a": b"\0"}):
        with pytest.raises(errors.InvalidInputError, match=r"not UTF-8|NUL"):
            read_stream(ipc(pa.table({"id": [1]}).replace_schema_metadata(metadata)))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_random_damage_is_refused_or_harmless(compression: str | None) -> None:
    whole = to_stream(KINDS, compression=compression)
    chance = random.Random(20)
    refused = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read_stream(bytes(damaged)).validate(full=True)
        except errors.InvalidInputError:
            refused += 1
    assert refused > 300


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["a", "a"], ["a.b"], [""], ["_rowid"], ["_rowaddr"]])
def test_odd_column_names_are_stored_or_invalid(
    namespace: MemoryNamespace, names: list[str]
) -> None:
    table = pa.table([pa.array([1])] * len(names), names=names)
    try:
        create(namespace, ipc(table))
    except errors.InvalidInputError:
        assert not namespace.server.tables
    else:
        assert namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count == 1


# -- memory ----------------------------------------------------------------------------------------


class Weighed(io.FileIO):
    """A file that notes how much memory Python and Arrow hold while it is being read."""

    peak = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())
        return super().read(size) or b""


@pytest.mark.parametrize(
    "write", [pytest.param(each, marks=pytest.mark.slow) for each in (create, *WRITES)]
)
def test_rows_from_a_file_are_not_held_in_memory(
    namespace: MemoryNamespace, tmp_path: Path, write: Any
) -> None:
    step, path = 100_000, tmp_path / "large"
    schema = pa.schema([("id", pa.int64())])
    with pa.ipc.new_stream(path, schema) as writer:
        for start in range(0, 100 * step, step):
            ids = pa.array(range(start, start + step), pa.int64())
            writer.write_batch(pa.record_batch([ids], schema=schema))
    if write is not create:
        make(namespace, schema.empty_table())
    held = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with Weighed(path) as file:
            write(namespace, file)
    finally:
        tracemalloc.stop()
    assert dataset(namespace).count_rows() == 100 * step
    assert file.peak - held < path.stat().st_size / 2


# -- panics of pylance -----------------------------------------------------------------------------


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
