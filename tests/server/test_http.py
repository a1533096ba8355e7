"""Requests and answers over plain HTTP: identifiers, bodies, headers, statuses and errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from lance_namespace import errors
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import ROWS, done, refused, send_rows, serve_namespace

import lance_bridge
from lance_bridge.testing.calls import ipc
from lance_bridge_server import redaction
from lance_bridge_server.errors import STATUS_BY_CODE
from lance_bridge_server.gateway.limits import Limits
from lance_bridge_server.gateway.threads import OperationThreads, TimeLimit
from lance_bridge_server.operations import OPERATIONS
from lance_bridge_server.redaction import SecretValues

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#requests", "server.md#responses")]

TABLE = "/v1/table/films$t"
JSON = {"Content-Type": "application/json"}
Failure = Callable[..., httpx.Response]


def create(http: httpx.Client, path: str = TABLE) -> None:
    done(send_rows(http, f"{path}/create"))


# -- identifiers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "delimiter"),
    [
        ("films$t", None),
        ("films%24t", None),
        ("films%24t", "$"),
        ("films.t", "."),
        ("films::t", "::"),
        ("films%3A%3At", "::"),
        ("films%2Ft", "/"),
        ("%66ilms$%74", "$"),
        ("films$t", ""),
    ],
)
def test_names_are_split_at_the_delimiter(
    http: httpx.Client, namespace: Any, path: str, delimiter: str | None
) -> None:
    create(http)
    query = {} if delimiter is None else {"delimiter": delimiter}
    for slash in ("", "/", "//"):
        done(http.post(f"/v1/table/{path}/describe{slash}", params=query))
        assert namespace.requests[-1].id == ["films", "t"]


@pytest.mark.parametrize(("path", "delimiter"), [("$", None), ("%24", "$"), ("::", "::")])
def test_the_delimiter_alone_is_the_root(
    http: httpx.Client, path: str, delimiter: str | None
) -> None:
    query = {} if delimiter is None else {"delimiter": delimiter}
    answer = http.get(f"/v1/namespace/{path}/list", params=query)
    assert done(answer) == {"namespaces": ["films"]}


@pytest.mark.parametrize(
    ("delimiter", "name"), [(None, "films$t"), ("$", "films$t"), (".", "films.t"), ("/", "films/t")]
)
def test_names_of_all_tables_are_joined_by_the_delimiter(
    http: httpx.Client, delimiter: str | None, name: str
) -> None:
    create(http)
    query = {} if delimiter is None else {"delimiter": delimiter}
    assert done(http.get("/v1/table", params=query)) == {"tables": [name]}


@pytest.mark.parametrize(
    "path",
    [
        "films$a%2Fb",
        "films$..",
        "films$%2E%2E",
        "films$a%00b",
        "films$",
        "$t",
        "films$$t",
        "films$t$",
        "$$",
        "films",
        "$",
        "films$a%0D%0Ab",
        "films$" + "t" * 5000,
        "films$a%252Fb",
        "films$%F0%9F%A6%86",
        "films$.",
        "films$..%2F..%2Fetc",
        "films%24%2Fetc%2Fpasswd",
        "films$a%5Cb",
        "films$a%7Fb",
        "films$%E2%80%AE",
        "films$a$b$c$d",
        "..%2F..",
        "%2e%2e%2f%2e%2e",
    ],
)
def test_a_name_that_the_catalog_cannot_have_is_invalid_input(
    http: httpx.Client, tmp_path: Path, path: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    for operation in ("describe", "drop", "exists", "declare", "count_rows", "tags/list"):
        refused(http.post(f"/v1/table/{path}/{operation}"), 400, 13)
    refused(send_rows(http, f"/v1/table/{path}/create"), 400, 13)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_that_is_not_utf_8_is_invalid_input(http: httpx.Client) -> None:
    assert "UTF-8" in refused(http.post("/v1/table/films$%FF/describe"), 400, 13)
    answer = http.post(f"{TABLE}/index/%C3%28/stats")
    assert "index_name" in refused(answer, 400, 13)


@pytest.mark.parametrize(
    "path", ["/v1/table/x/../films$t/drop", "/v1//table/films$t/drop", "/V1/table/films$t/drop"]
)
def test_dots_and_slashes_reach_no_other_route(http: httpx.Client, path: str) -> None:
    create(http)
    connection = HTTPConnection(http.base_url.host, http.base_url.port)  # sends paths as they are
    connection.request("POST", path)
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["code"]) == (404, 13)
    connection.close()
    done(http.post(f"{TABLE}/exists"))


def test_an_id_in_the_body_must_be_that_of_the_path(http: httpx.Client) -> None:
    create(http)
    for given in (["films", "t"], None, []):
        body = {"id": given}
        done(http.post(f"{TABLE}/describe", json=body))
    for wrong in (["films", "u"], ["films$t"], "films$t", ["films", "t", ""]):
        assert "id" in refused(http.post(f"{TABLE}/drop", json={"id": wrong}), 400, 13)
    done(http.post(f"{TABLE}/exists"))


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    ["describe", "exists", "stats", "count_rows", "tags/list", "version/list", "branches/list",
     "index/list", "drop"],
)  # fmt: skip
def test_a_body_may_be_left_out_where_the_path_says_all(http: httpx.Client, operation: str) -> None:
    create(http)
    request = http.build_request("POST", f"{TABLE}/{operation}")
    assert "content-type" not in request.headers
    done(http.send(request))


@pytest.mark.parametrize("operation", ["describe", "version/list"])
def test_null_is_no_body(http: httpx.Client, operation: str) -> None:
    create(http)
    done(http.post(f"{TABLE}/{operation}", content=b"null", headers=JSON))
    refused(http.post(f"{TABLE}/update", content=b"null", headers=JSON), 400, 13)


def test_a_body_is_read_where_older_clients_send_one(http: httpx.Client, namespace: Any) -> None:
    create(http)
    done(http.post(f"{TABLE}/version/list", json={"id": ["films", "t"], "limit": 1}))
    assert namespace.requests[-1].limit == 1


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"films"',
        b'{"version": "1"}',
        b'{"version": 1.5}',
        b'{"version": true}',
        b'{"version": [1]}',
    ],
)
def test_a_body_that_is_not_the_request_is_invalid_input(http: httpx.Client, body: bytes) -> None:
    create(http)
    refused(http.post(f"{TABLE}/describe", content=body, headers=JSON), 400, 13)


def test_numbers_without_a_fraction_are_integers(http: httpx.Client, namespace: Any) -> None:
    create(http)
    done(http.post(f"{TABLE}/describe", content=b'{"version": 1.0}', headers=JSON))
    assert namespace.requests[-1].version == 1


def test_a_query_may_have_null_for_its_vector(http: httpx.Client, namespace: Any) -> None:
    create(http)
    query = {"vector": None, "k": 10, "filter": "id > 0"}
    assert http.post(f"{TABLE}/query", json=query).status_code == 200
    done(http.post(f"{TABLE}/explain_plan", json={"query": query}))
    assert namespace.requests[-1].query.filter == "id > 0"
    refused(http.post(f"{TABLE}/query", json={"k": 10}), 400, 13)


def test_a_change_needs_the_body_that_the_specification_has(http: httpx.Client) -> None:
    create(http)
    for operation in ("deregister", "update", "delete", "tags/create", "schema_metadata/update"):
        assert "body is missing" in refused(http.post(f"{TABLE}/{operation}"), 400, 13)
    assert "on" in refused(send_rows(http, f"{TABLE}/merge_insert"), 400, 13)
    done(http.post(f"{TABLE}/exists"))


def test_fields_of_later_releases_are_ignored(http: httpx.Client) -> None:
    create(http)
    done(http.post(f"{TABLE}/describe", json={"of_a_later_release": {"a": 1}}))


@pytest.mark.spec("server.md#responses")
@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_media_type_is_refused(http: httpx.Client, media_type: str) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = http.post(f"{TABLE}/describe", content=b"{}", headers=headers)
    assert "application/json" in refused(answer, 415, 13)
    answer = http.post(f"{TABLE}/create", content=ipc(ROWS), headers=headers)
    assert "arrow.stream" in refused(answer, 415, 13)
    answer = http.post(f"{TABLE}/create", json={"id": ["films", "t"]})
    assert "application/json" in refused(answer, 415, 13)


def test_a_media_type_may_have_parameters(http: httpx.Client) -> None:
    create(http)
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    done(http.post(f"{TABLE}/describe", content=b" {} ", headers=headers))


@pytest.mark.spec("server.md#responses")
def test_a_body_that_is_too_large_is_refused(http: httpx.Client) -> None:
    body = {"id": ["films", "t" * (1 << 16)]}
    assert "65536" in refused(http.post(f"{TABLE}/describe", json=body), 413, 13)


def test_metadata_of_a_schema_is_a_bare_map_both_ways(http: httpx.Client) -> None:
    create(http)
    metadata = {"owner": "ada", "id": "x", "limit": "y", "metadata": "z"}
    assert done(http.post(f"{TABLE}/schema_metadata/update", json=metadata)) == metadata


# -- queries ---------------------------------------------------------------------------------------


def test_describe_takes_options_in_the_query_and_in_the_body(
    http: httpx.Client, namespace: Any
) -> None:
    create(http)
    both = {"query": "?with_table_uri=true&check_declared=false", "body": {"with_table_uri": True}}
    found = done(http.post(f"{TABLE}/describe{both['query']}", json=both["body"]))
    assert found["table_uri"]
    assert namespace.requests[-1].check_declared is False
    assert done(http.post(f"{TABLE}/describe?with_table_uri=true"))["table_uri"]
    assert "table_uri" not in done(http.post(f"{TABLE}/describe?with_table_uri=false"))
    for query, body in (("true", False), ("false", True)):
        answer = http.post(
            f"{TABLE}/describe?with_table_uri={query}", json={"with_table_uri": body}
        )
        assert done(answer)["table_uri"]
    answer = http.post(f"{TABLE}/describe?version=1", json={"version": 2})
    assert "version" in refused(answer, 400, 13)


@pytest.mark.parametrize(
    "query",
    [
        "limit=x", "limit=", "limit=1.0", "limit=1_0", "limit=%20 1", "limit=+1", "limit=0",
        "limit=-1", "limit=1&limit=2", "limit=" + "9" * 400, "limit=%D9%A1",
        "descending=yes", "descending=True", "descending=1", "descending=",
        "page_token=nonsense", "page_token=%FF", "unknown=%FF", "delimiter=$&delimiter=.",
        "&".join(f"p{number}=1" for number in range(1001)),
    ],
)  # fmt: skip
def test_a_parameter_of_another_form_is_invalid_input(http: httpx.Client, query: str) -> None:
    create(http)
    refused(http.post(f"{TABLE}/version/list?{query}"), 400, 13)


@pytest.mark.parametrize("text", ["{", "[]", '"a"', "", '{"a": NaN}', '{"a": 1}'])
def test_a_map_of_another_form_is_invalid_input(
    http: httpx.Client, namespace: Any, text: str
) -> None:
    answer = send_rows(http, f"{TABLE}/create", params={"properties": text})
    assert "properties" in refused(answer, 400, 13)
    assert not namespace.requests


# -- headers ---------------------------------------------------------------------------------------


def test_create_takes_location_and_properties_from_headers(
    http: httpx.Client, tmp_path: Any
) -> None:
    place = str(tmp_path / "elsewhere")
    headers = {
        "x-lance-table-location": place,
        "x-lance-table-properties": json.dumps({"owner": "ada"}),
    }
    made = done(send_rows(http, f"{TABLE}/create", headers=headers))
    assert made["location"] == place
    found = done(http.post(f"{TABLE}/describe"))
    assert (found["location"], found["properties"]["owner"]) == (place, "ada")
    refused(send_rows(http, f"{TABLE}/create", headers=headers), 409, 5)
    done(send_rows(http, f"{TABLE}/create?mode=exist_ok", headers=headers))
    other = {"x-lance-table-location": str(tmp_path / "other")}
    answer = send_rows(http, f"{TABLE}/create?mode=overwrite", headers=other)
    assert place in refused(answer, 400, 13)


def test_create_at_a_location_completes_a_declaration_that_only_it_may_take_over(
    http: httpx.Client, tmp_path: Any
) -> None:
    headers = {"x-lance-table-location": str(tmp_path / "elsewhere")}
    declare = {"location": headers["x-lance-table-location"]}
    done(http.post(f"{TABLE}/declare", json=declare))
    assert "declared" in refused(http.post(f"{TABLE}/declare", json=declare), 409, 5)
    other = {"x-lance-table-location": str(tmp_path / "other")}
    refused(send_rows(http, f"{TABLE}/create", headers=other), 409, 5)
    made = done(send_rows(http, f"{TABLE}/create", headers=headers))
    assert made["location"] == declare["location"]
    assert done(http.post(f"{TABLE}/count_rows", json={})) == 3


def test_an_unknown_state_of_a_declared_table_is_not_an_existing_table(
    http: httpx.Client, namespace: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"x-lance-table-location": str(tmp_path / "elsewhere")}
    declare = {"location": headers["x-lance-table-location"]}
    done(http.post(f"{TABLE}/declare", json=declare))

    def describe_table(_: Any) -> None:
        raise ServiceUnavailableError("The storage does not respond")

    with monkeypatch.context() as patch:
        patch.setattr(namespace, "describe_table", describe_table, raising=False)
        refused(send_rows(http, f"{TABLE}/create", headers=headers), 503, 17)
    done(send_rows(http, f"{TABLE}/create", headers=headers))


def test_headers_and_query_of_create_must_agree(http: httpx.Client) -> None:
    query = {"properties": json.dumps({"owner": "ada"})}
    headers = {"x-lance-table-properties": json.dumps({"owner": "eve"})}
    answer = send_rows(http, f"{TABLE}/create", params=query, headers=headers)
    assert "properties" in refused(answer, 400, 13)
    headers = {"x-lance-table-properties": "owner=ada"}
    assert "JSON" in refused(send_rows(http, f"{TABLE}/create", headers=headers), 400, 13)


def test_credentials_in_a_body_do_not_reach_the_catalog(http: httpx.Client, namespace: Any) -> None:
    create(http)
    secret = {"identity": {"api_key": "s3cret"}, "context": {"header.Authorization": "s3cret"}}
    done(http.post(f"{TABLE}/describe", json=secret))
    assert namespace.requests[-1].identity is None
    assert "s3cret" not in repr(namespace.requests[-1])


def test_storage_options_of_a_request_do_not_reach_the_catalog(
    http: httpx.Client, namespace: Any
) -> None:
    """Lance would send what signs the server's requests, and the rows, to the client's endpoint."""
    query = {"storage_options": json.dumps({"aws_endpoint": "http://client.example"})}
    done(send_rows(http, f"{TABLE}/create", params=query))
    assert namespace.requests[-1].storage_options is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "file://"])
def test_web_pages_of_other_origins_change_nothing(http: httpx.Client, origin: str) -> None:
    create(http)
    page = {"Origin": origin}
    refused(http.post(f"{TABLE}/drop", headers=page), 403, 15)
    done(http.post(f"{TABLE}/describe", headers=page))
    done(http.post(f"{TABLE}/drop", headers={"Origin": str(http.base_url).rstrip("/")}))


def _multi_match(boost: Any) -> dict[str, Any]:
    return {"query": {"multi_match": {"query": "a", "columns": ["word"], "boost": boost}}}


def _new_type(data_type: Any) -> dict[str, Any]:
    return {"alterations": [{"path": "word", "data_type": data_type}]}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("query", {"vector": [], "k": 1, "full_text_query": _multi_match(5)}),
        ("query", {"vector": [], "k": 1, "full_text_query": _multi_match({"word": 5})}),
        ("query", {"vector": [], "k": 1, "full_text_query": _multi_match([5, 5])}),
        ("alter_columns", _new_type({"type": []})),
        ("alter_columns", _new_type({"type": {"type": "utf8"}})),
        ("alter_columns", _new_type({"type": "struct", "fields": [1]})),
        ("alter_columns", _new_type({"type": "struct", "fields": {"a": 1}})),
        ("alter_columns", _new_type({"type": "struct", "fields": [{"name": "a"}]})),
        ("alter_columns", _new_type({"type": "struct", "fields": [{"name": "a", "type": "utf8"}]})),
    ],
)
def test_malformed_requests_of_lancedb_are_invalid_input(
    http: httpx.Client, operation: str, body: dict[str, Any]
) -> None:
    create(http)
    agent = {"user-agent": "lancedb-python/1", "x-lancedb-database": "films"}
    refused(http.post(f"/v1/table/t/{operation}", json=body, headers=agent), 400, 13)


def test_two_databases_and_printed_queries_of_lancedb_are_refused(http: httpx.Client) -> None:
    create(http)
    agent = [("user-agent", "lancedb-python/1"), ("x-lancedb-database", "films")]
    text = {"query": 'PhraseQuery { column: Some("word"), terms: "a b" }'}
    body = {"vector": [], "k": 1, "full_text_query": text}
    refused(http.post("/v1/table/t/query", json=body, headers=agent), 406, 0)
    twice = [*agent, ("x-lancedb-database", "others")]
    answer = http.post("/v1/table/t/describe", json={}, headers=twice)
    assert "several times" in refused(answer, 400, 13)


def test_the_trace_and_the_request_id_are_passed_on(http: httpx.Client, namespace: Any) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": trace, "tracestate": "a=b", "x-request-id": "r-1"}
    done(http.get("/v1/namespace/$/list", headers=headers))
    assert namespace.requests[-1].context == {
        "header.traceparent": trace,
        "header.tracestate": "a=b",
        "header.x-request-id": "r-1",
    }


# -- answers ---------------------------------------------------------------------------------------


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
    "path", ["/v1", "/v2/table/films$t/describe", f"{TABLE}/vacuum", "/v1/table/t/", "/%00"]
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
    with serve_namespace(slow, limits=limits) as url:
        message = refused(late(url, "describe", milliseconds), 503, 17)
    assert "describe_table did not respond within 0.5 s" in message


@pytest.mark.spec("server.md#time-limits", "server.md#errors-and-repeated-requests")
@pytest.mark.parametrize(("agent", "status"), [("test", 503), ("LanceDB-Test", 424)])
def test_a_write_that_takes_too_long_goes_on_and_keeps_its_thread(
    slow: Any, agent: str, status: int
) -> None:
    """LanceDB's client repeats a request after 503, also one that changes something."""
    with serve_namespace(slow, limits=Limits(threads=1)) as url:
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
        threads, operation = OperationThreads(1, 9), OPERATIONS[0]
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
    known.add(redaction.hosts_of(directory, CONFIGURED))
    monkeypatch.setattr(redaction, "HOSTS", known)


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
    vendor = {"vendor": "core.memory_catalog.NotedVendor", "log": "s3cr3t-of-a-vendor"}
    given = {f"credentials.{key}": value for key, value in vendor.items()}
    storage = {"storage.aws_secret_access_key": "s3cr3t-of-storage", "storage.aws_region": "moon-1"}
    properties = {**given, **storage, "credentials.allowed_roots": "s3://lake/tables"}
    namespace = lance_bridge.connect("hive", {"uri": "thrift://localhost:1", **properties})
    secrets = set(redaction.secrets_of(namespace, properties))
    assert secrets == {"s3cr3t-of-a-vendor", "s3cr3t-of-storage"}
