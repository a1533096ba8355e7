"""How the gateway answers: statuses, errors, what they hide, and headers, over plain HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lance_namespace import errors
from server.http_requests import done, refused, send_rows
from server.serving import serving_namespace

import lance_bridge
from lance_bridge_server import hidden_addresses, secret_values
from lance_bridge_server.errors import STATUS_BY_CODE
from lance_bridge_server.limits import Limits
from lance_bridge_server.operation_threads import OperationThreads, TimeLimit
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.secret_values import SecretValues

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#responses")]

TABLE = "/v1/table/films$t"
Failure = Callable[..., httpx.Response]


@pytest.fixture
def table(http: httpx.Client) -> str:
    """The path of a table with three rows."""
    done(send_rows(http, f"{TABLE}/create"))
    return TABLE


def test_exists_answers_without_a_body(http: httpx.Client, table: str) -> None:
    for path in (table, "/v1/namespace/films"):
        answer = http.post(f"{path}/exists")
        assert (answer.status_code, answer.content) == (200, b"")
    refused(http.post("/v1/table/films$gone/exists"), 404, 4)


def test_what_runs_later_or_is_created_has_its_own_status() -> None:
    statuses = {each.path: each.status for each in OPERATIONS if each.status != 200}
    assert statuses == {
        "/v1/materialized_view/{id}/create": 201,
        "/v1/materialized_view/{id}/refresh": 202,
        "/v1/table/{id}/refresh": 202,
        "/v1/table/{id}/backfill_column": 202,
    }


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(errors.ErrorCode))
def test_each_code_has_its_status_and_keeps_its_message(
    failure: Failure, code: errors.ErrorCode
) -> None:
    error: errors.LanceNamespaceError = errors.from_error_code(code.value, "Table not found: é")
    assert refused(failure(error), STATUS_BY_CODE[code], code.value) == "Table not found: é"


def test_statuses_are_those_of_the_specification() -> None:
    found = {code.value: status for code, status in STATUS_BY_CODE.items()}
    assert found[0] == 406
    assert {found[code] for code in (1, 4, 6, 8, 10, 11, 12, 22)} == {404}
    assert {found[code] for code in (2, 3, 5, 7, 9, 14, 19, 23)} == {409}
    assert {found[code] for code in (13, 20)} == {400}
    assert [found[code] for code in (15, 16, 17, 18, 21)] == [403, 401, 503, 500, 429]


def test_a_fault_of_the_server_is_internal_and_the_log_has_its_cause(
    failure: Failure, caplog: pytest.LogCaptureFixture
) -> None:
    answer = failure(ZeroDivisionError("division by zero"), **{"x-request-id": "r-1"})
    assert "ZeroDivisionError" in refused(answer, 500, 18)
    assert answer.headers["x-request-id"] == "r-1"
    failure(errors.TableNotFoundError("t"), **{"x-request-id": "r-2"})
    assert "Request r-1 failed" in caplog.text
    assert "ZeroDivisionError: division by zero" in caplog.text
    assert "r-2" not in caplog.text


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/table/films$t/describe", f"{TABLE}/vacuum", "/v1/table/t/", "/%00"]
)
def test_an_unknown_route_is_not_found(http: httpx.Client, path: str) -> None:
    refused(http.post(path), 404, 13)


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"]
)
def test_another_method_is_refused_and_changes_nothing(
    http: httpx.Client, table: str, method: str
) -> None:
    for operation in OPERATIONS:
        allowed = {"GET", "HEAD"} if operation.method == "GET" else {"POST"}
        if method in allowed:
            continue
        path = operation.path.format(id="films$t", index_name="i")
        answer = http.request(method, path)
        assert answer.status_code == 405
        assert {*answer.headers["allow"].split(", ")} == allowed
        if method != "HEAD":
            refused(answer, 405, 13)
    done(http.post(f"{table}/exists"))


def test_listings_have_a_head_and_only_read(http: httpx.Client) -> None:
    for operation in OPERATIONS:
        if operation.method == "GET":
            assert operation.is_read
            head = http.head(operation.path.format(id="films"))
            assert (head.status_code, head.content) == (200, b"")


# -- request ids -----------------------------------------------------------------------------------


def test_a_request_keeps_its_id(http: httpx.Client) -> None:
    for path in ("/v1/namespace/$/list", "/v1/namespace/gone/list", "/nowhere"):
        answer = http.get(path, headers={"x-request-id": "r-1"})
        assert answer.headers.get_list("x-request-id") == ["r-1"]


@pytest.mark.parametrize("given", [None, "", "x" * 201, "é", "a\tb"])
def test_a_request_without_a_good_id_gets_one(http: httpx.Client, given: str | None) -> None:
    headers = {} if given is None else {b"x-request-id": given.encode("latin-1")}
    answers = [http.get("/v1/namespace/$/list", headers=headers) for _ in range(2)]
    ids = [each.headers["x-request-id"] for each in answers]
    assert len({*ids, given}) == 3
    assert all(len(each) == 36 for each in ids)


# -- time limits -----------------------------------------------------------------------------------


class Slow:
    """Operations that wait until they may go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.ended = threading.Event()

    def _wait(self, request: Any) -> Any:
        self.begun.release()
        assert self.go_on.wait(30)
        self.ended.set()
        return request

    drop_table = describe_table = _wait


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go_on.set()


