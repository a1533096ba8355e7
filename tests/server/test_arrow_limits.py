"""Limits of Arrow IPC streams: schemas, and the sizes that messages state."""

from __future__ import annotations

import base64
import io
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.arrow_data import to_stream
from lance_namespace.errors import (
    InvalidInputError,
    TableAlreadyExistsError,
    TableSchemaValidationError,
)
from server.gateways import done, memory_namespace, refused, send_rows, serve_namespace

import lance_bridge
from lance_bridge.testing.calls import ipc
from lance_bridge_server import arrow_limits
from lance_bridge_server.arrow_limits import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_ROW_BYTES,
    BatchLimits,
    check_schema,
)
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.queries import calling
from lance_bridge_server.queries.calling import call_namespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#request-limits")]

TABLE = "/v1/table/films$t"
VECTOR = pa.list_(pa.float32(), 4)


def nested(depth: int) -> pa.DataType:
    dtype = pa.int8()
    for _ in range(depth - 1):
        dtype = pa.struct([("in", dtype)])
    return dtype


def sharing(depth: int, fan: int, **texts: str) -> bytes:
    """Return a schema whose structs have one field many times, as a message of a stream."""
    dtype: pa.DataType = pa.int8()
    for _ in range(depth):
        dtype = pa.struct([("a", dtype), *((str(i), pa.int8()) for i in range(fan - 1))])
    field = pa.field("top", dtype, metadata=texts)
    stream = bytearray(pa.schema([field]).serialize().to_pybytes())
    message = arrow_limits._Table(bytes(stream), 8 + struct.unpack_from("<I", stream, 8)[0])
    header = message.table(2)
    assert header is not None
    [found] = header.tables(1, 1)
    for _ in range(depth):
        children = found.tables(5, fan)
        place = found._field_position(5)
        assert place is not None
        start = place + struct.unpack_from("<I", stream, place)[0] + 4
        for number in range(fan):
            position = start + 4 * number
            struct.pack_into("<I", stream, position, children[0]._position - position)
        found = children[0]
    return bytes(stream)


def test_fields_that_share_one_are_counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(pa.ipc.read_schema(pa.py_buffer(sharing(2, 20)))[0].type) == 20  # it is valid
    check_schema(arrow_limits.read_schema(sharing(2, 20)))
    stream = sharing(3, 150)
    monkeypatch.setattr(pa.ipc, "read_schema", None)  # pyarrow would make 3 million
    with pytest.raises(InvalidInputError, match="more than 10000 columns"):
        BatchLimits(1 << 30).feed(stream)
    with pytest.raises(InvalidInputError, match="more than 10000 columns"):
        arrow_limits.read_schema(stream)


def test_texts_that_fields_share_are_counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    types = [pa.struct([("a", pa.timestamp("s", "x" * 200_000))]), pa.int8()]
    for dtype, metadata in zip(types, (None, {"key": "x" * 200_000}), strict=True):
        field = pa.field("f", dtype, metadata=metadata)
        check_schema(arrow_limits.read_schema(pa.schema([field]).serialize().to_pybytes()))
        many = pa.schema([field.with_name(f"f{i}") for i in range(100)])
        monkeypatch.setattr(arrow_limits, "_METADATA_BYTES", 1 << 20)
        with pytest.raises(InvalidInputError, match="bytes of names and metadata"):
            arrow_limits.read_schema(many.serialize().to_pybytes())


