"""Python processes of the driver and of executors: when they live, what they import and say."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
import zipimport
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType
from servers.http_proxy import Fault, HttpProxy, Request
from servers.unity import UnityServer

from lance_bridge_spark import processes
from lance_bridge_spark.addresses import Access, CatalogAddress, TableAddress, catalogs_of
from lance_bridge_spark.processes import Channel
from lance_bridge_spark.source import with_catalogs, worker_calls
from lance_bridge_spark.source.worker_calls import spark_call
from lance_bridge_spark.source.writer import Target

from .processes import arguments, await_end, kill, paused, pids, the_pid
from .sql_helpers import set_conf, stream_all
from .tables import TOKEN, proxied_catalog, unity_catalog

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "spark.md#the-python-process-of-the-driver",
        "spark.md#limits-and-known-weaknesses",
        "spark.md#the-python-process-of-an-executor",
    ),
]

IDLE = "spark.lance_bridge.service.idle"
TIMEOUT = "spark.lance_bridge.service.timeout"
ROWS = pa.table({"id": pa.array(range(4), pa.int64())})
TASK = """
import json, pickle, sys
tasks = pickle.load(sys.stdin.buffer)
rows = []
for access, target in tasks:
    written = target.write(iter(access.open().to_table().to_batches()))
    rows.append([access.open().count_rows(), written.rows])
