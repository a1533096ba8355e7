"""`/livez` and `/readyz`: whether the server runs, and which catalogs answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    PermissionDeniedError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from server.serving import serving

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.authentication.chain import AuthenticatorChain
from lance_bridge_server.check import check
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.monitoring.health import ReadinessSettings
from lance_bridge_server.process.shared import Process

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#health")]

SECRET = "thrift://user:password@metastore"


class Answering(LanceNamespace):
    """A catalog that answers, or raises an error, after it may go on."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def namespace_id(self) -> str:
        return "answering"

    def list_namespaces(self, request: Any) -> Any:
        self.calls += 1
        assert request.limit == 1
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        return api.ListNamespacesResponse(namespaces=[])


DOWN = ServiceUnavailableError(f"no answer from {SECRET}")


@contextmanager
def server(
    catalogs: Mapping[str, LanceNamespace], process: Process | None = None, **readiness: Any
) -> Iterator[httpx.Client]:
    """Serve catalogs to principals with credentials alone."""
    gateway = Gateway(
        FederatedNamespace(catalogs),
        authenticator=AuthenticatorChain([]),
        catalogs=catalogs,
        readiness=ReadinessSettings(**readiness),
    )
    with serving(create_app(gateway, process)) as url, httpx.Client(base_url=url) as client:
        yield client


def ready(client: httpx.Client) -> tuple[int, Any]:
    answer = client.get("/readyz")
    return answer.status_code, answer.json()


def test_a_server_lives_whatever_its_catalogs_do() -> None:
    with server({"one": Answering(DOWN)}) as client:
        assert client.get("/v1/namespace/$/list").status_code == 401
        answer = client.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})


@pytest.mark.spec("docs/how-to/monitor.md#tables")
def test_the_catalogs_that_do_not_answer_are_named() -> None:
    catalogs = {"one": Answering(), "two": Answering(DOWN), "three": Answering(ValueError())}
    with server(catalogs) as client:
        status, content = ready(client)
    states = {"one": "OK", "two": "SERVICE_UNAVAILABLE", "three": "INTERNAL"}
    assert (status, content) == (200, {"status": "ready", "catalogs": states})


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_a_server_without_catalogs_that_answer_is_not_ready(names: list[str]) -> None:
    with server({name: Answering(DOWN) for name in names}) as client:
        answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert SECRET not in answer.text


def test_all_catalogs_may_be_needed() -> None:
    with server({"one": Answering(), "two": Answering(DOWN)}, all_catalogs=True) as client:
        assert ready(client)[0] == 503


@pytest.mark.parametrize("error", [PermissionDeniedError("no"), UnsupportedOperationError("no")])
def test_a_catalog_that_refuses_answers(error: Exception) -> None:
    with server({"one": Answering(error)}) as client:
        assert ready(client)[0] == 200
    settings = ServerSettings.model_validate({"catalogs": {"one": {}}})
    (row,) = check(settings, {"one": Answering(error)}, 30)
    assert row["problem"] == ""


def test_the_log_says_why_a_catalog_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    catalogs = {"one": Answering(DOWN), "two": Answering(ZeroDivisionError("by zero"))}
    with server(catalogs) as client:
        ready(client)
    assert "catalog 'one' does not respond: no answer from" in caplog.text
    assert "catalog 'two' does not respond" in caplog.text
    assert "ZeroDivisionError: by zero" in caplog.text


def test_answers_are_kept() -> None:
    catalog = Answering()
    with server({"one": catalog}, keep=300) as client:
        assert [ready(client)[0] for _ in range(5)] == [200] * 5
    assert catalog.calls == 1


def test_answers_are_asked_for_again_after_a_while() -> None:
    catalog = Answering()
    with server({"one": catalog}, keep=0.05) as client:
        assert ready(client)[0] == 200
        catalog.error = DOWN
        while ready(client)[0] == 200:
            assert catalog.calls < 100
    assert catalog.calls >= 2


def test_a_catalog_that_hangs_is_waited_for_briefly_and_asked_once() -> None:
    catalog = Answering()
    catalog.go_on.clear()
    with server({"one": catalog, "two": Answering()}, timeout=0.2, keep=0.01) as client:
        for _ in range(3):
            states = ready(client)[1]["catalogs"]
            assert states == {"one": "NO_ANSWER", "two": "OK"}
        assert catalog.calls == 1
        catalog.go_on.set()
        while ready(client)[1]["catalogs"]["one"] != "OK":
            assert catalog.calls < 100


def test_a_server_that_stops_is_not_ready() -> None:
    process = Process()
    with server({"one": Answering()}, process) as client:
        process.lifecycle.is_stopping = True
        assert ready(client) == (503, {"status": "stopping"})
        assert client.get("/livez").headers["connection"] == "close"
