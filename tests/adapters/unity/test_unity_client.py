"""Requests: how many an operation needs, what is repeated under faults, and what errors become."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Delay, Fault, HttpProxy
from servers.processes import returns_in_child
from servers.replies import ScriptedServer, unanswered
from servers.unity import UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge.config import load
from lance_bridge.errors import ObjectUnavailableError, OutcomeUnknownError, table_already_exists
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_unity import UnityConfig, UnityNamespace
from lance_bridge_unity.catalog import UnityCatalog
from lance_bridge_unity.client import route
from lance_bridge_unity.errors import ErrorReply, LostReply, translate_errors

from .conftest import API, TABLE, Connect, record

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "unity.md#connections", "unity.md#errors-of-every-operation", "unity.md#declaretable"
    ),
]

CREATE = "POST /api/2.1/unity-catalog/tables"
READ = "GET /api/2.1/unity-catalog/tables/c.s.t"
THROTTLED = Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED", "message": "slow down"})
LOST = [
    Fault.RESET,
    Fault.DROP_REQUEST,
    Fault.LOSE_REPLY,
    Fault.TRUNCATE_REPLY,
    Fault.MALFORMED_REPLY,
    Fault.EMPTY_REPLY,
]
READ_SCHEMA = f"GET {API}/schemas/c.s"


@pytest.mark.parametrize("fault", LOST)
def test_a_read_is_repeated_until_it_is_answered(
    server: UnityServer, proxy: HttpProxy, connect: Connect, fault: Fault
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, fault, times=2)
    assert connect().load_table(TABLE).path == TABLE
    assert proxy.counts[READ] == 3


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("fault", LOST)
def test_a_read_that_is_never_answered_is_not_absence(
    server: UnityServer, proxy: HttpProxy, connect: Connect, fault: Fault, exists: bool
) -> None:
    if exists:
        server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, fault, times=99)
    with pytest.raises(ServiceUnavailableError) as caught:
        connect(max_retries="2").load_table(TABLE)
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert proxy.counts[READ] == 3


def test_a_throttled_change_is_repeated(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, THROTTLED, times=2)
    assert connect().create_table(record()).identity is not None
    assert proxy.counts[CREATE] == 3


def test_a_server_that_only_throttles_is_given_up(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next("*", THROTTLED, times=99)
    with pytest.raises(ThrottlingError):
        connect(max_retries="2").load_table(TABLE)
    assert sum(proxy.counts.values()) == 3


def test_retry_after_is_respected(server: UnityServer, proxy: HttpProxy, connect: Connect) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, Answer.of_json(503, {}, Retry_After="1"))
    started = time.monotonic()
    connect().load_table(TABLE)
    assert time.monotonic() - started >= 1.0


def test_a_wait_beyond_the_budget_is_not_started(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer.of_json(429, {}, Retry_After="3600"))
    started = time.monotonic()
    with pytest.raises(ThrottlingError):
        connect().load_table(TABLE)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_a_failure_that_may_pass_is_asked_about_again(
    server: UnityServer, proxy: HttpProxy, connect: Connect, status: int
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    proxy.fail_next(READ, Answer.of_json(status, {}))
    assert connect().load_table(TABLE).path == TABLE
    assert proxy.counts[READ] == 2


def test_a_failure_that_will_not_pass_is_not_repeated(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer.of_json(500, {"error_code": "INTERNAL"}), times=99)
    with pytest.raises(ServiceUnavailableError):
        connect().load_table(TABLE)
    assert proxy.counts[READ] == 1


def test_a_change_that_a_silent_server_got_is_unknown(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, Delay(effect_first=True))
    with pytest.raises(OutcomeUnknownError):
        connect(read_timeout="0.3").create_table(record())
    assert proxy.counts[CREATE] == 1


def test_a_dead_server_is_service_unavailable_and_not_a_doubt(
    proxy: HttpProxy, connect: Connect
) -> None:
    catalog = connect(retry_timeout="0.5")
    proxy.stop()
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError) as caught:
        catalog.create_table(record())
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert time.monotonic() - started < 30


def test_a_change_reaches_a_server_that_comes_back(proxy: HttpProxy, connect: Connect) -> None:
    catalog = connect(max_retries="50", retry_timeout="20")
    proxy.stop()
    timer = threading.Timer(0.5, proxy.start)
    timer.start()
    assert catalog.create_table(record()).identity is not None
    timer.join()
    assert proxy.counts[CREATE] == 1


def test_a_redirect_is_not_followed(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(CREATE, Answer(302, b"", {"Location": "http://elsewhere/login"}))
    with pytest.raises(Exception, match="redirects to http://elsewhere/login"):
        connect().create_table(record())
    assert list(proxy.counts) == [CREATE]


def test_a_web_server_that_is_no_catalog_is_not_absence(proxy: HttpProxy, connect: Connect) -> None:
    proxy.fail_next(READ, Answer(404, b"<html>Not Found</html>"))
    with pytest.raises(Exception, match="check host") as caught:
        connect().load_table(TABLE)
    assert not isinstance(caught.value, TableNotFoundError)


# -- who one is ----------------------------------------------------------------------------------


def test_a_token_is_sent_and_not_logged(
    server: UnityServer, proxy: HttpProxy, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server.token = "right-hush"
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect(token="right-hush").load_table(TABLE)
    with pytest.raises(UnauthenticatedError) as caught:
        connect(auth_token="wrong-hush").load_table(TABLE)
    assert proxy.requests[0].headers["authorization"] == "Bearer right-hush"
    assert "hush" not in str(caught.value)
    assert "hush" not in caplog.text


def test_without_a_token_none_is_sent(
    server: UnityServer, proxy: HttpProxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-of-somewhere-else")
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect().load_table(TABLE)
    assert "authorization" not in proxy.requests[0].headers


def test_a_netrc_file_does_not_replace_the_token(
    server: UnityServer,
    proxy: HttpProxy,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.add_table("c", "s", "t", properties={"k": "v"})
    connect(token="mine").load_table(TABLE)
    assert proxy.requests[0].headers["authorization"] == "Bearer mine"


# -- names and pages -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "..", "a?b", "a#b", "a%2Fb", "ä"])
def test_names_are_escaped_in_urls(name: str) -> None:
    path = route("tables", "c", "s", name)
    assert path.startswith("/tables/c.s.")
    assert path.count("/") == 2
    assert not set(path) & set("?# ")


def test_an_empty_page_is_not_the_end(proxy: HttpProxy, connect: Connect) -> None:
    listing = "GET /api/2.1/unity-catalog/tables"
    for page in (
        {"next_page_token": "one"},
        {"tables": [], "next_page_token": "two"},
        {"tables": [{"name": "t"}, None, {"name": 7}]},
    ):
        proxy.fail_next(listing, Answer.of_json(200, page))
    found = list(connect().scan_tables(("c", "s")))
    assert [record.path for record in found if record.is_readable] == [TABLE]
    assert len(found) == 2  # a row whose name is no text is an entry that cannot be read


def test_a_page_that_comes_again_does_not_go_on_for_ever(
    proxy: HttpProxy, connect: Connect
) -> None:
    listing = "GET /api/2.1/unity-catalog/tables"
    proxy.fail_next(listing, Answer.of_json(200, {"next_page_token": "same"}), times=99)
    with pytest.raises(ServiceUnavailableError):
        list(connect().scan_tables(("c", "s")))
    assert proxy.counts[listing] == 2


# -- threads and processes -----------------------------------------------------------------------


@pytest.mark.spec("common.md#concurrency-and-crash-safety")
def test_a_child_process_does_not_use_its_parents_connection(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_table("c", "s", "t", properties={"k": "v"})
    catalog = connect()
    catalog.load_table(TABLE)
    assert returns_in_child(lambda: catalog.load_table(TABLE))
    catalog.load_table(TABLE)
    assert proxy.counts[READ] == 3
    assert proxy.connections == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda catalog: catalog.load_table(TABLE),
        lambda catalog: list(catalog.scan_tables(("c", "s"))),
        lambda catalog: catalog.list_namespaces(()),
        lambda catalog: catalog.drop_namespace(("c", "s")),
    ],
)
def test_nothing_waits_for_ever(connect: Connect, ask: Callable[[object], object]) -> None:
    limits = {"read_timeout": "0.3", "retry_timeout": "1", "max_retries": "1"}
    with unanswered(is_silent=True) as address:
        catalog = connect(host=f"http://{address}", **limits)
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            ask(catalog)
        assert time.monotonic() - started < 30


# -- answers that come byte by byte ---------------------------------------------------------------


LIMIT = 0.5
OK = b"HTTP/1.1 200 OK\r\n"
BEGINNINGS = {
    "a head": (OK + b"X-Slow: ", b"."),
    "a body": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body in pieces": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body until the end": (OK + b"Connection: close\r\n\r\n", b" "),
    "an error": (b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n", b" "),
    "many heads": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@contextmanager
def slow_server(beginning: bytes, more: bytes, times: float = float("inf")) -> Iterator[str]:
    """Run a server that begins an answer and goes on with it a little at a time; give its URL."""

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(beginning)
        sent = 0
        while sent < times:
            time.sleep(LIMIT / 10)  # the pace of this server, not a wait for something
            connection.sendall(more)
            sent += 1

    with closing(ScriptedServer(serve)) as server:
        yield server.url


def catalog_at(url: str) -> UnityCatalog:
    given = {"host": url, "root": "/data", "read_timeout": str(LIMIT), "max_retries": "1"}
    return UnityCatalog(load(UnityConfig, "unity", given))


def test_a_read_whose_answer_trickles_is_given_up_in_time() -> None:
    def read(url: str) -> None:
        with pytest.raises(ServiceUnavailableError, match=r"no reply (within 0\.5 s|in time)"):
            catalog_at(url).load_table(TABLE)

    while_answers_trickle(read)


def test_a_change_whose_answer_trickles_is_unknown_in_time() -> None:
    def change(url: str) -> None:
        with pytest.raises(OutcomeUnknownError):
            catalog_at(url).create_table(TableRecord(TABLE, "file:///data/t", {}))

    while_answers_trickle(change)


def test_a_read_whose_answer_never_pauses_is_given_up_in_time() -> None:
    """No wait for a byte times out: the client is slower than the server."""
    more = b"HTTP/1.1 100 Continue\r\n\r\n" * 4096

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        while True:
            connection.sendall(more)

    started = time.monotonic()
    with (
        closing(ScriptedServer(serve)) as server,
        pytest.raises(ServiceUnavailableError, match=r"no reply (within 0\.5 s|in time)"),
    ):
        catalog_at(server.url).load_table(TABLE)
    assert time.monotonic() - started < 30


def while_answers_trickle(call: Callable[[str], None]) -> None:
    """Call a server for each of `BEGINNINGS`, all at once, and require that each call ends."""
    started = time.monotonic()
    with ExitStack() as servers, ThreadPoolExecutor(len(BEGINNINGS)) as pool:
        urls = [servers.enter_context(slow_server(*each)) for each in BEGINNINGS.values()]
        list(pool.map(call, urls))
    assert time.monotonic() - started < 30


def test_a_slow_answer_that_comes_in_time_counts() -> None:
    beginning = OK + b'Connection: close\r\n\r\n{"name": "t"'
    with slow_server(beginning, b" }", times=1) as url:
        assert catalog_at(url).load_table(TABLE).path == TABLE


@contextmanager
def one_answer_server(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that closes each connection after an answer; give its URL and the requests."""
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(connection.recv(1 << 16))
        connection.sendall(answer)

    with closing(ScriptedServer(serve)) as server:
        yield server.url, requests


