"""The end of the server, and its reloads, as a real process under load."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.authenticated import LIST, Program, children, serve, write_config
from server.gateways import ARROW, dial, done, head, refused, send_rows
from servers.processes import wait_until
from servers.replies import unanswered

from lance_bridge_server.access.authentication import ApiKeyFile

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#stop-and-reload")]

FILES = "/v1/namespace/files/list"
RATE = 30


def configured(tmp_path: Path, **settings: Any) -> Path:
    """Write a configuration with a directory of files among its catalogs."""
    files = {"files": {"impl": "dir", "root": f"{tmp_path}/lake"}}
    settings["catalogs"] = {**files, **settings.get("catalogs", {})}
    return write_config(tmp_path, **{"listeners": [{"port": 0}], **settings})


class Load:
    """Clients that make requests until the server closes their connections."""

    def __init__(self, url: str, count: int) -> None:
        self.answers: Counter[int] = Counter()
        self._url = url
        self._threads = ThreadPoolExecutor(count)
        self._clients: list[Future[None]] = [
            self._threads.submit(self._request) for _ in range(count)
        ]

    def _request(self) -> None:
        with httpx.Client(base_url=self._url, timeout=150) as client:
            while True:
                answer = client.get(FILES)
                self.answers[answer.status_code] += 1
                if answer.headers.get("connection") == "close":
                    return

    def end(self) -> None:
        """Wait for the clients; raise what one of them has raised."""
        for each in self._clients:
            each.result(150)
        self._threads.shutdown()


@contextmanager
def stuck_server(
    tmp_path: Path, **settings: Any
) -> Iterator[tuple[Program, Any, ThreadPoolExecutor]]:
    """Serve a catalog that does not answer; yield the server and a function that asks it.

    The catalog has a minute to respond, in which its reads are not ended.
    """
    with unanswered(is_silent=True) as address, ThreadPoolExecutor(4) as threads:
        slow = {"impl": "hive", "uri": f"thrift://{address}", "client.timeout": "60"}
        settings |= {"catalogs": {"slow": slow}, "readiness": {"timeout": 60}}
        config = configured(tmp_path, **settings)
        with serve("--config", str(config)) as served:

            def ask(path: str, **more: Any) -> httpx.Response:
                return httpx.post(f"{served.url}/v1/table/slow$db$t/{path}", timeout=60, **more)

            yield served, ask, threads


def requests_in_flight(served: Program) -> float:
    lines = httpx.get(f"{served.url}/metrics").text.splitlines()
    return float(next(e for e in lines if e.startswith("lance_bridge_requests_in")).split()[1])


@contextmanager
def half_sent(url: str, user: str = "ann") -> Iterator[socket.socket]:
    """Begin a request, whose body does not arrive."""
    headers = (f"X-Forwarded-User: {user}", f"Content-Type: {ARROW}", "Content-Length: 100")
    with dial(url) as half:
        half.sendall(head("/v1/table/files$t/insert", *headers) + b"abc")
        yield half


@pytest.mark.spec("server.md#the-audit-log")
def test_what_is_not_done_by_the_deadline_is_answered(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with (
        stuck_server(tmp_path, stop_seconds=2, audit={"to": str(audit)}) as (served, ask, threads),
        half_sent(served.url) as half,
    ):
        read, write = threads.submit(ask, "describe"), threads.submit(ask, "drop")
        lancedb = threads.submit(ask, "drop", headers={"user-agent": "LanceDB-Test"})
        wait_until(lambda: requests_in_flight(served) == 5)
        started = time.monotonic()
        code, _, error = served.stop()
        assert time.monotonic() - started < 30
        assert "nothing was changed" in refused(read.result(), 503, 17)
        assert "outcome of drop_table is unknown" in refused(write.result(), 503, 17)
        assert "unknown" in refused(lancedb.result(), 424, 17)  # its client repeats after 503
        answer = half.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":17' in answer
    assert code == 0, error
    assert "Ending 4 requests" in error
    assert "Traceback" not in error, error
    ended = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [each["code"] for each in ended if "code" in each] == [17] * 4


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_second_signal_does_not_wait(tmp_path: Path, number: int) -> None:
    with stuck_server(tmp_path, drain_seconds=600, stop_seconds=600) as (served, ask, threads):
        running = threads.submit(ask, "describe")
        wait_until(lambda: requests_in_flight(served) == 2)
        served.process.send_signal(number)
        wait_until(lambda: httpx.get(f"{served.url}/readyz").json()["status"] == "stopping")
        assert not running.done()
        served.process.send_signal(number)
        assert "nothing was changed" in refused(running.result(60), 503, 17)
        code, _, error = served.end()
    assert code == 0, error


_STOPPED_EARLY = """
import os, signal, sys
from lance_bridge_cli.app import app
from lance_bridge_server.run import server