print(json.dumps([rows, sorted(sys.modules)]))
"""
CLIENTS = ("hmsclient", "thrift", "boto3", "botocore", "databricks")
DRIVERS = (
    "lance_bridge.table",
    "lance_bridge.connection",
    "lance_bridge.managed",
    "lance_bridge.namespace",
    "lance_bridge.operations",
    "lance_bridge.registry",
    "lance_bridge_spark.spark_tables",
)
"""What only a driver needs."""


APPLICATION = """
import json, os, signal, sys
from pyspark.sql import SparkSession
from lance_bridge_spark import register
from spark.processes import SCANS, pids
settings = {"spark.ui.enabled": "false", "spark.lance_bridge.local.rows": "0"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
register(spark, {"own": json.loads(sys.argv[1])})
spark.sql("CREATE NAMESPACE own.db")
spark.sql("CREATE TABLE own.db.t AS SELECT id FROM range(10)")
assert spark.table("own.db.t").count() == len(spark.table("own.db.t").collect()) == 10
stopped = pids(spark) + pids(spark, SCANS)
for pid in stopped:
    os.kill(pid, signal.SIGSTOP)
print(json.dumps(stopped), flush=True)
if int(sys.argv[2]):
    spark.stop()
"""
"""Stops its processes with SIGSTOP, and ends."""


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with unity_catalog(spark, "served", tmp_path_factory.mktemp("served")) as name:
        spark.sql(f"CREATE TABLE {name}.db.t (id BIGINT, s STRING)")
        spark.sql(f"INSERT INTO {name}.db.t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
        yield name


def names(spark: Any, catalog: str) -> list[str]:
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {catalog}.db").collect())


def test_one_process_answers_all_and_shows_no_secret(spark: Any, catalog: str) -> None:
    found = spark.table(f"{catalog}.db.t").collect()
    assert sorted(tuple(row) for row in found) == [(1, "a"), (2, "b"), (3, None)]
    spark.sql(f"CREATE TABLE {catalog}.db.u AS SELECT id FROM {catalog}.db.t WHERE id > 1")
    spark.sql(f"UPDATE {catalog}.db.u SET id = 7 WHERE id = 3")
    assert sorted(row.id for row in spark.table(f"{catalog}.db.u").collect()) == [2, 7]
    spark.sql(f"DROP TABLE {catalog}.db.u")
    assert TOKEN not in arguments(the_pid(spark))


def test_a_stream_leaves_one_process(spark: Any, catalog: str, tmp_path: Path) -> None:
    names(spark, catalog)
    before = the_pid(spark)
    spark.sql(f"CREATE TABLE {catalog}.db.streamed (id BIGINT, s STRING)")
    rows = spark.readStream.table(f"{catalog}.db.t")
    stream_all(rows.writeStream, tmp_path / "checkpoint", f"{catalog}.db.streamed")
    assert spark.table(f"{catalog}.db.streamed").count() == 3
    spark.sql(f"DROP TABLE {catalog}.db.streamed")
    assert the_pid(spark) == before


def test_a_process_that_died_is_replaced(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    before = the_pid(spark)
    kill(before)
    assert names(spark, catalog) == ["t"]
    assert the_pid(spark) != before


def test_a_call_that_changes_nothing_is_repeated_and_another_is_not(
    spark: Any, tmp_path: Path
) -> None:
    with proxied_catalog(spark, "broken", tmp_path, _method) as proxy:
        spark.sql("CREATE TABLE broken.db.t (id BIGINT)")
        spark.sql("CREATE TABLE broken.db.u (id BIGINT)")
        for method, statement in (
            ("GET", "SHOW TABLES IN broken.db"),
            ("DELETE", "DROP TABLE broken.db.u"),
        ):
            error = _killed_at(spark, proxy, method, statement)
            if method == "GET":
                assert error is None
            else:
                assert error is not None
                assert "LANCE_SERVICE_UNAVAILABLE" in error
                assert "its outcome is unknown" in error


def test_a_commit_without_a_response_names_its_transaction(spark: Any, tmp_path: Path) -> None:
    """Repeated, the statement would make another transaction, and could insert the rows twice."""
    with proxied_catalog(spark, "cut", tmp_path, _method) as proxy:
        spark.sql("CREATE TABLE cut.db.t (id BIGINT)")

        def kill_in_commit(_: Request) -> bool:
            if any(tmp_path.rglob("data/*.lance")):
                kill(the_pid(spark))
            return False

        proxy.fail_next(kill_in_commit, Fault.RESET)
        with pytest.raises(PySparkException) as failed:
            spark.sql("INSERT INTO cut.db.t VALUES (1)")
        proxy.reset()
        error = str(failed.value)
        assert "LANCE_SERVICE_UNAVAILABLE" in error
        assert re.search(r"commit_write .* outcome is unknown: .* transaction [0-9a-f-]{36}", error)
        assert ": repeat the statement" not in error
        assert spark.table("cut.db.t").count() == 0


def _killed_at(spark: Any, proxy: HttpProxy, method: str, statement: str) -> str | None:
    """Run a statement, kill Python in its first request of a method, and return the error."""
    pid = the_pid(spark)
    proxy.reset()
    killed: list[int] = []

    def kill_at(request: Request) -> bool:
        if request.method == method and not killed:
            killed.append(pid)
            kill(pid)
        return False

    proxy.fail_next(kill_at, Fault.RESET)
    try:
        spark.sql(statement).collect()
    except PySparkException as error:
        return str(error)
    finally:
        assert killed, f"no {method} came"
    return None


def test_concurrent_statements_get_their_own_answers(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    before = the_pid(spark)

    def ask(number: int) -> Any:
        if number % 3 == 0:
            return names(spark, catalog)
        return spark.sql(f"SELECT id + {number} FROM {catalog}.db.t WHERE s = 'b'").collect()

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(ask, range(9)))
    assert answers == [["t"] if n % 3 == 0 else [(2 + n,)] for n in range(9)]
    assert the_pid(spark) == before


def test_sessions_of_one_jvm_have_catalogs_of_their_own(
    spark: Any, catalog: str, tmp_path: Path
) -> None:
    other = spark.newSession()
    with unity_catalog(other, catalog, tmp_path):
        other.sql(f"CREATE TABLE {catalog}.db.other (id BIGINT)")
        assert names(other, catalog) == ["other"]
        assert names(spark, catalog) == ["t"]
        assert len(pids(spark)) == 1


def test_a_process_without_calls_ends(spark: Any, catalog: str) -> None:
    with set_conf(spark, IDLE, "100ms"):
        names(spark, catalog)
        for pid in pids(spark):
            await_end(pid)
    assert names(spark, catalog) == ["t"]


def test_a_stopped_process_that_should_end_is_killed(spark: Any, catalog: str) -> None:
    with set_conf(spark, IDLE, "3s"):
        names(spark, catalog)
        pid = the_pid(spark)
        os.kill(pid, signal.SIGSTOP)
        await_end(pid)
    assert names(spark, catalog) == ["t"]


@pytest.mark.parametrize("stops", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_stopped_processes_end_with_the_driver_and_their_socket_goes(
    tmp_path: Path, stops: bool
) -> None:
    (tmp_path / "tmp").mkdir()
    variables = {
        **os.environ,
        "TMPDIR": str(tmp_path / "tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with UnityServer() as server:
        server.add_catalog("main")
        properties = {"impl": "unity", "host": server.url, "catalog": "main", "token": TOKEN}
        properties["root"] = str(tmp_path / "root")
        done = subprocess.run(
            [sys.executable, "-c", APPLICATION, json.dumps(properties), str(int(stops))],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    stopped = json.loads(done.stdout.splitlines()[-1])
    assert len(stopped) == 2
    for pid in stopped:
        await_end(pid)
    assert [each.name for each in (tmp_path / "tmp").glob("lance-bridge-*")] == []


def test_a_call_takes_no_longer_than_the_session_allows(spark: Any, catalog: str) -> None:
    names(spark, catalog)
    timeout = pytest.raises(PySparkException, match=r"service\.timeout")
    with paused(the_pid(spark)), set_conf(spark, TIMEOUT, "100ms"), timeout:
        names(spark, catalog)
    assert names(spark, catalog) == ["t"]


def test_a_process_is_not_idle_until_it_has_answered_a_call_that_timed_out(
    spark: Any, catalog: str
) -> None:
    names(spark, catalog)
    pid = the_pid(spark)
    with paused(pid), set_conf(spark, TIMEOUT, "100ms"):
        with set_conf(spark, IDLE, "100ms"), pytest.raises(PySparkException, match="timeout"):
            names(spark, catalog)
        time.sleep(2)  # An idle process would be ended in the meantime.
        with pytest.raises(PySparkException, match="timeout"):
            names(spark, catalog)
    assert names(spark, catalog) == ["t"]
    assert the_pid(spark) == pid


@pytest.mark.parametrize(
    ("executable", "problem"),
    [("/no/such/python3", "cannot be started"), ("false", "exited on start")],
)
def test_a_python_that_cannot_answer_is_named(
    spark: Any, catalog: str, monkeypatch: pytest.MonkeyPatch, executable: str, problem: str
) -> None:
    source = with_catalogs(catalogs_of(spark))
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", executable)
        spark.dataSource.register(source)
    try:
        with pytest.raises(PySparkException, match=f"{executable} {problem}.*PYSPARK_PYTHON"):
            names(spark, catalog)
    finally:
        spark.dataSource.register(source)
    assert names(spark, catalog) == ["t"]


def _method(request: Request) -> str:
    return request.method


# -- what workers import ---------------------------------------------------------------------------


def test_a_task_that_reads_and_writes_imports_no_catalog(tmp_path: Path) -> None:
    """A table by its name in a catalog, and one by its location."""
    location = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, location)
    catalog = CatalogAddress("prod", {"impl": "hive", "uri": "thrift://localhost:1"})
    schema = ROWS.schema.serialize().to_pybytes()
    tasks = []
    for address in (TableAddress(catalog, ("db", "t")), TableAddress(location=location)):
        access = Access(address, location, 1, write=True)
        tasks.append((access, Target(access, location, schema, {"id": "id"}, "append")))
    done = subprocess.run(
        [sys.executable, "-c", TASK],
        input=pickle.dumps(tasks),
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows, modules = json.loads(done.stdout)
    assert rows == [[4, 4], [4, 4]]
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    own_end = {each for each in modules if each.startswith("lance_bridge")}
    assert not set(DRIVERS) & own_end
    assert {each.partition(".")[0] for each in own_end} <= {"lance_bridge", "lance_bridge_spark"}


def test_the_process_that_reads_on_an_executor_imports_no_catalog() -> None:
    """And the source is found by its name there."""
    code = """
import sys, lance_bridge_spark.processes
print(*sys.modules)
from lance_bridge_spark.source import LanceSource, with_catalogs
print(LanceSource)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    imported, source = done.stdout.splitlines()
    modules = set(imported.split())
    assert not set(CLIENTS) & {each.partition(".")[0] for each in modules}
    assert not set(DRIVERS) & modules
    assert "LanceSource" in source


CALL = """
import gc, os, sys
from importlib.machinery import ModuleSpec
from lance_bridge_spark.source.worker_calls import spark_call

def call():
    with spark_call():
        pass
    return gc.get_freeze_count()

for module in sys.argv[1:]:
    if os.fork() == 0:
        sys.modules["__main__"].__spec__ = ModuleSpec(module, None)
        first = call()
        kept = [[] for _ in range(1000)]
        print(first, call(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_workers_leave_imports_out_of_their_garbage_collections() -> None:
    command = [sys.executable, "-c", CALL, "pyspark.daemon", "user_program"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    worker, driver = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert worker[0] > 50_000
    assert driver[0] <= 50_000  # the driver's process is the user's
    assert worker[0] == worker[1]
    assert driver[0] == driver[1]


# -- archives on the path --------------------------------------------------------------------------


def written(path: Path, **modules: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name}.py", text)
    return str(path)


@pytest.mark.quick
def test_modules_of_an_archive_are_found_and_found_again_when_it_changes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", one="x = 1")
    finders: dict[str, Any] = {path: zipimport.zipimporter(path), str(tmp_path): None}
    worker_calls.cache_zip_importers(finders)
    finder = finders[path]
    assert finders[str(tmp_path)] is None
    assert finder.find_spec("one") is not None
    assert finder.find_spec("two") is None

    written(tmp_path / "a.zip", one="x = 1", two="x = 2")
    finder.invalidate_caches()
    assert finder.find_spec("two") is not None

    (tmp_path / "a.zip").unlink()
    finder.invalidate_caches()
    assert finder.find_spec("two") is None


@pytest.mark.quick
def test_an_archive_that_is_as_it_was_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = worker_calls.CachedZipImporter(written(tmp_path / "a.zip", one="x = 1"))
    reads = []
    monkeypatch.setattr(
        zipimport.zipimporter, "invalidate_caches", lambda self: reads.append(self.archive)
    )
    finder.invalidate_caches()
    assert reads == []
    os.utime(tmp_path / "a.zip", (1, 1))
    finder.invalidate_caches()
    assert reads == [str(tmp_path / "a.zip")]


@pytest.mark.quick
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python does so by itself since 3.13")
def test_only_workers_of_spark_are_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip", in_archive="x = 1")
    monkeypatch.syspath_prepend(path)
    assert importlib.import_module("in_archive").x == 1
    monkeypatch.delitem(sys.modules, "in_archive")
    monkeypatch.delitem(sys.modules, "pyspark.worker_util", raising=False)
    worker_calls.cache_zip_importers_in_worker()
    assert type(sys.path_importer_cache[path]) is zipimport.zipimporter

    monkeypatch.setitem(sys.modules, "pyspark.worker_util", sys)
    worker_calls.cache_zip_importers_in_worker()
    assert type(sys.path_importer_cache[path]) is worker_calls.CachedZipImporter
    assert importlib.import_module("in_archive").x == 1


# -- connections of the driver's process -----------------------------------------------------------

SECONDS = 60


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, Future[int]]]:
    """The driver's end of a connection to the service, and the exit code that it will have."""
    own_end, other_end = socket.socketpair()
    channel = Channel(other_end.makefile("rb"), other_end.makefile("wb"))
    codes: list[int] = []
    monkeypatch.setattr(processes, "open_standard_channel", lambda: channel)
    # What it does to its whole process would be done to that of the tests.
    monkeypatch.setattr(processes, "freeze_imports", lambda: None)
    monkeypatch.setattr("os._exit", codes.append)

    def main() -> int:
        processes.main("driver")
        return codes.pop()

    with other_end, ThreadPoolExecutor(1) as thread, own_end:
        yield own_end, thread.submit(main)


@pytest.mark.quick
def test_calls_are_announced_and_answered_until_the_driver_ends(
    service: tuple[socket.socket, Future[int]],
) -> None:
    driver, code = service
    channel = Channel(driver.makefile("rb"), driver.makefile("wb"))
    assert channel.read() == ({"ready": True}, [])
    catalog = {"name": "c", "properties": {"impl": "no.such.Catalog"}}
    for number in (1, 2):
        channel.write({"id": number, "op": "list_tables", "args": {}, "catalog": catalog})
        assert channel.read() == ({"id": number, "begun": True}, [])
        answer, parts = channel.read()
        assert answer["id"] == number
        assert answer["error"]["code"] in (0, 13)
        assert parts == []
    driver.shutdown(socket.SHUT_WR)
    assert code.result(SECONDS) == 0


# -- connections of an executor's process ----------------------------------------------------------

SCHEMA = StructType([StructField("id", LongType()), StructField("s", StringType())])
BATCH_ROWS = 3000
ended = threading.Event()


def _batch(number: int) -> pa.RecordBatch:
    texts = [None if at % 7 == 0 else "x" * (at % 50) for at in range(BATCH_ROWS)]
    return pa.record_batch([pa.array([number] * BATCH_ROWS), pa.array(texts)], names=["id", "s"])


def read_some(partitions: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read what the partition says: so many batches, or an error after two."""
    [partition] = partitions
    wanted = partition.column(0)[0].as_py()
    try:
        with spark_call():
            for number in range(2 if wanted == b"error" else int(wanted)):
                yield _batch(number)
            if wanted == b"error":
                raise InvalidInputError("a value that cannot be")
    finally:
        ended.set()


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    own_end, other_end = socket.socketpair()
    ended.clear()
    thread = threading.Thread(target=processes.answer, args=(other_end,))
    thread.start()
    with own_end:
        yield own_end
    thread.join(SECONDS)
    assert not thread.is_alive()


def _call(connection: socket.socket, partition: bytes) -> tuple[Channel, Any]:
    source = connection.makefile("rb")
    channel = Channel(source, connection.makefile("wb"))
    channel.write({}, [pickle.dumps((read_some, SCHEMA)), partition])
    return channel, source


@pytest.mark.quick
def test_all_batches_come_and_a_message_ends_them(connection: socket.socket) -> None:
    channel, source = _call(connection, b"40")
    assert channel.read() == ({}, [])
    found = pa.ipc.open_stream(source).read_all()
    assert found.equals(pa.Table.from_batches([_batch(number) for number in range(40)]))
    assert channel.read() == ({}, [])


@pytest.mark.quick
def test_an_error_follows_the_batches_before_it(connection: socket.socket) -> None:
    channel, source = _call(connection, b"error")
    assert channel.read() == ({}, [])
    assert pa.ipc.open_stream(source).read_all().num_rows == 2 * BATCH_ROWS
    fields, _ = channel.read()
    assert fields == {"error": {"code": 13, "message": "a value that cannot be"}}


@pytest.mark.quick
def test_a_call_that_cannot_be_read_is_an_error(connection: socket.socket) -> None:
    channel = Channel(connection.makefile("rb"), connection.makefile("wb"))
    channel.write({}, [b"no pickle", b"1"])
    fields, _ = channel.read()
    assert fields["error"]["code"] == 18


@pytest.mark.quick
def test_a_task_that_has_read_enough_ends_the_scan(connection: socket.socket) -> None:
    channel, source = _call(connection, b"1000000")
    assert channel.read() == ({}, [])
    assert pa.ipc.open_stream(source).read_next_batch().num_rows == BATCH_ROWS
    connection.shutdown(socket.SHUT_RDWR)
    assert ended.wait(SECONDS)


@pytest.mark.servers
def test_only_the_owner_may_connect_and_the_socket_goes_with_the_process() -> None:
    command = [sys.executable, "-m", "lance_bridge_spark.processes", "executor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        streams = cast("BinaryIO", process.stdout), cast("BinaryIO", process.stdin)
        fields, _ = Channel(*streams).read()
        path = Path(fields["socket"])
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    assert not path.parent.exists()
