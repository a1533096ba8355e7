"""Limits by principal: requests in a time, requests at once, and the size of bodies."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from lance_namespace.errors import ServiceUnavailableError
from server.http_requests import done, refused
from server.policies import NamedByHeader
from server.serving import serving_namespace
from server.test_answers import Slow
from servers.processes import wait_until
from starlette.types import Message, Receive, Scope, Send

from lance_bridge_server.app import RequestCount
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.limits import Slot
from lance_bridge_server.request_counts import RequestCounts

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#principal-limits")]

TABLE = "/v1/table/films$t"
LIST = "/v1/namespace/$/list"
SOON = {"x-request-timeout-ms": "1000"}


@contextmanager
def limited(namespace: Any, **limits: Any) -> Iterator[httpx.Client]:
    settings = ServerSettings.model_validate({"catalogs": {"c": {}}, "limits": limits})
    with (
        serving_namespace(namespace, authenticator=NamedByHeader(), limits=settings.limits) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client


def as_(name: str, **more: str) -> dict[str, str]:
    return {"x-user": name, **more}


@pytest.mark.parametrize("agent", ["test", "LanceDB-Test"])
def test_a_principal_has_its_own_rate(namespace: Any, agent: str) -> None:
    """LanceDB's client, too, is answered 429, after which it repeats what was refused."""
    with limited(namespace, rate="3/minute") as client:
        headers = as_("ann", **{"user-agent": agent})
        for _ in range(3):
            done(client.get(LIST, headers=headers))
        answer = client.get(LIST, headers=headers)
        assert "ann exceeded 3 requests per 60 s" in refused(answer, 429, 21)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        done(client.get(LIST, headers=as_("bob")))


def test_a_client_that_waits_for_the_given_time_is_served(namespace: Any) -> None:
    with limited(namespace, rate="2/second") as client:
        codes = [client.get(LIST, headers=as_("ann")) for _ in range(10)]
        answer = next(each for each in codes if each.status_code == 429)
        time.sleep(int(answer.headers["retry-after"]))
        done(client.get(LIST, headers=as_("ann")))


def test_what_has_no_credentials_counts_for_nobody(namespace: Any) -> None:
    with limited(namespace, rate="1/minute") as client:
        for _ in range(5):
            refused(client.get(LIST), 401, 16)
            assert client.get("/livez").status_code == 200
        done(client.get(LIST, headers=as_("ann")))


def test_requests_at_once_are_limited_until_they_were_answered() -> None:
    slow = Slow()
    with (
        limited(slow, concurrent_requests=2) as client,
        ThreadPoolExecutor(2) as threads,
    ):
        headers = as_("ann")
        running = [
            threads.submit(client.post, f"{TABLE}/describe", headers=headers) for _ in range(2)
        ]
        for _ in range(2):
            assert slow.begun.acquire(timeout=30)
        answer = client.post(f"{TABLE}/describe", headers=headers)
        assert "concurrent requests, the limit; nothing was done" in refused(answer, 429, 21)
        assert answer.headers["retry-after"] == "1"
        slow.go_on.set()
        assert [each.result(30).status_code for each in running] == [200, 200]
        done(client.post(f"{TABLE}/describe", headers=headers))


@pytest.mark.parametrize("operation", ["describe", "drop"])
def test_an_operation_counts_until_it_ends_even_after_its_request(operation: str) -> None:
    """A client with a short timeout of its own holds no more threads than its limit."""
    slow = Slow()
    with limited(slow, concurrent_requests=1) as client:
        refused(client.post(f"{TABLE}/{operation}", headers=as_("ann", **SOON)), 503, 17)
        assert slow.begun.acquire(timeout=30)
        refused(client.post(f"{TABLE}/describe", headers=as_("ann", **SOON)), 429, 21)
        refused(client.post(f"{TABLE}/describe", headers=as_("bob", **SOON)), 503, 17)
        slow.go_on.set()
        wait_until(lambda: client.post(f"{TABLE}/describe", headers=as_("ann")).is_success)


def test_requests_that_never_began_are_released_too() -> None:
    slow = Slow()
    with limited(slow, concurrent_requests=1, threads=1) as client:
        refused(client.post(f"{TABLE}/drop", headers=as_("bob", **SOON)), 503, 17)
        for _ in range(2):
            refused(client.post(f"{TABLE}/drop", headers=as_("ann", **SOON)), 503, 17)
        slow.go_on.set()