make = server.uvicorn_config
def stopped(*args, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return make(*args, **options)
server.uvicorn_config = stopped
for config in sys.argv[1:]:
    if os.fork() == 0:
        app(["serve", "--config", config])
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_a_signal_before_it_serves_ends_it(tmp_path: Path) -> None:
    """One process, and two."""
    configs = []
    for workers in (1, 2):
        directory = tmp_path / str(workers)
        directory.mkdir()
        configs.append(str(configured(directory, workers=workers)))
    command = [sys.executable, "-c", _STOPPED_EARLY, *configs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    codes = [line for line in done.stdout.splitlines() if not line.startswith("http://")]
    assert codes == ["0", "0"], done.stderr
    assert "Started" not in done.stderr


_STUCK = """
import threading

import pyarrow as pa
from lance_bridge_cli.app import app
from lance_bridge_server.queries import directories

scan = directories.scan
def stuck(*given):
    reader = scan(*given)
    def batches():
        yield next(iter(reader))
        threading.Event().wait()
    return pa.RecordBatchReader.from_batches(reader.schema, batches())
directories.scan = stuck
app()
"""


def test_rows_that_are_still_read_do_not_hold_the_server(tmp_path: Path) -> None:
    """The storage stops responding after the first batch."""
    config = configured(tmp_path, stop_seconds=1, queries={"processes": 0})
    program = [sys.executable, "-c", _STUCK]
    with serve("--config", str(config), program=program) as served:
        table = f"{served.url}/v1/table/files$t"
        with httpx.Client() as http:
            done(send_rows(http, f"{table}/create"))
        query = {"vector": {}, "k": 1}
        with httpx.stream("POST", f"{table}/query", json=query, timeout=60) as rows:
            assert rows.status_code == 200
            started = time.monotonic()
            code, _, error = served.stop()
    assert time.monotonic() - started < 30
    assert (code, "Abandoning 1 operations" in error) == (0, True), error


# -- several processes -----------------------------------------------------------------------------


def processes(served: Program) -> list[str]:
    """Return the processes that have begun to serve so far."""
    return re.findall(r"Started server process \[(\d+)\]", served.printed())


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Program]]:
    """A configuration, and two processes that serve it."""
    limits = {"ann": {"rate": f"{RATE}/hour"}, "bob": {"concurrent_requests": 1}}
    config = configured(
        tmp_path_factory.mktemp("processes"),
        workers=2,
        authentication=[{"method": "proxy", "networks": ["127.0.0.1/32"]}],
        allow_anonymous=True,
        limits={"principals": limits},
    )
    with serve("--config", str(config)) as served:
        wait_until(lambda: len(processes(served)) == 2)
        yield config, served
        assert served.stop()[0] == 0


@pytest.mark.spec("server.md#metrics-traces-and-logs")
def test_metrics_are_those_of_all_processes(two_processes: tuple[Path, Program]) -> None:
    _, served = two_processes
    for _ in range(40):
        assert httpx.get(f"{served.url}{FILES}", timeout=60).status_code == 200
    counted = 'lance_bridge_requests_total{code="OK",operation="list_namespaces"} 40.0'
    # A request is counted after its answer, maybe by another process than the one asked.
    wait_until(lambda: counted in httpx.get(f"{served.url}/metrics", timeout=60).text)


