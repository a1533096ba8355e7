"""Authentication on Databricks: tokens, profiles and OAuth, and their expiration."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from core.forking import returns_in_child
from lance_namespace.errors import ServiceUnavailableError, UnauthenticatedError
from servers.http_proxy import Answer, Delay, Fault, HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge_unity import login
from lance_bridge_unity.catalog import UnityCatalog
from lance_bridge_unity.login import Access

from .building import Connect

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#errors-of-every-operation", "unity.md#login", "unity.md#security"),
]

CLIENT = {"token": None, "client_id": "double-client", "client_secret": "double-secret"}
ISSUE = "POST /oidc/v1/token"
SDK_MARGIN = 40.0
"""Seconds before its end at which the SDK takes a token for one that has ended."""
NOISE: dict[str, Fault | Answer] = {
    "throttled": Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED", "message": "slow down"}),
    "unavailable": Answer.of_json(503, {"error": "temporarily_unavailable"}),
    "a proxy's page": Answer(502, b"<html>", {"Content-Type": "text/html"}),
    "no content": Answer(500),
    "something else": Answer.of_json(200, ["a"]),
    "reset": Fault.RESET,
    "lost": Fault.LOSE_REPLY,
    "truncated": Fault.TRUNCATE_REPLY,
    "malformed": Fault.MALFORMED_REPLY,
}


def read_by_eight(catalog: UnityCatalog) -> list[tuple[str, ...]]:
    """Read a schema in eight threads at once."""
    gate = threading.Barrier(8)

    def read(_: int) -> tuple[str, ...]:
        gate.wait(10)
        return catalog.load_namespace(("c", "s")).path

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(read, range(8)))


def test_wrong_credentials_are_unauthenticated_and_a_given_token_is_sent_once(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    for bad in ({**CLIENT, "client_secret": "wrong-hush"}, {"token": "wrong-hush"}):
        workspace_proxy.reset()
        with pytest.raises(UnauthenticatedError) as caught:
            databricks(**bad).load_namespace(("c", "s"))
        assert "hush" not in str(caught.value)
    assert workspace_proxy.counts["GET /api/2.1/unity-catalog/schemas/c.s"] == 1


def test_a_profile_gives_host_and_token(
    workspace_proxy: HttpProxy,
    databricks: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles = tmp_path / "databrickscfg"
    profiles.write_text(f"[work]\nhost = {workspace_proxy.endpoint}\ntoken = dapi-double\n")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(profiles))
    catalog = databricks(host=None, token=None, profile="work")
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")
    assert "profile=work" in catalog.describe_connection()


def test_a_missing_profile_is_named(databricks: Connect) -> None:
    catalog = databricks(host=None, token=None, profile="nowhere")
    with pytest.raises(UnauthenticatedError, match="nowhere"):
        catalog.load_namespace(("c", "s"))


def test_credentials_of_the_environment_count_where_none_are_given(
    databricks: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-double")
    assert databricks(token=None).load_namespace(("c", "s")).path == ("c", "s")
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-of-somewhere-else")
    assert databricks(**CLIENT).load_namespace(("c", "s")).path == ("c", "s")
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", "other")
    monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", "other")
    assert databricks().load_namespace(("c", "s")).path == ("c", "s")


def test_a_login_without_an_answer_ends_in_time(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    workspace_proxy.fail_next(ISSUE, Delay(), times=99)
    catalog = databricks(**CLIENT, connect_timeout="0.2", read_timeout="0.5", retry_timeout="0")
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        catalog.load_namespace(("c", "s"))
    assert time.monotonic() - started < 30


def test_a_dead_workspace_is_service_unavailable_in_time(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    workspace_proxy.stop()
    for properties in (CLIENT, {}):
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            databricks(
                **properties, connect_timeout="0.5", read_timeout="2", retry_timeout="0"
            ).load_namespace(("c", "s"))
        assert time.monotonic() - started < 30


# -- tokens that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["at first", "at its end", "revoked"])
def test_eight_threads_without_a_token_that_counts_fetch_one(
    workspace: UnityServer, databricks: Connect, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    authority = workspace.databricks.authority
    catalog = databricks(**CLIENT)
    if when == "at its end":
        monkeypatch.setattr(login, "_CACHE_SECONDS", 0.0)
        authority.lifetime = SDK_MARGIN
    if when != "at first":
        catalog.load_namespace(("c", "s"))
    before = authority.issued
    if when == "revoked":
        authority.revoke()
    authority.lifetime = 3600.0
    assert read_by_eight(catalog) == [("c", "s")] * 8
    assert authority.issued == before + 1


def test_a_change_with_a_token_that_has_ended_is_made_once(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    catalog = databricks(**CLIENT)
    made = catalog.create_table(TableRecord(("c", "s", "t"), "s3://bucket/t", {}))
    workspace.databricks.authority.revoke()
    catalog.drop_table(made)
    assert workspace_proxy.counts["DELETE /api/2.1/unity-catalog/tables/c.s.t"] == 2
    assert not list(catalog.list_tables(("c", "s")))


def test_credentials_that_are_taken_away_are_unauthenticated(
    workspace: UnityServer, databricks: Connect
) -> None:
    authority = workspace.databricks.authority
    catalog = databricks(**CLIENT)
    catalog.load_namespace(("c", "s"))
    authority.revoke()
    authority.clients.clear()
    with pytest.raises(UnauthenticatedError, match="invalid_client"):
        catalog.load_namespace(("c", "s"))


def test_the_sdk_is_not_asked_for_every_request(
    databricks: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    catalog = databricks(**CLIENT)
    begun = time.monotonic()
    for _ in range(30):
        catalog.load_namespace(("c", "s"))
    seconds = time.monotonic() - begun
    assert 1 <= started.count("unity-login") <= 1 + seconds


# -- servers of tokens that fail -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "noise"),
    [
        *((ISSUE, noise) for noise in NOISE),
        ("GET /oidc/*", "a proxy's page"),
        ("GET /oidc/*", "truncated"),
        ("GET /.well-known/*", "truncated"),
    ],
)
def test_a_server_of_tokens_that_fails_once_is_asked_again(
    workspace_proxy: HttpProxy, databricks: Connect, where: str, noise: str
) -> None:
    workspace_proxy.fail_next(where, NOISE[noise])
    catalog = databricks(**CLIENT, read_timeout="3")
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")


@pytest.mark.parametrize("noise", NOISE)
def test_a_server_of_tokens_that_fails_is_not_taken_for_one_that_refuses(
    workspace_proxy: HttpProxy, databricks: Connect, noise: str
) -> None:
    catalog = databricks(**CLIENT, max_retries="1")
    workspace_proxy.fail_next(ISSUE, NOISE[noise], times=float("inf"))
    with pytest.raises(ServiceUnavailableError):
        catalog.load_namespace(("c", "s"))
    workspace_proxy.reset()
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")


def test_what_was_found_out_wrong_is_not_kept(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    catalog = databricks(**CLIENT, max_retries="0")
    workspace_proxy.fail_next("GET *well-known*", Answer.of_json(200, {}), times=float("inf"))
    with pytest.raises(ServiceUnavailableError, match="where it issues tokens"):
        catalog.load_namespace(("c", "s"))
    workspace_proxy.reset()
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")


@pytest.mark.parametrize("before", [0, 1])
def test_a_login_that_hung_once_does_not_hang_the_next(
    workspace: UnityServer,
    workspace_proxy: HttpProxy,
    databricks: Connect,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
) -> None:
    monkeypatch.setattr(login, "_CACHE_SECONDS", 0.0)
    workspace.databricks.authority.lifetime = SDK_MARGIN
    catalog = databricks(**CLIENT, connect_timeout="0.2", read_timeout="0.5", max_retries="0")
    for _ in range(before):
        catalog.load_namespace(("c", "s"))
    workspace_proxy.fail_next(ISSUE, Delay())
    with pytest.raises(ServiceUnavailableError):
        catalog.load_namespace(("c", "s"))
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_logs_in_while_a_thread_of_its_parent_does(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    silence = Delay()
    workspace_proxy.fail_next(ISSUE, silence)
    catalog = databricks(**CLIENT, read_timeout="60")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(catalog.load_namespace, ("c", "s"))
        workspace_proxy.await_requests(ISSUE)
        try:
            assert returns_in_child(lambda: catalog.load_namespace(("c", "s")))
        finally:
            silence.release.set()
        assert waiting.result(20).path == ("c", "s")
    assert workspace_proxy.counts[ISSUE] == 2


def test_credentials_are_not_in_the_repr() -> None:
    assert "hush" not in repr(Access("http://unity", {"Authorization": "Bearer hush"}))