def test_a_change_that_a_proxy_got_is_unknown_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_answer_server(b"") as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(OutcomeUnknownError):
            catalog_at("http://unity.invalid").create_table(TableRecord(TABLE, "file:///t", {}))
    assert [each.split()[0] for each in requests].count(b"POST") == 1


def test_a_change_for_which_a_proxy_opens_no_tunnel_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_answer_server(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n") as (proxy, requests):
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(ServiceUnavailableError, match="Tunnel connection failed") as caught:
            catalog_at("https://unity.invalid").create_table(TableRecord(TABLE, "file:///t", {}))
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert [each.split()[0] for each in requests] == [b"CONNECT", b"CONNECT"]


def test_an_answer_through_a_proxy_that_trickles_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = time.monotonic()
    with slow_server(*BEGINNINGS["a body"]) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(ServiceUnavailableError, match=r"no reply (within 0\.5 s|in time)"):
            catalog_at("http://unity.invalid").load_table(TABLE)
    assert time.monotonic() - started < 30


# -- how many requests an operation needs ----------------------------------------------------------


def entry_of(name: str) -> dict[str, int]:
    """Return the requests that add an entry: the second looks whether another client won."""
    return {CREATE: 1, f"GET {API}/tables/c.s.{name}": 1}


def test_a_declaration_needs_no_request_but_those_of_its_entry(
    calls: Calls, proxy: HttpProxy
) -> None:
    calls.declare_table(["c", "s", "t"])
    assert proxy.counts == entry_of("t")
    proxy.reset()
    calls.declare_table(["c", "s", "u"], location="/data/u")
    assert proxy.counts == entry_of("u")
    proxy.reset()
    calls.register_table(["c", "s", "v"], "/data/v")
    assert proxy.counts == entry_of("v")


def test_the_schema_is_read_where_it_gives_the_location(
    server: UnityServer, proxy: HttpProxy, tmp_path: Path
) -> None:
    server.add_schema("c", "own", storage_root=f"file://{tmp_path}/own")
    with UnityNamespace(host=proxy.endpoint) as namespace:
        made = Calls(namespace).declare_table(["c", "own", "t"])
    assert made.location == f"{tmp_path}/own/c/own.db/t.lance"
    assert proxy.counts[f"GET {API}/schemas/c.own"] == 1
    assert sum(proxy.counts.values()) == 3


def test_the_schema_is_read_before_data_is_written(calls: Calls, proxy: HttpProxy) -> None:
    calls.create_table(["c", "s", "t"], rows(range(3)))
    # The entry is read again after the commit to the storage.
    assert proxy.counts == {READ_SCHEMA: 1, **entry_of("t"), READ: 2}


@pytest.mark.parametrize("missing", [["c", "nope"], ["nope", "s"]])
def test_a_namespace_that_is_missing_is_named_and_nothing_stays_in_its_place(
    calls: Calls, tmp_path: Path, missing: list[str]
) -> None:
    with pytest.raises(NamespaceNotFoundError, match="nope"):
        calls.declare_table([*missing, "t"])
    with pytest.raises(NamespaceNotFoundError, match="nope"):
        calls.create_table([*missing, "t"], rows(range(3)))
    assert not (tmp_path / "lake").exists()


def test_without_a_root_a_missing_namespace_is_named(proxy: HttpProxy) -> None:
    with UnityNamespace(host=proxy.endpoint) as namespace:
        with pytest.raises(NamespaceNotFoundError, match="nope"):
            Calls(namespace).declare_table(["c", "nope", "t"])
        with pytest.raises(InvalidInputError, match="root"):
            Calls(namespace).declare_table(["c", "s", "t"])


# -- errors of every dialect -----------------------------------------------------------------------


def raised(error: Exception, path: tuple[str, ...] = TABLE) -> LanceNamespaceError:
    with pytest.raises(LanceNamespaceError) as caught, translate_errors("do it", path):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


def refused(status: int, code: str, text: str = "no", *, change: bool = False) -> ErrorReply:
    return ErrorReply(status, code, text, change=change)


@pytest.mark.spec("common.md#describetable")
@pytest.mark.parametrize(
    ("code", "kind", "named"),
    [
        ("CATALOG_NOT_FOUND", NamespaceNotFoundError, "c"),
        ("SCHEMA_NOT_FOUND", NamespaceNotFoundError, "c.s"),
        ("TABLE_NOT_FOUND", TableNotFoundError, "c.s.t"),
        ("NOT_FOUND", TableNotFoundError, "c.s.t"),
        ("CATALOG_DOES_NOT_EXIST", NamespaceNotFoundError, "c"),
        ("SCHEMA_DOES_NOT_EXIST", NamespaceNotFoundError, "c.s"),
        ("TABLE_DOES_NOT_EXIST", TableNotFoundError, "c.s.t"),
        ("RESOURCE_DOES_NOT_EXIST", TableNotFoundError, "c.s.t"),
        ("NoSuchCatalogException", NamespaceNotFoundError, "c"),
        ("NoSuchSchemaException", NamespaceNotFoundError, "c.s"),
        ("NoSuchTableException", TableNotFoundError, "c.s.t"),
        ("NotFoundException", TableNotFoundError, "c.s.t"),
        ("NO_SUCH_CATALOG_EXCEPTION", NamespaceNotFoundError, "c"),
        ("TABLE_OR_VIEW_NOT_FOUND", TableNotFoundError, "c.s.t"),
    ],
)
def test_the_level_that_is_missing_is_named(
    code: str, kind: type[LanceNamespaceError], named: str
) -> None:
    error = raised(refused(404, code))
    assert type(error) is kind
    assert f" not found: {named}. " in str(error)


def test_an_old_servers_not_found_is_about_the_namespace_that_was_asked_for() -> None:
    assert " not found: c.s. " in str(raised(refused(404, "NOT_FOUND"), ("c", "s")))


@pytest.mark.parametrize("code", ["METASTORE_DOES_NOT_EXIST", "OTHER"])
def test_a_404_about_something_else_is_never_absence(code: str) -> None:
    assert type(raised(refused(404, code))) is InternalError


@pytest.mark.parametrize("code", ["", "ENDPOINT_NOT_FOUND"])
def test_a_404_of_a_server_without_the_call_is_unsupported(code: str) -> None:
    error = raised(refused(404, code))
    assert type(error) is UnsupportedOperationError
    assert "check host" in str(error)


@pytest.mark.spec("unity.md#renametable")
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "INVALID_ARGUMENT", InvalidInputError),
        (400, "INVALID_PARAMETER_VALUE", InvalidInputError),
        (400, "InvalidParameterValueException", InvalidInputError),
        (401, "", UnauthenticatedError),
        (401, "UNAUTHENTICATED", UnauthenticatedError),
        (401, "NotAuthorizedException", UnauthenticatedError),
        (403, "PERMISSION_DENIED", PermissionDeniedError),
        (403, "PermissionDeniedException", PermissionDeniedError),
        (403, "", PermissionDeniedError),
        (400, "INSUFFICIENT_PERMISSIONS", PermissionDeniedError),
        (409, "ABORTED", ConcurrentModificationError),
        (405, "", UnsupportedOperationError),
        (501, "UNIMPLEMENTED", UnsupportedOperationError),
        (429, "", ThrottlingError),
        (429, "RESOURCE_EXHAUSTED", ThrottlingError),
        (400, "REQUEST_LIMIT_EXCEEDED", ThrottlingError),
        (500, "INTERNAL", ObjectUnavailableError),
        (502, "", ServiceUnavailableError),
        (503, "TEMPORARILY_UNAVAILABLE", ServiceUnavailableError),
        (302, "", InternalError),
    ],
)
def test_answers_are_classified(status: int, code: str, kind: type[LanceNamespaceError]) -> None:
    assert type(raised(refused(status, code))) is kind