def test_a_worker_that_died_is_replaced_whatever_became_of_the_file(
    two_processes: tuple[Path, Program],
) -> None:
    config, served = two_processes
    before = config.read_text()
    config.write_text("catalogs: {")
    os.kill(int(processes(served)[0]), signal.SIGKILL)
    wait_until(lambda: len(processes(served)) == 3)
    config.write_text(before)
    assert children(served.url) == ["files"]


def status_for(served: Program, user: str) -> int:
    """Return the status of a request on a connection of its own, which reaches any process."""
    headers = {"x-forwarded-user": user}
    return httpx.get(f"{served.url}{FILES}", headers=headers, timeout=60).status_code


@pytest.mark.spec("server.md#principal-limits")
def test_a_rate_is_that_of_all_processes(two_processes: tuple[Path, Program]) -> None:
    _, served = two_processes
    with ThreadPoolExecutor(4) as threads:
        answers = Counter(threads.map(lambda _: status_for(served, "ann"), range(RATE + 30)))
    assert answers == {200: RATE, 429: 30}


@pytest.mark.spec("server.md#principal-limits")
def test_requests_of_a_killed_process_no_longer_count(two_processes: tuple[Path, Program]) -> None:
    _, served = two_processes
    before = processes(served)
    with half_sent(served.url, "bob"):
        wait_until(lambda: status_for(served, "bob") == 429)
        for each in before[-2:]:
            with suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)
        wait_until(lambda: len(processes(served)) == len(before) + 2)
        wait_until(lambda: status_for(served, "bob") == 200)


# -- reloads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_is_lost_by_a_reload_or_the_stop(tmp_path: Path, workers: int) -> None:
    one = {"impl": "dir", "root": f"{tmp_path}/more"}
    settings = {"workers": workers, "drain_seconds": 20}
    config = configured(tmp_path, catalogs={"added": one}, **settings)
    with serve("--config", str(config)) as served:
        load = Load(served.url, 4)
        wait_until(lambda: load.answers[200] > 50)
        configured(tmp_path, catalogs={"other": one}, **settings)
        served.process.send_signal(signal.SIGHUP)
        expected = ["files", "other"]
        wait_until(lambda: all(children(served.url) == expected for _ in range(10)))
        for number, broken in enumerate(("catalogs: {", "catalogs: {x: {impl: hvie}}"), 1):
            config.write_text(broken)
            served.process.send_signal(signal.SIGHUP)
            wait_until(lambda: served.printed().count("was not reloaded") >= number)  # noqa: B023
            assert children(served.url) == expected
        code, _, error = served.stop()
        load.end()
    assert code == 0, error
    assert set(load.answers) == {200}
    assert "did you mean 'hive'?" in error
    assert "Traceback" not in error, error
    with pytest.raises(httpx.ConnectError):
        httpx.get(served.url)


def test_keys_policies_and_limits_are_reloaded(tmp_path: Path, keys: ApiKeyFile) -> None:
    key, _ = keys.add("ann")
    policies = tmp_path / "p.cedar"
    policies.write_text("permit(principal, action, resource);")
    headers = {"x-api-key": key}
    settings: dict[str, Any] = {
        "authentication": [{"method": "api_keys", "file": str(keys.path)}],
        "authorization": {"method": "cedar", "policies": str(policies)},
    }
    with serve("--config", str(configured(tmp_path))) as served:
        url = f"{served.url}{LIST}"
        assert httpx.get(url).status_code == 200
        configured(tmp_path, **settings, limits={"rate": "5/hour"})
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(url).status_code == 401)
        found = [httpx.get(url, headers=headers) for _ in range(6)]
        assert [each.status_code for each in found] == [200] * 5 + [429]
        policies.write_text("forbid(principal, action, resource);")
        configured(tmp_path, **settings)
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(url, headers=headers).status_code in (403, 404))
        assert served.stop()[0] == 0


