"""Queries in processes of their own, each of their ends and what is left of them; and scans."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import lance
import lance_namespace as api
import psutil
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from server import query_methods
from server.gateways import (
    ROWS,
    GatewayProcess,
    NamedByHeader,
    dial,
    done,
    head,
    send_rows,
    serve_namespace,
)
from server.query_methods import lake

import lance_bridge
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.transaction_versions import VersionChanges
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.operations import OPERATIONS, Operation
from lance_bridge_server.queries import pool, process
from lance_bridge_server.queries.calling import call_namespace
from lance_bridge_server.queries.pool import QueryProcesses, QuerySettings
from lance_bridge_server.queries.process import BATCH_BYTES, DICTIONARY_BYTES, Query, small_batches
from lance_bridge_server.queries.runs import Run
from lance_bridge_server.redaction import PublicAnswers

pytestmark = pytest.mark.servers

BY_NAME = {each.name: each for each in OPERATIONS}
READ, WRITE = BY_NAME["query_table"], BY_NAME["update_table"]
REQUEST = api.DescribeTableRequest(id=["t"])
SETTINGS = QuerySettings(processes=2, kept=1, memory_bytes=1 << 30, cpu_seconds=None)


@pytest.fixture
def source(tmp_path: Path) -> bytes:
    return pickle.dumps(partial(lake, str(tmp_path)))


@pytest.fixture
def ended() -> list[str]:
    """Return the reasons of the ends of processes."""
    return []


@pytest.fixture
def start(ended: list[str]) -> Iterator[Callable[..., QueryProcesses]]:
    """Return a function that makes the processes of some settings."""
    made: list[QueryProcesses] = []

    def processes(**settings: Any) -> QueryProcesses:
        made.append(QueryProcesses(QuerySettings(**{**vars(SETTINGS), **settings})))
        made[-1].on_end = ended.append
        return made[-1]

    yield processes
    for each in made:
        each.close()


def run(
    processes: QueryProcesses,
    source: bytes,
    method: Any,
    operation: Operation = READ,
    active: Run | None = None,
    **more: Any,
) -> Any:
    query = Query(source, operation, REQUEST, **{"principal": "ada", "method": method, **more})
    return processes.run(query, active or Run(60), None, VersionChanges())


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):  # it ended before, or while it was read
        return False


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class End(NamedTuple):
    """How a query ends its process."""

    operation: Operation
    method: Any
    error: type[LanceNamespaceError]
    words: str
    reason: str
    settings: Mapping[str, Any] = {}
    seconds: float = 60.0


LITTLE = {"memory_bytes": 400 << 20}
ENDS = [
    End(READ, query_methods.crash, InternalError, "signal 11", "signal 11"),
    End(WRITE, query_methods.crash, OutcomeUnknownError, "is unknown", "signal 11"),
    End(READ, query_methods.fill_memory, InvalidInputError, "than 0.4 GiB", "memory", LITTLE),
    End(WRITE, query_methods.fill_memory, OutcomeUnknownError, "is unknown", "memory", LITTLE),
    End(READ, query_methods.use_processor, InvalidInputError, "than 1 s of processor time", "cpu",
        {"cpu_seconds": 1}),
    End(READ, query_methods.sleep, ServiceUnavailableError, "not finish in time", "time",
        {}, 2.0),
    End(WRITE, query_methods.sleep, OutcomeUnknownError, "is unknown", "time", {}, 2.0),
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{end.operation.name}-{end.reason}")
def test_a_query_that_ends_its_process_fails_alone(
    start: Callable[..., QueryProcesses], source: bytes, ended: list[str], end: End
) -> None:
    processes = start(**end.settings)
    with pytest.raises(end.error, match=end.words):
        run(processes, source, end.method, end.operation, Run(end.seconds))
    assert ended == [end.reason]
    assert run(processes, source, query_methods.process_id) != os.getpid()


def test_a_process_runs_one_query_after_the_other(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes = start()
    first = run(processes, source, query_methods.process_id)
    assert run(processes, source, query_methods.process_id) == first
    processes.close()
    wait_for(lambda: not is_alive(first))


def test_a_cancelled_query_ends(
    start: Callable[..., QueryProcesses], source: bytes, ended: list[str], tmp_path: Path
) -> None:
    processes, active, mark = start(), Run(60), tmp_path / "mark"
    found: list[Exception] = []

    def query() -> None:
        try:
            run(processes, source, partial(query_methods.sleep, mark=str(mark)), active=active)
        except LanceNamespaceError as error:
            found.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    process = int(wait_for(lambda: mark.exists() and mark.read_text()))
    active.cancel()
    thread.join(30)
    assert [type(each) for each in found] == [ServiceUnavailableError]
    assert not is_alive(process)
    assert ended == ["cancelled"]


def test_rows_that_fail_late_raise_where_they_are_read(
    start: Callable[..., QueryProcesses], source: bytes, ended: list[str]
) -> None:
    processes = start()
    reader = run(processes, source, query_methods.fail_after_rows)
    assert [reader.read_next_batch().num_rows for _ in range(2)] == [1, 1]
    with pytest.raises(InternalError, match="third batch"):
        reader.read_next_batch()
    assert not ended  # the process itself did not fail


@pytest.mark.parametrize("dtype", [pa.string(), pa.string_view()], ids=str)
def test_a_large_batch_arrives_in_parts(
    start: Callable[..., QueryProcesses], source: bytes, dtype: pa.DataType
) -> None:
    """The server holds each batch several times while it sends it."""
    reader = run(start(), source, partial(query_methods.large_values, dtype=dtype))
    batches = list(reader)
    assert max(each.nbytes for each in batches) <= BATCH_BYTES
    found = pa.Table.from_batches(batches)
    assert found.schema.types == [pa.int64(), dtype]
    assert [text[:1] for text in found["text"].to_pylist()] == [chr(97 + i % 26) for i in range(64)]


def test_a_large_batch_of_views_inside_of_values_is_refused() -> None:
    views = pa.array(["x" * BATCH_BYTES, "y"], pa.string_view())
    batch = pa.record_batch({"part": pa.StructArray.from_arrays([views], ["in"])})
    with pytest.raises(InvalidInputError, match="cast its values"):
        next(small_batches(batch))


def test_a_row_that_the_server_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ROW_BYTES", 2 * BATCH_BYTES)
    batch = pa.record_batch({"text": ["y", "x" * (BATCH_BYTES + 1), "z" * (2 * BATCH_BYTES + 1)]})
    batches = small_batches(batch)
    assert [next(batches).num_rows, next(batches).num_rows] == [1, 1]
    with pytest.raises(InvalidInputError, match="A row of the result has"):
        next(batches)


@pytest.mark.parametrize("is_large", [False, True])
def test_only_a_large_dictionary_is_refused(is_large: bool) -> None:
    size = DICTIONARY_BYTES if is_large else BATCH_BYTES
    words = pa.array(["x" * size, "y"]).dictionary_encode()
    words = pa.ListArray.from_arrays([0, 1, 2], words)
    batch = pa.record_batch({"word": words, "text": ["z" * BATCH_BYTES] * 2})
    if is_large:
        with pytest.raises(InvalidInputError, match="dictionary of column 'word'"):
            next(small_batches(batch))
    else:
        assert [each.num_rows for each in small_batches(batch)] == [1, 1]


def test_rows_that_nobody_reads_end_their_process(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes = start()
    reader = run(processes, source, query_methods.endless_rows)
    assert reader.read_next_batch().num_rows == 10_000
    del reader
    wait_for(lambda: run(processes, source, query_methods.process_id))


def test_a_cancelled_query_frees_its_process_though_its_rows_are_held(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    """An error's traceback or a cycle may refer to them for hours."""
    processes, active = start(processes=1), Run(60)
    reader = run(processes, source, query_methods.endless_rows, active=active)
    assert reader.read_next_batch().num_rows == 10_000
    active.cancel()
    assert run(processes, source, query_methods.process_id, active=Run(20))
    with pytest.raises(ServiceUnavailableError):
        reader.read_all()