def late(
    url: str, operation: str, milliseconds: str = "500", agent: str = "test"
) -> httpx.Response:
    headers = {"x-request-timeout-ms": milliseconds, "user-agent": agent}
    return httpx.post(f"{url}{TABLE}/{operation}", headers=headers, timeout=30)


@pytest.mark.spec("server.md#time-limits")
@pytest.mark.parametrize(
    ("limits", "milliseconds"), [(Limits(), "500"), (Limits(operation_seconds=0.5), "30000")]
)
def test_a_read_that_takes_longer_than_client_or_server_allow_has_changed_nothing(
    slow: Any, limits: Limits, milliseconds: str
) -> None:
    with serving_namespace(slow, limits=limits) as url:
        message = refused(late(url, "describe", milliseconds), 503, 17)
    assert "describe_table did not respond within 0.5 s" in message


@pytest.mark.spec("server.md#time-limits", "server.md#errors-and-repeated-requests")
@pytest.mark.parametrize(("agent", "status"), [("test", 503), ("LanceDB-Test", 424)])
def test_a_write_that_takes_too_long_goes_on_and_keeps_its_thread(
    slow: Any, agent: str, status: int
) -> None:
    """LanceDB's client repeats a request after 503, also one that changes something."""
    with serving_namespace(slow, limits=Limits(threads=1)) as url:
        assert "outcome is unknown" in refused(late(url, "drop", agent=agent), status, 17)
        assert slow.begun.acquire(timeout=30)
        busy = refused(late(url, "drop", agent=agent), 503, 17)
        assert "server is busy; nothing was changed" in busy
        refused(late(url, "describe", agent=agent), 503, 17)
        slow.go_on.set()
        assert slow.ended.wait(30)
        assert not slow.begun.acquire(blocking=False), "the second one was carried out"
        done(late(url, "describe", "30000"))


@pytest.mark.spec("server.md#stop-and-reload")
def test_a_request_that_is_ended_while_it_waits_is_not_carried_out() -> None:
    """The server says of it that nothing was changed."""
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        assert go_on.wait(30)

    async def end_one_of_two() -> None:
        threads, operation = OperationThreads(1), OPERATIONS[0]
        first = asyncio.ensure_future(threads.run(hold, operation, TimeLimit(30)))
        assert await asyncio.to_thread(begun.wait, 30)
        waiting = threads.run(lambda: done.append("second"), operation, TimeLimit(30))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, 0.05)
        go_on.set()
        await first
        await threads.run(lambda: done.append("third"), operation, TimeLimit(30))

    asyncio.run(end_one_of_two())
    assert done == ["third"]


@pytest.mark.spec("server.md#time-limits")
@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "soon", "9" * 16])
def test_a_limit_that_is_no_number_is_invalid_input(http: httpx.Client, text: str) -> None:
    answer = http.post(f"{TABLE}/describe", headers={"x-request-timeout-ms": text})
    refused(answer, 400, 13)


# -- addresses of what is behind the server -------------------------------------------------------


CONFIGURED = {"uri": "thrift://metastore:9083,thrift://hms.internal:9083"}
NOTE = " (the server's log has the addresses)"


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = SecretValues("[address]")
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    known.add(hidden_addresses.hosts_of(directory, CONFIGURED))
    monkeypatch.setattr(hidden_addresses, "HOSTS", known)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("thrift://[::1]:9083: timed out", "[address]: timed out" + NOTE),
        ("call to 10.1.2.3 or [fe80::1]:90 failed", "call to [address] or [address] failed" + NOTE),
        ("HTTPPool(host='m', port=80)", "HTTPPool(host='[address]', port=80)" + NOTE),
        ("metastore:9083, a.b:443", "[address], [address]" + NOTE),
        ("not 'hms.internal' or 'metastore'", "not '[address]' or [address]" + NOTE),
        ("metastore: s3://lake/t.lance of db.t at 12:30:45", None),
    ],
)
@pytest.mark.usefixtures("hosts")
def test_addresses_are_hidden_and_other_texts_stay(
    failure: Failure, error: str, text: str | None
) -> None:
    assert refused(failure(errors.ServiceUnavailableError(error)), 503, 17) == (text or error)


@pytest.mark.parametrize("known", ["thrift://x:9083", "hms.internal"])
@pytest.mark.usefixtures("hosts")
def test_what_the_client_has_sent_is_repeated(failure: Failure, known: str) -> None:
    error: errors.LanceNamespaceError = errors.InvalidInputError(
        "No store: http://mine.example.com:80/x"
    )
    assert "http://mine.example.com:80/x" in refused(failure(error), 400, 13)
    assert known not in refused(failure(errors.InvalidInputError(f"older: {known}")), 400, 13)


def test_settings_of_credentials_are_words_of_answers_and_options_of_vendors_are_not() -> None:
    vendor = {"vendor": "core.vending.NotedVendor", "log": "s3cr3t-of-a-vendor"}
    given = {f"credentials.{key}": value for key, value in vendor.items()}
    storage = {"storage.aws_secret_access_key": "s3cr3t-of-storage", "storage.aws_region": "moon-1"}
    properties = {**given, **storage, "credentials.allowed_roots": "s3://lake/tables"}
    namespace = lance_bridge.connect("hive", {"uri": "thrift://localhost:1", **properties})
    secrets = set(secret_values.secrets_of(namespace, properties))
    assert secrets == {"s3cr3t-of-a-vendor", "s3cr3t-of-storage"}