def test_requests_complete_with_what_they_began_with(tmp_path: Path) -> None:
    """A reload ends no request, and closes no connection under one."""
    with stuck_server(tmp_path) as (served, ask, threads):
        running = threads.submit(ask, "describe", headers={"x-request-timeout-ms": "4000"})
        wait_until(lambda: requests_in_flight(served) == 2)
        configured(tmp_path)
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: children(served.url) == ["files"])
        assert "did not respond within 4 s" in refused(running.result(), 503, 17)
        # The thread that still waits for its catalog does not hold the server.
        started = time.monotonic()
        code, _, error = served.stop()
    assert time.monotonic() - started < 30
    assert (code, "Abandoning 1 operations" in error) == (0, True), error


# -- reloads at awkward moments --------------------------------------------------------------------


_AUTHORIZER = """
import multiprocessing
import os
import signal
from pathlib import Path

from lance_bridge_server.access import AllowAll


def make(directory):
    hang_up = Path(directory, "hang-up")
    if hang_up.exists() and multiprocessing.parent_process() is not None:
        hang_up.unlink()
        os.kill(os.getpid(), signal.SIGHUP)
    if Path(directory, "fail").exists():
        raise RuntimeError("the service of permissions does not answer")
    return AllowAll()
"""


@pytest.fixture
def authorizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Install a package with an authorizer; return the settings that use it.

    It sends a worker process SIGHUP once if there is a file ``hang-up``, and fails while there is a
    file ``fail``.
    """
    packages = tmp_path / "packages"
    about = packages / "flaky-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flaky\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lance_bridge.authorizers]\nflaky = flaky:make\n")
    (packages / "flaky.py").write_text(_AUTHORIZER)
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return {"method": "flaky", "options": {"directory": str(tmp_path)}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a configuration with one catalog."""

    def write(name: str, **settings: Any) -> Path:
        catalogs = {name: {"impl": "dir", "root": f"{tmp_path}/lake"}}
        return write_config(tmp_path, catalogs=catalogs, listeners=[{"port": 0}], **settings)

    return write


@pytest.mark.parametrize("workers", [1, 2])
def test_an_authorizer_that_raises_anything_ends_no_process(
    workers: int, tmp_path: Path, authorizer: dict[str, Any], write: Callable[..., Path]
) -> None:
    settings = {"workers": workers, "authorization": authorizer}
    with serve("--config", str(write("before", **settings))) as served:
        wait_until(lambda: served.printed().count("Application startup complete") == workers)
        write("after", **settings)
        (tmp_path / "fail").touch()
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "was not reloaded" in served.printed() or served.process.poll())
        assert "RuntimeError: the service of permissions" in served.printed()
        assert children(served.url) == ["before"]
        (tmp_path / "fail").unlink()
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: children(served.url) == ["after"])
        assert served.stop()[0] == 0


_RELOADED_EARLY = """
import os
import signal
from pathlib import Path

from lance_bridge_cli.app import app
from lance_bridge_server.config import SettingsSource

read = SettingsSource.read


def read_once(source):
    SettingsSource.read = read
    settings = read(source)
    source.file.write_text(source.file.read_text().replace("before", "after"))
    os.kill(os.getpid(), signal.SIGHUP)
    return settings


SettingsSource.read = read_once
app()
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_during_the_start_is_made_after_it(
    workers: int, write: Callable[..., Path]
) -> None:
    config = write("before", workers=workers)
    program = [sys.executable, "-c", _RELOADED_EARLY]
    with serve("--config", str(config), program=program) as served:
        wait_until(lambda: children(served.url) == ["after"])
        code, _, error = served.stop()
    assert code == 0
    assert "died" not in error


def test_a_reload_during_the_start_of_a_worker_is_made_after_it(
    tmp_path: Path, authorizer: dict[str, Any], write: Callable[..., Path]
) -> None:
    settings = {"workers": 2, "authorization": authorizer}
    config = write("before", **settings)
    (tmp_path / "hang-up").touch()
    with serve("--config", str(config)) as served:
        wait_until(lambda: "The configuration was reloaded" in served.printed())
        assert served.stop()[0] == 0
