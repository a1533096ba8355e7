"""Memory of the server: while rows go through it, with idle connections, and of SQL functions.

Rows of many megabytes that compress to no fewer go through a gateway to every kind of catalog.
"""

from __future__ import annotations

import io
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx
import lance
import lance_namespace as api
import lancedb
import numpy as np
import pyarrow as pa
import pytest
from conformance.unity_target import CATALOG
from lance_namespace import errors
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from server.authenticated import LIST, children, connect, serve, write_config
from server.gateways import ARROW, GatewayProcess, dial, done, head, refused, send_rows
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.processes import memory
from servers.unity import OPEN_SOURCE_0_6, UnityServer

from lance_bridge.testing.calls import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.queries.allowed_sql import check_expression
from lance_bridge_server.run.listening import raise_file_limit

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#requests")]

PEAK_BYTES = 450 << 20
"""405 MiB were measured, in a query of 20 GiB on a busy machine."""
_BATCH_ROWS = 8192
_DIMENSIONS = 128
_ROW_BYTES = 8 + 4 * _DIMENSIONS
_KEY_BYTES = 80
"""What a merge holds of each row of the table: its key and where it is, in a hash table."""
_ID = "memory$t"
TABLE = "/v1/table/films$t"
QUERY = {"k": 1, "vector": {}}
LONG = "repeat('a', 1000) = 'b'"