def test_schemas_of_new_columns_are_checked(http: httpx.Client) -> None:
    stream = sharing(3, 150)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = http.post(f"{TABLE}/add_columns", content=stream, headers=headers)
    assert "more than 10000 columns" in refused(answer, 400, 13)
    fields = {"new_columns": [], "arrow_schema": base64.b64encode(stream).decode()}
    answer = http.post(f"{TABLE}/add_columns", json=fields)
    assert "more than 10000 columns" in refused(answer, 400, 13)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([(str(i), pa.int8()) for i in range(MAX_FIELDS)]),
        pa.schema([("a", nested(MAX_DEPTH))]),
        pa.schema([("vector", pa.list_(pa.float32(), 65_536))]),
        pa.schema([("bytes", pa.binary(MAX_ROW_BYTES))]),
        pa.schema([("lists", pa.list_(pa.list_(pa.list_(pa.float32(), MAX_ROW_BYTES // 4))))]),
        pa.schema([("word", pa.dictionary(pa.int32(), pa.string())), ("map", pa.map_("u1", "u1"))]),
    ],
    ids=["columns", "nested", "vector", "bytes", "lists", "others"],
)
def test_schemas_within_the_limits_are_taken(schema: pa.Schema) -> None:
    check_schema(schema)
    BatchLimits(1).feed(schema.serialize().to_pybytes())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (pa.schema([(str(i), pa.int8()) for i in range(MAX_FIELDS + 1)]), "10000 columns"),
        (pa.schema([("a", pa.struct([(str(i), pa.int8()) for i in range(MAX_FIELDS)]))]),
         "10000 columns"),
        (pa.schema([("a", nested(MAX_DEPTH + 1))]), "nested more than 64 deep"),
        (pa.schema([("v", pa.list_(pa.float32(), 2**31 - 1))]), "values of fixed size"),
        (pa.schema([("v", pa.list_(pa.list_(pa.float32(), 5000), 5000))]), "values of fixed size"),
        (pa.schema([("v", pa.list_(pa.struct([("b", pa.binary(5000))]), 5000))]),
         "values of fixed size"),
        (pa.schema([("b", pa.binary(MAX_ROW_BYTES + 1))]), "values of fixed size"),
    ],
    ids=["columns", "fields", "nested", "vector", "matrix", "structs", "bytes"],
)  # fmt: skip
def test_other_schemas_are_refused(schema: pa.Schema, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        BatchLimits(1 << 30).feed(schema.serialize().to_pybytes())


@pytest.mark.parametrize("columns", [49_999, 50_001])
def test_a_compressed_batch_of_too_many_buffers_is_refused(columns: int) -> None:
    column = pa.array([1], pa.int8())  # with a buffer of values, and one of nulls
    batch = pa.record_batch([column] * columns, [str(each) for each in range(columns)])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()[batch.schema.serialize().size :]
    limits = BatchLimits(1 << 22)
    if columns < 50_000:
        limits.feed(stream)
    else:
        with pytest.raises(InvalidInputError, match="has 100002 buffers; the limit is 100000"):
            limits.feed(stream)


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        serve_namespace(memory_namespace(tmp_path)) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        done(client.post("/v1/namespace/films/create", json={}))
        yield client


def test_a_table_of_a_refused_schema_is_not_created(http: httpx.Client) -> None:
    rows = pa.table({"v": pa.array([], pa.list_(pa.float32(), 2**31 - 1))})
    assert "fixed size" in refused(send_rows(http, f"{TABLE}/create", rows), 400, 13)
    refused(http.post(f"{TABLE}/describe"), 404, 4)


def test_views_of_shared_bytes_are_refused_before_they_are_read(http: httpx.Client) -> None:
    text = pa.array(["x" * (1 << 20)], pa.string_view())
    views = pa.py_buffer(text.buffers()[1].to_pybytes() * 2000)
    shared = pa.Array.from_buffers(pa.string_view(), 2000, [None, views, text.buffers()[2]])
    for column in (shared, pa.StructArray.from_arrays([shared], ["in"])):
        answer = send_rows(http, f"{TABLE}/create", pa.table({"word": column}))
        assert "1024 MiB of values" in refused(answer, 400, 13)
    done(send_rows(http, f"{TABLE}/create", pa.table({"word": shared.slice(0, 3)})))


# -- other libraries, which panic on a stream that is damaged --------------------------------------

DAMAGED = pa.table({
    "id": pa.array(range(3), pa.int64()), "half": pa.array([1.0] * 3, pa.float16()),
    "date": pa.array(range(3), pa.date32()), "view": pa.array(["a"] * 3, pa.string_view()),
    "part": [{"x": 1}] * 3, "word": pa.array(["a"] * 3).dictionary_encode(),
})  # fmt: skip
BY_NAME = {each.name: each for each in OPERATIONS}


def write(namespace: Any, name: str, rows: Any, **fields: Any) -> Any:
    operation = BY_NAME[name]
    request = operation.request.model_validate({"id": ["t"], **fields})
    return call_namespace(namespace, operation, [request, rows])


@pytest.mark.spec("server.md#requests")
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("create_table", {"mode": "overwrite"}),
        ("insert_into_table", {}),
        ("merge_insert_into_table", {"on": ["id"], "when_not_matched_insert_all": True}),
    ],
)
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("source", [bytes, io.BytesIO])
def test_random_damage_of_rows_is_the_request_s(
    tmp_path: Path,
    name: str,
    fields: dict[str, Any],
    compression: str | None,
    source: type[bytes] | type[io.BytesIO],
) -> None:
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    whole, chance, refused = to_stream(DAMAGED, compression=compression), random.Random(7), 0
    write(directory, "create_table", ipc(DAMAGED))
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            BatchLimits(1 << 22).feed(bytes(damaged))
            write(directory, name, source(damaged), **fields)
        except (InvalidInputError, TableSchemaValidationError):
            refused += 1
    assert refused > 10


@pytest.mark.spec("server.md#requests")
def test_compressed_rows_are_counted_without_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "_MOST_BYTES", 1 << 20)
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    for count, is_taken in ((100_000, True), (200_000, False)):
        rows = to_stream(pa.table({"id": pa.array([0] * count, pa.int64())}), compression="zstd")
        assert len(rows) < 10_000
        if is_taken:
            write(directory, "create_table", rows)
        else:
            with pytest.raises(InvalidInputError, match="at most 1 MiB of rows"):
                write(directory, "create_table", rows, mode="overwrite")


