"""Limits of Arrow IPC streams: schemas, and the sizes that messages state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from server.gateways import memory_namespace, serve_namespace
from server.http_requests import done, refused, send_rows

from lance_bridge_server.http.arrow_limits import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_ROW_BYTES,
    BatchLimits,
    check_schema,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#request-limits")]

TABLE = "/v1/table/films$t"
VECTOR = pa.list_(pa.float32(), 4)


def nested(depth: int) -> pa.DataType:
    dtype = pa.int8()
    for _ in range(depth - 1):
        dtype = pa.struct([("in", dtype)])
    return dtype


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