def test_a_query_that_is_cancelled_before_its_rows_holds_no_process(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes, active = start(processes=1), Run(60)
    active.cancel()
    with pytest.raises(ServiceUnavailableError):
        run(processes, source, query_methods.endless_rows, active=active)
    assert run(processes, source, query_methods.process_id, active=Run(20))


def test_a_query_that_waits_for_a_process_ends_when_it_is_cancelled(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes, active = start(processes=1), Run(60)
    reader = run(processes, source, query_methods.endless_rows)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(
            run, processes, source, query_methods.process_id, active=active, principal="other"
        )
        wait_for(lambda: active.on_cancel)
        active.cancel()
        with pytest.raises(ServiceUnavailableError, match="cancelled; nothing was changed"):
            waiting.result(20)
    del reader


def test_a_query_waits_for_a_free_process(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes = start(processes=1)
    reader = run(processes, source, query_methods.endless_rows)
    with pytest.raises(ServiceUnavailableError, match="no free process"):
        run(processes, source, query_methods.process_id, active=Run(0.2))
    del reader
    assert run(processes, source, query_methods.process_id)


def test_a_principal_does_not_get_all_processes(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    processes = start(processes=2)
    reader = run(processes, source, query_methods.endless_rows, principal="many")
    with pytest.raises(ServiceUnavailableError, match="no free process"):
        run(processes, source, query_methods.process_id, active=Run(0.2), principal="many")
    assert run(processes, source, query_methods.process_id, principal="one")
    del reader
    assert run(processes, source, query_methods.process_id, principal="many")


def test_a_client_that_does_not_read_holds_no_process_that_others_wait_for(
    start: Callable[..., QueryProcesses], source: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loses one if its principal has others, and more than the one that waits."""
    monkeypatch.setattr(pool, "_STALL_SECONDS", 0.2)
    processes = start(processes=3)
    active = [Run(60) for _ in range(3)]
    owners = ["many", "many", "other"]
    readers = [
        run(processes, source, query_methods.endless_rows, active=each, principal=owner)
        for each, owner in zip(active, owners, strict=True)
    ]
    for each in active:
        each.stalled_since = time.monotonic()
    one = partial(run, processes, source, query_methods.process_id, principal="one")
    assert one(active=Run(20))
    assert [each.is_cancelled for each in active].count(True) == 1
    assert not active[2].is_cancelled
    readers += [run(processes, source, query_methods.endless_rows, principal="other")]
    active[2].stalled_since = float("inf")  # only the client of the last query of "many" is left
    with pytest.raises(ServiceUnavailableError, match="no free process"):
        one(active=Run(1))
    active[2].stalled_since = time.monotonic()
    assert one(active=Run(20))
    del readers


def test_a_query_that_computes_for_long_gets_the_lowest_priority(
    start: Callable[..., QueryProcesses],
    source: bytes,
    ended: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process is not kept: a short query of another principal would be as slow in it."""
    monkeypatch.setattr(pool, "_LONG_SECONDS", 0.2)
    processes = start()
    process, priorities = run(processes, source, partial(query_methods.compute, seconds=2.5))
    assert priorities == {19}
    next_process, priorities = run(processes, source, partial(query_methods.compute, seconds=0.0))
    assert next_process != process
    assert 19 not in priorities
    assert not ended


# -- through a gateway -----------------------------------------------------------------------------


@pytest.fixture
def http(tmp_path: Path, source: bytes) -> Iterator[httpx.Client]:
    processes, ended = QueryProcesses(SETTINGS), list[str]()
    processes.on_end = ended.append
    with (
        serve_namespace(
            lake(str(tmp_path)),
            authenticator=NamedByHeader(),
            queries=processes,
            sources=lambda _: source,
        ) as url,
        httpx.Client(base_url=url, headers={"x-user": "ada"}, timeout=60) as client,
    ):
        yield client
    assert not ended


def test_clients_that_do_not_read_do_not_keep_others_from_queries(
    tmp_path: Path, source: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_STALL_SECONDS", 0.5)
    words = pa.array(["x" * 1000] * 20_000)
    lance.write_dataset(pa.table({"word": words}), str(tmp_path / "t.lance"))
    settings = QuerySettings(processes=3, kept=1, cpu_seconds=None)
    options: dict[str, Any] = {
        "authenticator": NamedByHeader(),
        "queries": QueryProcesses(settings),
        "sources": lambda _: source,
    }
    body = b'{"vector": {}, "k": 0}'
    with ExitStack() as stack:
        url = stack.enter_context(serve_namespace(lake(str(tmp_path)), **options))
        for user in ("many", "many", "other"):
            connection = stack.enter_context(dial(url))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            headers = ("Content-Type: application/json", f"Content-Length: {len(body)}")
            connection.sendall(head("/v1/table/lake$t/query", *headers, f"x-user: {user}") + body)
            assert connection.recv(12) == b"HTTP/1.1 200"
        asked = {"vector": {}, "k": 1}
        one = {"x-user": "one", "x-request-timeout-ms": "20000"}
        answer = httpx.post(f"{url}/v1/table/lake$t/query", json=asked, headers=one, timeout=30)
    assert answer.status_code == 200, answer.text


def test_every_query_runs_through_a_process(http: httpx.Client) -> None:
    rows = pa.table({"id": pa.array(range(5000), pa.int64()), "word": ["w" * 500] * 5000})
    done(send_rows(http, "/v1/table/lake$t/create", rows))
    done(
        http.post(
            "/v1/table/lake$t/update", json={"predicate": "id < 10", "updates": [["word", "'a'"]]}
        )
    )
    merged = pa.table({"id": pa.array(range(4000, 9000), pa.int64()), "word": ["m" * 500] * 5000})
    path = "/v1/table/lake$t/merge_insert?on=id&when_not_matched_insert_all=true"
    assert done(send_rows(http, path, merged))["num_inserted_rows"] == 4000
    done(http.post("/v1/table/lake$t/delete", json={"predicate": "word = 'a'"}))
    counted = {"predicate": "word like 'm%'"}
    assert done(http.post("/v1/table/lake$t/count_rows", json=counted)) == 4000
    response = http.post("/v1/table/lake$t/query", json={"vector": {}, "k": 9000})
    found = pa.ipc.open_file(response.content).read_all()
    assert sorted(found["id"].to_pylist()) == list(range(10, 9000))


def test_an_error_of_a_query_is_that_of_the_catalog(http: httpx.Client) -> None:
    done(send_rows(http, "/v1/table/lake$t/create", ROWS))
    missing = http.post("/v1/table/lake$none/query", json={"vector": {}, "k": 1})
    assert (missing.status_code, missing.json()["code"]) == (404, 4)


@pytest.mark.parametrize(
    ("workers", "end"),
    [
        (1, signal.SIGKILL),
        (2, signal.SIGTERM),
        pytest.param(1, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_ends_leaves_no_process(
    tmp_path: Path, workers: int, end: signal.Signals
) -> None:
    root, file = tmp_path / "root", tmp_path / "server.yaml"
    lance.write_dataset(ROWS, str(root / "t.lance"))
    file.write_text(f"catalogs: {{lake: {{impl: dir, root: '{root}'}}}}\nworkers: {workers}\n")
    with GatewayProcess(tmp_path / "log", "--config", str(file)) as gateway:
        query = {"vector": {}, "k": 5, "filter": "id >= 0"}
        response = httpx.post(f"{gateway.url}/v1/table/lake$t/query", json=query, timeout=60)
        assert pa.ipc.open_file(response.content).read_all().num_rows == 3
        processes = psutil.Process(gateway.pid).children(recursive=True)
        assert any("forkserver" in " ".join(each.cmdline()) for each in processes)
        os.kill(gateway.pid, end)
        try:
            wait_for(lambda: not any(is_alive(each.pid) for each in processes))
        finally:
            for each in processes:
                with suppress(psutil.NoSuchProcess):
                    each.kill()


def test_a_query_runs_for_its_principal(
    start: Callable[..., QueryProcesses], source: bytes
) -> None:
    """It gets no credentials: no response of a query has any."""
    assert run(start(), source, query_methods.caller, principal="bob") == ("bob", False, False)


def test_what_is_printed_of_a_query_has_no_secrets() -> None:
    assert "source" not in repr(Query(b"", READ, REQUEST, "ada"))


# -- scans of pylance's directory: they return what the directory itself does ----------------------


[QUERY] = (each for each in OPERATIONS if each.name == "query_table")
SCANNED = pa.table(
    {"id": range(10), "word": list("abcdefghij"), "s": [{"x": i} for i in range(10)]}
)
SCANS: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"k": 3, "offset": 2},
    "empty vector": {"vector": {"single_vector": []}, "prefilter": True},
    "filter": {"filter": "id > 7"},
    "columns": {"columns": {"column_names": ["s.x", "word"]}},
    "no columns": {"columns": {"column_names": []}},
    "expressions": {"columns": {"column_aliases": {"twice": "id * 2"}}},
    "row ids": {"columns": {"column_names": ["word"]}, "with_row_id": True},
    "version": {"version": 1},
    "nothing": {"filter": "id > 100"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "search": {"k": 1, "vector_column": "id", "vector": {"single_vector": [1.0, 2.0]}},
    "text": {"k": 1, "full_text_query": {"string_query": {"query": "a"}}},
    "option": {"fast_search": True},
    "branch": {"branch": "dev"},
    "missing column": {"filter": "none = 1"},
    "missing version": {"version": 9},
    "alias with a NUL": {"columns": {"column_aliases": {"a\0b": "id"}}},
    "wrong value": {"filter": "id / (id - id) = 1"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directory")


@pytest.fixture(scope="module")
def directory(root: Path) -> Any:
    """A directory with a table of two versions, and one whose column is a dictionary."""
    for mode in ("create", "append"):
        lance.write_dataset(SCANNED, root / "t.lance", mode=mode)
        words = pa.table({"word": SCANNED["word"].slice(mode == "append").dictionary_encode()})
        lance.write_dataset(words, root / "words.lance", mode=mode)
    return lance_bridge.connect("dir", {"root": str(root)})


def request(table: str = "t", **fields: Any) -> api.QueryTableRequest:
    needed = {"id": [table], "k": 0, "vector": {}}
    return api.QueryTableRequest.model_validate({**needed, **fields})


def read_query(namespace: LanceNamespace, request: api.QueryTableRequest) -> pa.Table:
    """Return the rows of a query, as the gateway asks for them."""
    found = call_namespace(namespace, QUERY, [request])
    if isinstance(found, pa.RecordBatchReader):
        return found.read_all()
    return pa.ipc.open_file(found.data).read_all()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that a directory runs itself."""
    kept: list[Any] = []
    query = DirectoryNamespace.query_table

    def note(self: Any, request: Any) -> Any:
        kept.append(request)
        return query(self, request)

    monkeypatch.setattr(DirectoryNamespace, "query_table", note)
    return kept


@pytest.mark.quick
@pytest.mark.spec("server.md#lancedb")
def test_a_directory_searches_the_only_column_with_vectors(tmp_path: Path) -> None:
    namespace = lance_bridge.connect("dir", {"root": str(tmp_path)})
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0, 1.0, 2.0, 3.0], pa.float32()), 2)
    lance.write_dataset(pa.table({"id": [1, 2], "v": vectors}), tmp_path / "one.lance")
    lance.write_dataset(pa.table({"a": vectors, "b": vectors}), tmp_path / "two.lance")
    near: dict[str, Any] = {"vector": {"single_vector": [2.0, 3.0]}, "k": 1}
    assert read_query(namespace, request("one", **near))["id"].to_pylist() == [2]
    several = {"vector": {"multi_vector": [[0.0, 1.0], [2.0, 3.0]]}, "k": 1}
    assert read_query(namespace, request("one", **several))["id"].to_pylist() == [1, 2]
    for name in ("explain_table_query_plan", "analyze_table_query_plan"):
        operation = BY_NAME[name]
        query = {"id": ["one"], **near}
        fields = query if name.startswith("analyze") else {"id": ["one"], "query": query}
        plan = call_namespace(namespace, operation, [operation.request.model_validate(fields)])
        assert "KNN" in str(plan)
    with pytest.raises(InvalidInputError, match="several columns with vectors: name one of a, b"):
        read_query(namespace, request("two", **near))
    assert read_query(namespace, request("two", vector_column="b", **near)).num_rows == 1


@pytest.mark.quick
@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_returns_what_the_directory_returns(
    directory: Any, asked: list[Any], name: str
) -> None:
    found = read_query(directory, request(**SCANS[name]))
    assert not asked
    answer = directory.query_table(request(**SCANS[name]))
    expected = pa.ipc.open_file(answer.data).read_all()
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.combine_chunks().equals(expected.combine_chunks())


@pytest.mark.quick
@pytest.mark.spec("server.md#memory-and-speed")
@pytest.mark.parametrize("name", OTHERS)
def test_a_directory_runs_searches_and_wrong_queries_itself(
    directory: Any, asked: list[Any], name: str
) -> None:
    with suppress(errors.LanceNamespaceError):
        read_query(directory, request(**OTHERS[name]))
    assert len(asked) == 1


@pytest.mark.quick
@pytest.mark.spec("server.md#memory-and-speed")
def test_dictionaries_are_those_of_the_directory(directory: Any, asked: list[Any]) -> None:
    """A file has one dictionary for all of its batches."""
    found = read_query(directory, request("words"))
    assert len(asked) == 1
    assert found["word"].to_pylist() == [*"abcdefghij", *"bcdefghij"]


@pytest.mark.quick
@pytest.mark.spec("server.md#memory-and-speed")
def test_directories_of_a_federation_are_scanned(directory: Any, asked: list[Any]) -> None:
    federation = FederatedNamespace({"files": PublicAnswers(directory, ())})
    query = request()
    query.id = ["files", "t"]
    assert read_query(federation, query).num_rows == 20
    assert not asked
    query.id = ["files", "none"]
    with pytest.raises(errors.TableNotFoundError, match="files"):
        read_query(federation, query)


@pytest.mark.quick
@pytest.mark.spec("server.md#memory-and-speed")
def test_a_table_on_an_object_store_is_read_by_the_directory(
    directory: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the directory has the storage options."""
    remote = api.DescribeTableResponse(location="s3://bucket/t.lance")
    monkeypatch.setattr(DirectoryNamespace, "describe_table", lambda *_: remote)
    vector = QueryTableRequestVector()
    query = api.QueryTableRequest(id=["t"], k=0, vector=vector)
    assert read_query(directory, query).num_rows == 20
    assert len(asked) == 1