@pytest.mark.spec("server.md#requests")
def test_rows_of_a_directory_are_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "_MOST_BYTES", 1)
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    made = write(directory, "create_table", io.BytesIO(ipc(DAMAGED)))
    assert (Path(made.location.removeprefix("file://")).name, made.version) == ("t.lance", 1)
    with pytest.raises(InvalidInputError, match="rows at once"):
        write(directory, "create_table", io.BytesIO(ipc(DAMAGED)))
    file, more = io.BytesIO(ipc(DAMAGED)), DAMAGED.num_rows
    found = write(directory, "insert_into_table", file)
    assert (found.num_inserted_rows, found.version) == (more, 2)
    appended = lance.dataset(tmp_path / "t.lance").to_table().slice(more)
    assert appended.to_pylist() == DAMAGED.to_pylist()
    with pytest.raises(InvalidInputError, match="rows at once"):
        write(directory, "insert_into_table", io.BytesIO(ipc(DAMAGED)), mode="overwrite")


@pytest.mark.spec("server.md#requests")
@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (ipc(DAMAGED)[:-8], InvalidInputError),  # it has no mark of its end
        (ipc(pa.table({"other": [1]})), TableSchemaValidationError),
    ],
)
def test_wrong_rows_change_no_table_of_a_directory(
    tmp_path: Path, rows: bytes, error: type[Exception]
) -> None:
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    lance.write_dataset(DAMAGED, tmp_path / "t.lance")
    with pytest.raises(error):
        write(directory, "insert_into_table", io.BytesIO(rows))
    assert lance.dataset(tmp_path / "t.lance").latest_version == 1


@pytest.mark.spec("server.md#requests")
def test_a_table_of_a_directory_whose_rows_are_cut_can_be_created_again(tmp_path: Path) -> None:
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    with pytest.raises(InvalidInputError):
        write(directory, "create_table", io.BytesIO(ipc(DAMAGED)[:-8]))
    write(directory, "create_table", io.BytesIO(ipc(DAMAGED)))
    with pytest.raises(TableAlreadyExistsError):
        write(directory, "create_table", io.BytesIO(ipc(DAMAGED)))
    assert lance.dataset(tmp_path / "t.lance").count_rows() == DAMAGED.num_rows


@pytest.mark.spec("server.md#requests")
def test_a_table_that_another_creates_while_rows_arrive_exists_already(tmp_path: Path) -> None:
    directory, table = lance_bridge.connect("dir", root=str(tmp_path)), tmp_path / "t.lance"
    first = pa.table({"id": [1]})

    class Late(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if table.exists() and not (table / "data").exists():  # it is declared
                lance.write_dataset(first, table)
            return super().read(size)

    with pytest.raises(TableAlreadyExistsError, match="Table already exists: t"):
        write(directory, "create_table", Late(ipc(DAMAGED)))
    assert lance.dataset(table).to_table().equals(first)


@pytest.mark.spec("server.md#requests")
@pytest.mark.parametrize("name", ["", ".", "a/b", "a\0b", "x" * 300])
def test_a_directory_is_left_alike_whether_rows_are_in_memory(tmp_path: Path, name: str) -> None:
    found: list[object] = []
    for place, source in (("a", bytes), ("b", io.BytesIO)):
        root = tmp_path / place
        directory = lance_bridge.connect("dir", root=str(root))
        try:
            write(directory, "create_table", source(ipc(DAMAGED)), id=[name])
        except InvalidInputError as error:
            found.append(str(error).replace(str(root), "root"))
        else:
            found.append("")
        found.append(sorted(each.name for each in root.iterdir()))
    assert found[:2] == found[2:]


@pytest.mark.spec("server.md#requests")
def test_many_rows_are_the_first_version_of_a_declared_table_of_a_directory(
    tmp_path: Path,
) -> None:
    directory = lance_bridge.connect("dir", root=str(tmp_path))
    directory.declare_table(api.DeclareTableRequest(id=["t"]))
    write(directory, "insert_into_table", io.BytesIO(ipc(DAMAGED)))
    first = lance.dataset(tmp_path / "t.lance").to_table()
    assert first.to_pylist() == DAMAGED.to_pylist()
