"""The end of the server, and its reloads, as a real process under load."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cli.running import wait_until
from server.http_requests import refused

from lance_bridge_server.authentication.key_file import ApiKeyFile

from .authenticated import LIST, Program, children, serve

pytestmark = pytest.mark.server

FILES = "/v1/namespace/files/list"


@contextmanager
def silent_server() -> Iterator[str]:
    """Accept connections, and never answer; yield host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def configured(tmp_path: Path, **settings: Any) -> Path:
    """Write a configuration with a directory of files among its catalogs."""
    files = {"files": {"impl": "dir", "root": f"{tmp_path}/lake"}}
    content = {"listeners": [{"port": 0}], **settings}
    content["catalogs"] = {**files, **settings.get("catalogs", {})}
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


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
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while True:
                answer = client.get(FILES)
                self.answers[answer.status_code] += 1
                if answer.headers.get("connection") == "close":
                    return

    def end(self) -> None:
        """Wait for the clients; raise what one of them has raised."""
        for each in self._clients:
            each.result(60)
        self._threads.shutdown()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_is_lost_when_the_server_is_stopped(tmp_path: Path, workers: int) -> None:
    config = configured(tmp_path, workers=workers, drain_seconds=20)
    with serve("--config", str(config)) as served:
        load = Load(served.url, 8)
        wait_until(lambda: load.answers[200] > 100)
        code, _, error = served.stop()
        load.end()
    assert code == 0, error
    assert "Traceback" not in error, error
    assert set(load.answers) == {200}
    with pytest.raises(httpx.ConnectError):
        httpx.get(served.url)


@contextmanager
def hanging(tmp_path: Path, **settings: Any) -> Iterator[tuple[Program, Any, ThreadPoolExecutor]]:
    """Serve a catalog that does not answer; yield the server and a function that asks it."""
    with silent_server() as address, ThreadPoolExecutor(4) as threads:
        slow = {"impl": "hive", "uri": f"thrift://{address}", "client.timeout": "60"}
        config = configured(tmp_path, catalogs={"slow": slow}, **settings)
        with serve("--config", str(config)) as served:

            def ask(path: str, **more: Any) -> httpx.Response:
                return httpx.post(f"{served.url}/v1/table/slow$db$t/{path}", timeout=60, **more)

            yield served, ask, threads


def requests_in_flight(served: Program) -> float:
    lines = httpx.get(f"{served.url}/metrics").text.splitlines()
    return float(next(e for e in lines if e.startswith("lance_bridge_requests_in")).split()[1])


