"""Credentials: tokens, profiles and OAuth for the server; and what it vends for storage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Delay, Fault, HttpProxy
from servers.processes import returns_in_child
from servers.unity import Bucket, UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge.testing.concurrency import race
from lance_bridge_unity import client
from lance_bridge_unity.catalog import UnityCatalog
from lance_bridge_unity.client import Access

from .conftest import ID, TABLE, Connect, record

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "unity.md#errors-of-every-operation",
        "unity.md#login",
        "unity.md#security",
        "common.md#secrets-that-change",
        "unity.md#vended-credentials",
    ),
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
THREADS = 10
READ_SCHEMA = "GET /api/2.1/unity-catalog/schemas/c.s"
PATHS = "POST /api/2.1/unity-catalog/temporary-path-credentials"
KEYS = Bucket("AKIA-hush", "secret-hush", "session-hush")


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
        monkeypatch.setattr(client, "_CACHE_SECONDS", 0.0)
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
    monkeypatch.setattr(client, "_CACHE_SECONDS", 0.0)
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


# -- secrets from a file, read again when the server refuses the old ones --------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text("token: first\n")
    return path


@pytest.fixture
def ended(server: UnityServer, connect: Connect, file: Path) -> UnityCatalog:
    """A catalog that was used with the token `first`, which has ended; `second` is valid now."""
    server.token = "first"
    catalog = connect(**{"secrets.file": str(file)})
    assert read(catalog) == ("c", "s")
    server.token = "second"
    return catalog


def read(catalog: UnityCatalog) -> tuple[str, ...]:
    return catalog.load_namespace(("c", "s")).path


def test_a_new_token_in_the_file_is_used(ended: UnityCatalog, proxy: HttpProxy, file: Path) -> None:
    file.write_text("token: second\n")
    proxy.reset()
    assert [read(ended) for _ in range(3)] == [("c", "s")] * 3
    assert proxy.counts[READ_SCHEMA] == 4


def test_a_change_is_made_once(
    ended: UnityCatalog, server: UnityServer, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: second\n")
    proxy.reset()
    made = ended.create_table(record())
    assert server.table(*TABLE)["storage_location"] == made.location
    assert proxy.counts["POST /api/2.1/unity-catalog/tables"] == 2
    server.token = "third"
    file.write_text("token: third\n")
    ended.drop_table(made)
    assert not list(ended.list_tables(("c", "s")))


def test_a_listing_goes_on_where_its_token_ended(
    ended: UnityCatalog, server: UnityServer, file: Path
) -> None:
    file.write_text("token: second\n")
    for number in range(250):
        server.add_table("c", "s", f"t{number:03}")
    rows = iter(ended.scan_tables(("c", "s")))
    first = next(rows).path
    server.token = "third"
    file.write_text("token: third\n")
    assert len({first, *(each.path for each in rows)}) == 250


def test_a_file_with_the_same_token_is_named_and_the_request_sent_once(
    ended: UnityCatalog, proxy: HttpProxy
) -> None:
    proxy.reset()
    with pytest.raises(UnauthenticatedError, match=r"secrets\.file, and are the same") as caught:
        read(ended)
    assert "first" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 1


def test_a_file_with_a_wrong_token_is_tried_once_and_the_next_one_is_used(
    ended: UnityCatalog, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: wrong-hush\n")
    proxy.reset()
    with pytest.raises(UnauthenticatedError, match="the new ones are refused, too") as caught:
        read(ended)
    assert "hush" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 2
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")


def test_a_file_that_is_gone_is_named_and_read_when_it_is_back(
    ended: UnityCatalog, file: Path
) -> None:
    file.unlink()
    with pytest.raises(UnauthenticatedError, match=r"could not be read again.*No such file"):
        read(ended)
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")


def test_a_token_that_was_given_is_sent_once_and_no_file_is_named(
    server: UnityServer, connect: Connect, proxy: HttpProxy
) -> None:
    server.token = "second"
    with pytest.raises(UnauthenticatedError) as caught:
        read(connect(token="first"))
    assert "again" not in str(caught.value)
    assert proxy.counts[READ_SCHEMA] == 1


def test_ten_threads_read_the_file_once(
    ended: UnityCatalog, file: Path, reads_of: Callable[..., list[Path]]
) -> None:
    opened = reads_of(file)
    file.write_text("token: second\n")
    assert race(lambda _: read(ended), THREADS) == [("c", "s")] * THREADS
    assert opened == [file]


def test_a_right_that_is_missing_reads_nothing(
    ended: UnityCatalog, server: UnityServer, proxy: HttpProxy, file: Path
) -> None:
    file.write_text("token: second\n")
    assert read(ended) == ("c", "s")
    file.unlink()
    server.refuse("GET /schemas*")
    proxy.reset()
    with pytest.raises(PermissionDeniedError):
        read(ended)
    assert proxy.counts[READ_SCHEMA] == 1


# -- Databricks ----------------------------------------------------------------------------------


def test_a_personal_token_of_databricks_is_renewed(
    workspace: UnityServer, databricks: Connect, file: Path
) -> None:
    tokens = workspace.databricks.authority.tokens
    tokens.add("first")
    catalog = databricks(token=None, **{"secrets.file": str(file)})
    assert read(catalog) == ("c", "s")
    tokens.clear()
    tokens.add("second")
    file.write_text("token: second\n")
    assert race(lambda _: read(catalog), THREADS) == [("c", "s")] * THREADS
    made = catalog.create_table(TableRecord(TABLE, "s3://bucket/t", {}))
    assert made.path == TABLE


@pytest.mark.parametrize("secret", ["second", "wrong"])
def test_an_oauth_secret_is_renewed(
    workspace: UnityServer, databricks: Connect, file: Path, secret: str
) -> None:
    authority = workspace.databricks.authority
    authority.clients["double-client"] = "first"
    file.write_text("client_secret: first\n")
    given = {"token": None, "client_id": "double-client", "secrets.file": str(file)}
    catalog = databricks(**given)
    assert read(catalog) == ("c", "s")
    authority.revoke()
    authority.clients["double-client"] = "second"
    file.write_text(f"client_secret: {secret}\n")
    before = authority.issued
    if secret == "wrong":
        with pytest.raises(UnauthenticatedError, match="the new ones are refused, too"):
            read(catalog)
        file.write_text("client_secret: second\n")
    assert race(lambda _: read(catalog), THREADS) == [("c", "s")] * THREADS
    assert authority.issued == before + 1


def test_an_oauth_secret_that_is_the_same_is_named(
    workspace: UnityServer, databricks: Connect, file: Path
) -> None:
    file.write_text("client_id: double-client\nclient_secret: wrong-hush\n")
    catalog = databricks(token=None, **{"secrets.file": str(file)})
    with pytest.raises(UnauthenticatedError, match=r"invalid_client.*are the same") as caught:
        read(catalog)
    assert "hush" not in str(caught.value)
    file.write_text("client_id: double-client\nclient_secret: double-secret\n")
    assert read(catalog) == ("c", "s")
    assert workspace.databricks.authority.issued == 1


# -- credentials that the catalog vends ------------------------------------------------------------


def stored(location: str = "s3://bucket/t") -> TableRecord:
    return TableRecord(("c", "s", "t"), location, {"table_type": "lance", ID: "1"})


def test_a_local_location_has_no_credentials(connect: Connect) -> None:
    assert connect().vend_credentials(stored("file:///data/t"), write=False) is None


def test_no_credentials_are_vended_to_a_caller_with_credentials(
    proxy: HttpProxy, connect: Connect
) -> None:
    own = connect(**{"storage.aws_access_key_id": "a", "storage.aws_secret_access_key": "b"})
    assert own.vend_credentials(stored(), write=False) is None
    assert connect(**{"credentials.vend": "false"}).vend_credentials(stored(), write=False) is None
    assert not proxy.requests


def test_an_unknown_bucket_is_logged_or_an_error(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert connect().vend_credentials(stored(), write=False) is None
    assert "S3 bucket configuration not found" in caplog.text
    with pytest.raises(InvalidInputError, match="S3 bucket configuration not found"):
        connect(**{"credentials.vend": "true"}).vend_credentials(stored(), write=False)


def test_a_server_without_the_call_is_logged_or_an_error(
    proxy: HttpProxy, connect: Connect
) -> None:
    proxy.fail_next(PATHS, Answer(404, b"404 Not Found"), times=2)
    assert connect().vend_credentials(stored(), write=False) is None
    with pytest.raises(UnsupportedOperationError):
        connect(**{"credentials.vend": "true"}).vend_credentials(stored(), write=False)


@pytest.mark.spec("unity.md#describetable")
@pytest.mark.parametrize("vend", ["auto", "true"])
@pytest.mark.parametrize(
    ("identity", "right"), [("id-1", "EXTERNAL USE SCHEMA"), (None, "EXTERNAL USE LOCATION")]
)
def test_a_refusal_names_the_privilege_that_is_missing(
    server: UnityServer, connect: Connect, vend: str, identity: str | None, right: str
) -> None:
    server.refuse("POST /temporary-*")
    catalog = connect(**{"credentials.vend": vend})
    wanted = TableRecord(("c", "s", "t"), "s3://bucket/t", {}, identity=identity)
    with pytest.raises(PermissionDeniedError, match=right):
        catalog.vend_credentials(wanted, write=False)


def test_asking_for_credentials_is_repeated_where_the_answer_is_lost(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_bucket("s3://bucket", KEYS)
    proxy.fail_next(PATHS, Fault.LOSE_REPLY, times=2)
    assert connect().vend_credentials(stored(), write=False)
    assert proxy.counts[PATHS] == 3


def test_vended_secrets_are_in_no_log(
    server: UnityServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_bucket("s3://bucket", KEYS)
    with caplog.at_level(logging.DEBUG):
        assert connect().vend_credentials(stored(), write=False)
    assert "hush" not in caplog.text