@pytest.fixture
def running(metastores: Metastores, tmp_path: Path) -> Iterator[GatewayProcess]:
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri, root=f"{tmp_path}/root") as namespace:
        request = api.CreateNamespaceRequest(id=["memory"], mode="exist_ok")
        namespace.create_namespace(request)
        options = ["-c", f"prod=hive:uri={uri}", "-p", f"prod.root={tmp_path}/root"]
        with GatewayProcess(tmp_path / "log", *options, "--root", "prod") as process:
            yield process
        namespace.drop_table(api.DropTableRequest(id=["memory", "t"]))
    shutil.rmtree(tmp_path / "root", ignore_errors=True)


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    ("size", "compression"),
    [
        pytest.param(200 << 20, None, id="200 MiB"),
        pytest.param(1 << 30, None, id="1 GiB", marks=pytest.mark.slow),
        pytest.param(1 << 30, "zstd", id="1 GiB, zstd", marks=pytest.mark.slow),
        pytest.param(1 << 30, "lz4", id="1 GiB, lz4", marks=pytest.mark.slow),
        pytest.param(
            10 << 30, None, id="10 GiB", marks=[pytest.mark.slow, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_rows_go_through_in_bounded_memory(
    running: GatewayProcess, size: int, compression: str | None
) -> None:
    batches = size // (_BATCH_ROWS * _ROW_BYTES)
    peaks = {}
    with httpx.Client(base_url=f"{running.url}/v1/table/{_ID}", timeout=3600) as http:

        def send(path: str, first: int) -> None:
            body = stream(batches, first, compression)
            done(http.post(path, content=body, headers={"content-type": ARROW}))

        send("/create", 0)
        peaks["create"] = peak(running)
        send("/insert", batches * _BATCH_ROWS)
        peaks["insert"] = peak(running)
        count = 2 * batches * _BATCH_ROWS
        assert done(http.post("/count_rows")) == count
        assert count_rows(http) == count
        peaks["query"] = peak(running)
        send("/merge_insert?on=id&when_matched_update_all=true", 0)
        peaks["merge"] = peak(running)
        assert done(http.post("/count_rows")) == count
    print({name: f"{value / 1e6:.0f} MB" for name, value in peaks.items()})
    assert max(peaks[name] for name in ("create", "insert", "query")) < PEAK_BYTES
    assert peaks["merge"] < PEAK_BYTES + count * _KEY_BYTES


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    ("count", "size"),
    [
        pytest.param(800, 1 << 20, id="800 of 1 MiB"),
        pytest.param(2100, 1 << 20, id="2,100 of 1 MiB", marks=pytest.mark.slow),
        pytest.param(200, 10 << 20, id="200 of 10 MiB", marks=pytest.mark.slow),
    ],
)
def test_large_values_go_through_in_bounded_memory(
    running: GatewayProcess, count: int, size: int
) -> None:
    with httpx.Client(base_url=f"{running.url}/v1/table/{_ID}", timeout=3600) as http:
        body = large_values(count, size)
        done(http.post("/create", content=body, headers={"content-type": ARROW}))
        peak(running)
        assert count_rows(http) == count
    assert peak(running) < PEAK_BYTES


def large_values(count: int, size: int) -> Iterator[bytes]:
    """Yield rows with values that do not compress, as an Arrow IPC stream."""
    sink, random = Chunks(), np.random.default_rng(1)
    schema = pa.schema([("id", pa.int64()), ("data", pa.binary())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for number in range(count):
            columns = {"id": [number], "data": [random.bytes(size)]}
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema))
            yield sink.take()
    yield sink.take()


def stream(batches: int, first: int, compression: str | None) -> Iterator[bytes]:
    """Yield rows as an Arrow IPC stream, with keys from the first on."""
    sink = Chunks()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    random = np.random.default_rng(1)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        for number in range(batches):
            start = first + number * _BATCH_ROWS
            values = random.random(_BATCH_ROWS * _DIMENSIONS, dtype=np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), _DIMENSIONS)
            ids = pa.array(range(start, start + _BATCH_ROWS), pa.int64())
            writer.write_batch(pa.record_batch([ids, vectors], schema=SCHEMA))
            yield sink.take()
    yield sink.take()


SCHEMA = pa.schema(
    [pa.field("id", pa.int64()), pa.field("vector", pa.list_(pa.float32(), _DIMENSIONS))]
)


class Chunks(io.BytesIO):
    """A file whose content is taken out as it is written."""

    def take(self) -> bytes:
        taken = self.getvalue()
        self.seek(0)
        self.truncate()
        return taken


def count_rows(http: httpx.Client) -> int:
    """Count the rows of an answer that has all of them, and hold none."""
    query = {"vector": {}, "k": 0}
    headers = {"user-agent": "LanceDB-Test"}  # which takes a stream, and no file
    with http.stream("POST", "/query", json=query, headers=headers) as answer:
        assert answer.status_code == 200
        body = io.BufferedReader(Body(answer.iter_raw(1 << 20)), 1 << 20)
        with pa.ipc.open_stream(body) as reader:
            return sum(batch.num_rows for batch in reader)


class Body(io.RawIOBase):
    """The parts of an answer as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or next(self._parts, b"")
        count = min(len(buffer), len(data))
        buffer[:count], self._rest = data[:count], data[count:]
        return count


def peak(gateway: GatewayProcess) -> int:
    """Return the largest resident memory that a server has had, in bytes, and begin again."""
    found = memory(gateway.pid, peak=True)
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")
    return found


@pytest.mark.spec("server.md#memory-and-speed", "server.md#request-limits")
def test_a_thousand_idle_connections_keep_nobody_out(tmp_path: Path) -> None:
    raise_file_limit()
    with serve("-c", f"files=dir:root={tmp_path}", "--port", "0") as served, ExitStack() as stack:
        pid = served.process.pid
        assert children(served.url) == ["files"]
        before = memory(pid)
        for number in range(1000):
            connection = stack.enter_context(dial(served.url))
            connection.sendall(head(LIST)[: number % 20])
        assert children(served.url) == ["files"]
        assert memory(pid) - before < 100 << 20


# -- SQL functions that would let one request take all of it ---------------------------------------


@pytest.fixture
def films(http: httpx.Client) -> httpx.Client:
    """A client of a gateway in memory that has the table."""
    done(send_rows(http, f"{TABLE}/create"))
    return http


def query_column(http: httpx.Client, expression: str) -> httpx.Response:
    """Query a column that an expression computes."""
    columns = {"column_aliases": {"x": expression}}
    return http.post(f"{TABLE}/query", json={**QUERY, "columns": columns})


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("count_rows", {"predicate": LONG}),
        ("query", {**QUERY, "filter": LONG}),
        ("query", {**QUERY, "columns": {"column_aliases": {"x": "lpad(word, 10000)"}}}),
        ("explain_plan", {"query": {**QUERY, "filter": LONG}}),
        ("analyze_plan", {**QUERY, "filter": LONG}),
        ("delete", {"predicate": LONG}),
        ("update", {"updates": [["word", "rpad(word, 10000)"]]}),
        ("update", {"updates": [["word", "'x'"]], "predicate": LONG}),
        ("add_columns", {"new_columns": [{"name": "x", "expression": "range(1, 1000)"}]}),
        ("add_columns", {"new_columns": [{"name": "x", "computed": "array_repeat(1, 1000)"}]}),
        ("backfill_column", {"column": "word", "where": LONG}),
    ],
)
def test_no_field_of_a_request_takes_them(
    films: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    assert "not available on this server" in refused(
        films.post(f"{TABLE}/{path}", json=body), 400, 13
    )


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "field", ["when_matched_update_all_filt", "when_not_matched_by_source_delete_filt"]
)
def test_nor_does_a_merge(films: httpx.Client, field: str) -> None:
    answer = send_rows(films, f"{TABLE}/merge_insert", params={"on": "id", field: LONG})
    assert "not available on this server" in refused(answer, 400, 13)


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    [
        "replace(replace(word, 'a', 'aaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaa')",
        "regexp_replace(regexp_replace(word, '(.*)', '$1$1$1$1$1'), '(.*)', '$1$1$1$1$1')",
        "array_to_string(string_to_array(word, ''), word)",
        "array_join(string_to_array(word, ''), word)",
        "list_join(string_to_array(word, ''), word)",
        "list_to_string(string_to_array(word, ''), word)",
        "array_replace_all(string_to_array(word, ''), 'a', word)",
        "list_replace_n(string_to_array(word, ''), 'a', word, 9)",
        "concat_ws(word, '', '', '', '')",
        "encode(" * 7 + "word" + ", 'hex')" * 7,
        "REPEAT ('a', 1000) = 'b'",
        "\"repeat\"('a', 1000) = 'b'",
        "`repeat`('a', 1000) = 'b'",
        "repeat/* ' */('a', 1000) = 'b'",
        "repeat -- '\n('a', 1000) = 'b'",
        "word = 'it''s' or repeat('a', 1000) = 'it''s'",
        "word <> /* ' */ repeat('a', 1000) -- '",
        "\"a'b\" = repeat('a', 1000)",
        "word = e'\\'' or repeat('a', 1000) = '",
    ],
)
def test_functions_whose_values_multiply_are_refused_in_any_spelling(
    films: httpx.Client, expression: str
) -> None:
    assert "cannot be planned" in refused(query_column(films, expression), 400, 13)


FIXED = "FixedSizeList(1000000000 x Int64)"


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    [
        f"arrow_try_cast(make_array(id), '{FIXED}')",
        "arrow_cast(NULL, 'FixedSizeBinary(1000000000)')",
        f"arrow_cast(nullif(make_array(id), make_array(id)), '{FIXED}')",
        "arrow_cast(NULL, 'FixedSizeList(8000 x FixedSizeList(8000 x Int64))')",
        f"arrow_try_cast(make_array(id), 'Fixed' || '{FIXED[5:]}')",
        f"arrow_try_cast(make_array(id), concat('{FIXED[:-6]}', 'Int64)'))",
        f"concat(', ''Int64'')', arrow_cast(NULL, '{FIXED}'))",
        f"arrow_cast(arrow_try_cast(make_array(id), '{FIXED}'), 'Int64')",
        f"arrow_cast(arrow_try_cast(id, 'Int64'), '{FIXED}')",
        f"arrow_cast(id, 'Int64') = arrow_cast(NULL, '{FIXED}')",
        f"arrow_cast(NULL, 'FixedSizeBinary({'9' * 5000})')",
        "arrow_cast((id, 'Int64')",
        f"arrow_cast /* */ (NULL, '{FIXED}')",
        f"\"arrow_cast\"(NULL, '{FIXED}')",
    ],
)
def test_casts_to_large_types_are_refused(films: httpx.Client, expression: str) -> None:
    assert "cast" in refused(query_column(films, expression), 400, 13)


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    [
        "arrow_cast(word, 'Timestamp(Second, None)') IS NULL OR true",
        "arrow_cast(NULL, 'Timestamp(Second, Some(\"+01:00\"))') IS NULL",
        "arrow_cast(NULL, 'FixedSizeList(2, FixedSizeList(2, Float32))') IS NULL",
        "arrow_cast(id, 'Decimal128(38, 2)') >= 0",
        "arrow_cast(make_array(id, id), 'FixedSizeList(2 x Float32)') IS NOT NULL",
        "word <> 'arrow_cast(' AND arrow_cast(arrow_cast(id, 'Int32'), 'Utf8') <> ')'",
    ],
)
def test_other_casts_are_taken(films: httpx.Client, expression: str) -> None:
    answer = films.post(f"{TABLE}/count_rows", json={"predicate": expression})
    assert "cast cannot" not in answer.text
    assert "on this server" not in answer.text
    if "Timestamp(Second, None)" not in expression:
        assert done(answer) == 3


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    ["word = 'repeat (3)'", "word <> 'a' and length(word) > 0", "word = 'it''s range(1)'"],
)
def test_texts_that_look_like_calls_are_taken(films: httpx.Client, expression: str) -> None:
    done(films.post(f"{TABLE}/count_rows", json={"predicate": expression}))


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["arrow_cast(1, 'Int8')"] * 3000),
        "arrow_cast(" * 3000 + "1" + ", 'Int8')" * 3000,
        f"arrow_cast(NULL, 'Struct({'9 ' * 400_000})')",
    ],
    ids=["flat", "nested", "numbers"],
)
def test_many_casts_are_checked_in_little_time(expression: str) -> None:
    started = time.thread_time()
    with suppress(errors.InvalidInputError):  # the first two are too long
        check_expression(expression)
    assert time.thread_time() - started < 2


@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["nullif(id, 1)"] * 800) + " = 1",
        " + ".join(["id"] * 3000) + " = 1",
        "coalesce(id, " * 250 + "1" + ")" * 250 + " = 1",
        "$$'$$ = '' or " + " + ".join(["id"] * 3000) + " = 1 or $$'$$ = ''",
    ],
    ids=["calls", "sum", "nested", "quoted with dollars"],
)
def test_expressions_that_would_overflow_a_stack_are_refused_for_a_directory(
    tmp_path: Path, expression: str
) -> None:
    """Its namespace is pylance's own, which plans every expression."""
    lance.write_dataset(pa.table({"id": [1, 2]}), str(tmp_path / "root" / "t.lance"))
    options = ["-c", "lake=dir", "-p", f"lake.root={tmp_path / 'root'}", "--root", "lake"]
    with GatewayProcess(tmp_path / "log", *options) as process:
        table = httpx.Client(base_url=f"{process.url}/v1/table/t", timeout=60)
        for path, body in (
            ("count_rows", {"predicate": expression}),
            ("query", {**QUERY, "filter": expression}),
            ("query", {**QUERY, "columns": {"column_aliases": {"c": expression}}}),
            ("update", {"updates": [["id", expression]]}),
        ):
            assert "cannot be planned" in refused(table.post(path, json=body), 400, 13)
        assert done(table.post("count_rows", json={"predicate": "id = 1"})) == 1
        table.close()


# -- rows of many megabytes, to every kind of catalog ----------------------------------------------


DATABASE = f"large_{uuid.uuid4().hex[:12]}"
PARENTS: Mapping[str, list[str]] = {
    "hive": ["hive"],
    "glue": ["glue"],
    "unity": ["unity", CATALOG],
    "dir": ["dir"],
}
"""The identifier of the namespace that has the database, by catalog."""
ROW_BYTES = 1 << 10
NO_RETRIES = {"retry_config": {"retries": 0}}


def random_rows(first: int, megabytes: int) -> pa.Table:
    """Return rows of random bytes, with ids from the first on."""
    count = megabytes * 1_000_000 // ROW_BYTES
    data = np.random.default_rng(first).bytes(count * ROW_BYTES)
    values = [data[at : at + ROW_BYTES] for at in range(0, len(data), ROW_BYTES)]
    return pa.table({"id": range(first, first + count), "data": values})


class Client(Protocol):
    """A client, and its table."""

    url: str
    id: list[str]

    def create(self, rows: pa.Table) -> None: ...

    def insert(self, rows: pa.Table) -> None: ...

    def merge(self, rows: pa.Table) -> None:
        """Replace the rows whose ids the table has, and add the others."""

    def query(self) -> pa.Table:
        """Return all rows."""


@dataclass
class Pylance:
    """pylance's client."""

    url: str
    id: list[str]

    @property
    def namespace(self) -> Any:
        return connect(self.url)

    def create(self, rows: pa.Table) -> None:
        self.namespace.create_table(api.CreateTableRequest(id=self.id), ipc(rows))

    def insert(self, rows: pa.Table) -> None:
        self.namespace.insert_into_table(api.InsertIntoTableRequest(id=self.id), ipc(rows))

    def merge(self, rows: pa.Table) -> None:
        request = api.MergeInsertIntoTableRequest(
            id=self.id, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        )
        self.namespace.merge_insert_into_table(request, ipc(rows))

    def query(self) -> pa.Table:
        vector = QueryTableRequestVector()
        request = api.QueryTableRequest(id=self.id, k=0, vector=vector)
        return pa.ipc.open_file(self.namespace.query_table(request).data).read_all()


@dataclass
class LanceDB:
    """LanceDB's client."""

    url: str
    id: list[str]
    table: Any = None

    def create(self, rows: pa.Table) -> None:
        *database, name = self.id
        options: Any = {"host_override": self.url, "client_config": NO_RETRIES}
        connected = lancedb.connect(f"db://{'.'.join(database)}", api_key="k", **options)
        self.table = connected.create_table(name, rows)

    def insert(self, rows: pa.Table) -> None:
        self.table.add(rows)

    def merge(self, rows: pa.Table) -> None:
        merge = self.table.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(rows)

    def query(self) -> pa.Table:
        found: pa.Table = self.table.search().to_arrow()
        return found


@pytest.fixture(scope="module")
def url(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The installed program, with a catalog of each kind that has the database."""
    root = tmp_path_factory.mktemp("large")
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog(CATALOG)
        catalogs: dict[str, dict[str, str]] = {
            "hive": {"uri": metastores.get("2.3").uri},
            "glue": glue.properties,
            "unity": {"endpoint": unity.url},
            "dir": {},
        }
        settings = {
            name: {"impl": name, "root": str(root / name), **properties}
            for name, properties in catalogs.items()
        }
        config = write_config(root, catalogs=settings, listeners=[{"port": 0}])
        with serve("--config", str(config)) as program:
            namespace = connect(program.url)
            for parent in PARENTS.values():
                namespace.create_namespace(api.CreateNamespaceRequest(id=[*parent, DATABASE]))
            yield program.url


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.spec("server.md#clients", "server.md#queries")
@pytest.mark.parametrize("client_type", [Pylance, LanceDB])
@pytest.mark.parametrize(
    "megabytes",
    [pytest.param(5, marks=pytest.mark.servers), pytest.param(50, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("catalog", PARENTS)
def test_rows_arrive_and_return_unchanged(
    url: str, catalog: str, megabytes: int, client_type: type[Pylance] | type[LanceDB]
) -> None:
    table_id = [*PARENTS[catalog], DATABASE, client_type.__name__.lower()]
    client: Client = client_type(url, table_id)
    first = random_rows(0, megabytes)
    count = first.num_rows
    second, third = (random_rows(at, megabytes) for at in (count, 3 * count // 2))
    client.create(first)
    require_rows(client, first)
    client.insert(second)
    client.merge(third)  # half of its rows are new
    require_rows(client, pa.concat_tables([first, second.slice(0, count // 2), third]))
    connect(url).drop_table(api.DropTableRequest(id=table_id))


def require_rows(client: Client, expected: pa.Table) -> None:
    """Require that a query returns these rows, and that the table's own files have them."""
    described = connect(client.url).describe_table(api.DescribeTableRequest(id=client.id))
    for found in (client.query(), lance.dataset(described.location).to_table()):
        assert found.schema.names == expected.schema.names
        assert found.sort_by("id").combine_chunks().equals(expected.combine_chunks())