def test_what_is_not_done_by_the_deadline_is_answered(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with hanging(tmp_path, stop_seconds=2, audit={"to": str(audit)}) as (served, ask, threads):
        read, write = threads.submit(ask, "describe"), threads.submit(ask, "drop")
        lancedb = threads.submit(ask, "drop", headers={"user-agent": "LanceDB-Test"})
        wait_until(lambda: requests_in_flight(served) == 4)
        started = time.monotonic()
        code, _, error = served.stop()
        assert time.monotonic() - started < 30
        assert "nothing was changed" in refused(read.result(), 503, 17)
        assert "outcome of drop_table is unknown" in refused(write.result(), 503, 17)
        assert "unknown" in refused(lancedb.result(), 424, 17)  # its client repeats after 503
    assert code == 0, error
    assert "3 requests are ended" in error
    assert "Traceback" not in error, error
    ended = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [each["code"] for each in ended if "code" in each] == [17, 17, 17]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(tmp_path: Path, number: int) -> None:
    with hanging(tmp_path, drain_seconds=600, stop_seconds=600) as (served, ask, threads):
        running = threads.submit(ask, "describe")
        wait_until(lambda: requests_in_flight(served) == 2)
        served.process.send_signal(number)
        wait_until(lambda: httpx.get(f"{served.url}/readyz").json()["status"] == "stopping")
        assert not running.done()
        served.process.send_signal(number)
        assert "nothing was changed" in refused(running.result(60), 503, 17)
        code, _, error = served.end()
    assert code == 0, error


def test_a_half_sent_request_does_not_hold_the_server(tmp_path: Path) -> None:
    with serve("--config", str(configured(tmp_path, stop_seconds=1))) as served:
        host, _, port = served.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /v1/table/files$t/insert HTTP/1.1\r\nHost: x\r\n")
            half.sendall(b"Content-Type: application/vnd.apache.arrow.stream\r\n")
            half.sendall(b"Content-Length: 100\r\n\r\nabc")
            wait_until(lambda: requests_in_flight(served) == 2)
            code, _, error = served.stop()
            half.settimeout(10)
            answer = half.recv(65536)
    assert code == 0, error
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":17' in answer


# -- several processes -----------------------------------------------------------------------------


def test_metrics_are_those_of_all_processes(tmp_path: Path) -> None:
    with serve("--config", str(configured(tmp_path, workers=2))) as served:
        for _ in range(40):
            assert httpx.get(f"{served.url}{FILES}", timeout=60).status_code == 200
        text = httpx.get(f"{served.url}/metrics", timeout=60).text
        assert served.stop()[0] == 0
    counted = 'lance_bridge_requests_total{code="OK",operation="list_namespaces"} 40.0'
    assert counted in text


def test_a_worker_that_died_is_replaced_whatever_became_of_the_file(tmp_path: Path) -> None:
    config = configured(tmp_path, workers=2)
    with serve("--config", str(config)) as served:
        wait_until(lambda: served.printed().count("Started server process") == 2)
        config.write_text("catalogs: {")
        found = re.findall(r"Started server process \[(\d+)\]", served.printed())
        os.kill(int(found[0]), signal.SIGKILL)
        wait_until(lambda: served.printed().count("Started server process") == 3)
        assert children(served.url) == ["files"]
        assert served.stop()[0] == 0


# -- reloads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_loses_no_request_and_adds_and_removes_catalogs(
    tmp_path: Path, workers: int
) -> None:
    config = configured(tmp_path, workers=workers, drain_seconds=20)
    more = {"impl": "dir", "root": f"{tmp_path}/more"}
    with serve("--config", str(config)) as served:
        load = Load(served.url, 4)
        wait_until(lambda: load.answers[200] > 50)
        for catalogs in ({"more": more}, {}, {"other": more}):
            configured(tmp_path, workers=workers, catalogs=catalogs)
            served.process.send_signal(signal.SIGHUP)
            names = sorted(["files", *catalogs])
            wait_until(lambda: all(children(served.url) == names for _ in range(10)))  # noqa: B023
        code, _, error = served.stop()
        load.end()
    assert code == 0, error
    assert set(load.answers) == {200}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_configuration_that_cannot_be_used_is_not_taken(tmp_path: Path, workers: int) -> None:
    config = configured(tmp_path, workers=workers)
    with serve("--config", str(config)) as served:
        wait_until(lambda: served.printed().count("Started server process") == workers)
        assert children(served.url) == ["files"]
        for number, broken in enumerate(("catalogs: {", "catalogs: {x: {impl: hvie}}"), 1):
            config.write_text(broken)
            served.process.send_signal(signal.SIGHUP)
            wait_until(lambda: served.printed().count("was not reloaded") >= number)  # noqa: B023
            assert children(served.url) == ["files"]
        code, _, error = served.stop()
    assert code == 0
    assert "did you mean 'hive'?" in error


def test_keys_policies_and_limits_are_reloaded(tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.json")
    key, _ = keys.add("ann")
    policies = tmp_path / "p.cedar"
    policies.write_text("permit(principal, action, resource);")
    headers = {"x-api-key": key}
    with serve("--config", str(configured(tmp_path))) as served:
        url = f"{served.url}{LIST}"
        assert httpx.get(url).status_code == 200
        configured(
            tmp_path,
            authentication=[{"method": "api_keys", "file": str(keys.path)}],
            authorization={"method": "cedar", "policies": str(policies)},
            limits={"rate": "5/hour"},
        )
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(url).status_code == 401)
        found = [httpx.get(url, headers=headers) for _ in range(6)]
        assert [each.status_code for each in found] == [200] * 5 + [429]
        policies.write_text("forbid(principal, action, resource);")
        configured(
            tmp_path,
            authentication=[{"method": "api_keys", "file": str(keys.path)}],
            authorization={"method": "cedar", "policies": str(policies)},
        )
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: httpx.get(url, headers=headers).status_code in (403, 404))
        assert served.stop()[0] == 0


def test_requests_complete_with_what_they_began_with(tmp_path: Path) -> None:
    """A reload ends no request, and closes no connection under one."""
    begun = threading.Event()
    with hanging(tmp_path) as (served, ask, threads):
        running = threads.submit(ask, "describe", headers={"x-request-timeout-ms": "4000"})
        wait_until(lambda: requests_in_flight(served) == 2)
        begun.set()
        configured(tmp_path)
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: children(served.url) == ["files"])
        assert "did not finish within 4 seconds" in refused(running.result(), 503, 17)