def test_databricks_answer_to_a_bad_token_is_unauthenticated() -> None:
    assert type(raised(refused(403, "403", "Invalid access token."))) is UnauthenticatedError


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failing_server_may_have_made_the_change(status: int) -> None:
    error = raised(refused(status, "INTERNAL", change=True))
    assert type(error) is OutcomeUnknownError
    assert "failed to do it, which may have happened or not" in str(error)
    assert "Unity Catalog failed to do it" in str(raised(refused(status, "INTERNAL")))


@pytest.mark.parametrize(
    ("sent", "change", "kind"),
    [
        (True, True, OutcomeUnknownError),
        (False, True, ServiceUnavailableError),
        (True, False, ServiceUnavailableError),
    ],
)
def test_a_lost_request_is_unknown_only_where_it_may_have_changed_something(
    sent: bool, change: bool, kind: type[LanceNamespaceError]
) -> None:
    assert type(raised(LostReply("gone", sent=sent, change=change))) is kind


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "TABLE_ALREADY_EXISTS"),
        (409, "ALREADY_EXISTS"),
        (409, "AlreadyExistsException"),
        (409, "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (400, "RESOURCE_ALREADY_EXISTS"),
    ],
)
def test_duplicates_of_all_dialects_are_what_the_caller_says(status: int, code: str) -> None:
    taken = table_already_exists(TABLE)
    error = refused(status, code)
    with pytest.raises(type(taken)) as caught, translate_errors("make it", TABLE, duplicate=taken):
        raise error
    assert caught.value is taken


@pytest.mark.spec("common.md#dropnamespace")
@pytest.mark.parametrize(
    ("status", "code", "text", "expected"),
    [
        (400, "FAILED_PRECONDITION", "Cannot delete schema with tables", True),
        (409, "SCHEMA_NOT_EMPTY", "", True),
        (400, "INVALID_STATE", "Schema 'c.s' is not empty. The schema has 1 table(s)", True),
        (400, "INVALID_STATE", "storage root is not there", False),
        (500, "INTERNAL", "the queue is not empty", False),
    ],
)
def test_a_refused_delete_of_what_is_not_empty_is_recognised(
    status: int, code: str, text: str, expected: bool
) -> None:
    assert refused(status, code, text).is_not_empty is expected


def test_only_the_first_line_of_a_servers_message_is_kept() -> None:
    error = raised(refused(400, "INVALID_ARGUMENT", "no good\n\tat io.unitycatalog.Server"))
    assert "no good" in str(error)
    assert "io.unitycatalog" not in str(error)