def test_requests_that_fail_are_released_too(namespace: Any) -> None:
    with limited(namespace, concurrent_requests=1) as client:
        for _ in range(5):
            refused(client.post("/v1/table/films$gone/describe", headers=as_("ann")), 404, 4)


def test_a_request_is_released_before_its_answer_ends(namespace: Any) -> None:
    """Who has the whole answer may send the next one at once."""
    events: list[str] = []

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        scope["state"]["slot"] = Slot(lambda: events.append("released"))
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "more_body": True})
        await send({"type": "http.response.body"})

    async def send(message: Message) -> None:
        events.append(message["type"])

    async def receive() -> Message:
        return {"type": "http.request"}

    anyio.run(RequestCount(app, Gateway(namespace)), {"state": {}}, receive, send)
    head, part = "http.response.start", "http.response.body"
    assert events == [head, part, "released", part]


def test_a_principal_may_have_limits_of_its_own(namespace: Any) -> None:
    principals = {"loader": {"rate": "5/minute", "body_bytes": 100_000}}
    with limited(namespace, rate="1/minute", body_bytes=100, principals=principals) as client:
        body = {"properties": {"x": "y" * 200}, "mode": "exist_ok"}
        path = "/v1/namespace/films/create"
        refused(client.post(path, json=body, headers=as_("ann")), 413, 13)
        for _ in range(5):
            done(client.post(path, json=body, headers=as_("loader")))
        refused(client.post(path, json=body, headers=as_("loader")), 429, 21)


def ranges(count: int) -> dict[str, Any]:
    return {"ranges": [{"start_version": 1, "end_version": 2}] * count}


DROPPED = {"deregister_table": {"id": ["films", "t"]}}
VERSION = {"id": ["films", "t"], "version": 1, "manifest_path": "m"}


BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("version/batch-create", {"entries": [VERSION] * 4}),
    ("batch-commit", {"operations": [DROPPED] * 4}),
    ("batch-commit", {"operations": [{"delete_table_versions": ranges(3)}]}),
    ("films$t/version/delete", ranges(4)),
]


@pytest.mark.spec("server.md#request-limits")
def test_entries_of_a_batch_are_limited(namespace: Any) -> None:
    for most in (3, 4):
        with limited(namespace, batch_entries=most) as client:
            for path, body in BATCHES:
                answer = client.post(f"/v1/table/{path}", json=body, headers=as_("ann"))
                if most == 3:
                    assert "4 entries; the limit is 3" in refused(answer, 413, 13)
                else:
                    assert answer.status_code != 413


# -- requests that are counted in a file -----------------------------------------------------------


MINUTE = 60.0


def test_those_who_share_a_file_count_together(tmp_path: Path) -> None:
    file = tmp_path / "counts"
    RequestCounts(file)  # as the process that starts the others

    def add_many(count: int) -> int:
        counts = RequestCounts(file)
        return sum(not counts.add("ann", 50, MINUTE) for _ in range(count))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(add_many, [40] * 4)) == 50
    assert 0 < RequestCounts(file).add("ann", 50, MINUTE) <= MINUTE
    assert not RequestCounts(file).add("bob", 50, MINUTE)


def test_what_was_counted_long_ago_is_forgotten(tmp_path: Path) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert not counts.add("ann", 1, seconds=0.0)
    assert not counts.add("ann", 1, MINUTE)
    assert counts.wait("ann", 1)
    rows = sqlite3.connect(tmp_path / "counts").execute("SELECT count(*) FROM recent")
    assert rows.fetchone() == (1,)


def test_what_a_dead_process_has_begun_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, dead = RequestCounts(tmp_path / "counts"), os.getpid() + 1
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: dead)
        assert RequestCounts(tmp_path / "counts").begin("ann", 2)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)
    counts.forget_process(dead)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)


def test_a_file_that_cannot_be_used_counts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert counts.begin("ann", 1)
    other = sqlite3.connect(tmp_path / "counts", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ServiceUnavailableError, match="nothing was done"):
        counts.add("ann", 1, MINUTE)
    counts.end("ann")
    assert "limits cannot be checked" in caplog.text
    other.execute("ROLLBACK")
    assert not counts.add("ann", 1, MINUTE)
    assert not counts.begin("ann", 1)  # not uncounted yet
    assert counts.begin("ann", 2)
    counts.end("ann")
    assert counts.begin("ann", 1)
