"""Health, metrics, traces and lines of the log."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace, errors
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeter
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer, TracerProvider
from prometheus_client.parser import text_string_to_metric_families
from server.conftest import Recorder
from server.gateways import done, refused, send_rows, serve_app, serve_namespace

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server import monitoring
from lance_bridge_server.access.authentication import AuthenticatorChain
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.gateway.breakers import ReadinessSettings
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.http.lifecycle import Process
from lance_bridge_server.monitoring import Metrics
from lance_bridge_server.run.catalogs import check
from lance_bridge_server.run.server import JsonFormatter

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "docs/how-to/monitor.md#tables", "server.md#health", "server.md#metrics-traces-and-logs"
    ),
]

# -- health ----------------------------------------------------------------------------------------


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


DOWN = errors.ServiceUnavailableError(f"no answer from {SECRET}")


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
    with serve_app(create_app(gateway, process)) as url, httpx.Client(base_url=url) as client:
        yield client
    gateway.health.close()


def ready(client: httpx.Client) -> tuple[int, Any]:
    answer = client.get("/readyz")
    return answer.status_code, answer.json()


def test_a_server_lives_whatever_its_catalogs_do() -> None:
    with server({"one": Answering(DOWN)}) as client:
        assert client.get("/v1/namespace/$/list").status_code == 401
        answer = client.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})


@pytest.mark.parametrize(("all_catalogs", "status"), [(False, 200), (True, 503)])
def test_the_catalogs_that_do_not_answer_are_named_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture, *, all_catalogs: bool, status: int
) -> None:
    catalogs = {"one": Answering(), "two": Answering(DOWN), "three": Answering(ValueError("no"))}
    with server(catalogs, all_catalogs=all_catalogs) as client:
        found, content = ready(client)
    states = {"one": "OK", "two": "SERVICE_UNAVAILABLE", "three": "INTERNAL"}
    assert (found, content["catalogs"]) == (status, states)
    assert "catalog 'two' does not respond: no answer from" in caplog.text
    assert "catalog 'three' does not respond" in caplog.text
    assert "ValueError: no" in caplog.text


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_a_server_without_catalogs_that_answer_is_not_ready(names: list[str]) -> None:
    with server({name: Answering(DOWN) for name in names}) as client:
        answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert SECRET not in answer.text
    assert "problems" not in answer.json()  # it had no credentials


@pytest.mark.parametrize(
    "error", [errors.PermissionDeniedError("no"), errors.UnsupportedOperationError("no")]
)
def test_a_catalog_that_refuses_answers(error: Exception) -> None:
    with server({"one": Answering(error)}) as client:
        assert ready(client)[0] == 200
    settings = ServerSettings.model_validate({"catalogs": {"one": {}}})
    (row,) = check(settings, {"one": Answering(error)}, 30)
    assert row["problem"] == ""


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


# -- metrics ---------------------------------------------------------------------------------------


TABLE = "/v1/table/films$t"

Kept = list[tuple[str, str, float, dict[str, Any]]]


def samples(http: httpx.Client) -> dict[tuple[str, ...], float]:
    """Return the metrics: name and values of labels to value."""
    text = http.get("/metrics").text
    return {
        (each.name, *(each.labels[key] for key in sorted(each.labels, reverse=True))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_requests_are_counted_by_operation_and_code(namespace: Any) -> None:
    with serve_namespace(namespace) as url, httpx.Client(base_url=url) as http:
        sent = send_rows(http, f"{TABLE}/create")
        done(sent)
        for _ in range(2):
            refused(http.post("/v1/table/films$gone/describe"), 404, 4)
        http.get("/nowhere")
        found = samples(http)
    requests = "lance_bridge_requests_total"
    assert found[requests, "create_table", "OK"] == 1
    assert found[requests, "describe_table", "TABLE_NOT_FOUND"] == 2
    assert found[requests, "other", "INVALID_INPUT"] == 1
    assert found["lance_bridge_request_seconds_count", "describe_table"] == 2
    assert found["lance_bridge_request_seconds_sum", "create_table"] > 0
    size = len(sent.request.content)
    assert found["lance_bridge_received_bytes_total", "create_table"] == size
    assert found["lance_bridge_sent_bytes_total", "create_table"] == len(sent.content)
    assert found["lance_bridge_requests_in_flight",] == 1  # this one
    assert found["process_resident_memory_bytes",] > 0


def test_metrics_name_no_objects_and_no_principals(http: httpx.Client) -> None:
    for name in ("secret_films", "hidden"):
        http.post(f"/v1/table/{name}$t/describe", headers={"x-api-key": "lbk_key"})
    text = http.get("/metrics").text
    assert not any(each in text for each in ("secret_films", "hidden", "lbk_key", "anonymous"))


def test_metrics_need_credentials_unless_they_are_anonymous(namespace: Any) -> None:
    for is_open in (False, True):
        with serve_namespace(
            namespace, authenticator=AuthenticatorChain([]), anonymous_metrics=is_open
        ) as url:
            answer = httpx.get(f"{url}/metrics")
        if is_open:
            assert answer.headers["content-type"].startswith("text/plain")
        else:
            refused(answer, 401, 16)


# -- metrics of OpenTelemetry ----------------------------------------------------------------------


class Instrument:
    """Keeps what is recorded, by name and attributes."""

    def __init__(self, kept: Kept, name: str, unit: str) -> None:
        self._kept = kept
        self._key = (name, unit)

    def record(self, value: float, attributes: dict[str, Any]) -> None:
        self._kept.append((*self._key, value, attributes))

    add = record


class KeepingMeter(NoOpMeter):
    """An SDK that keeps its measurements."""

    def __init__(self) -> None:
        super().__init__("test")
        self.kept: Kept = []

    def create_histogram(self, name: str, unit: str = "", *_: Any, **__: Any) -> Any:
        return Instrument(self.kept, name, unit)

    create_up_down_counter: Any = create_histogram


@pytest.mark.usefixtures("namespace")
def test_requests_are_measured_by_the_conventions_of_opentelemetry(gateway: Gateway) -> None:
    meter = KeepingMeter()
    process = Process(metrics=Metrics(meter))
    with serve_app(create_app(gateway, process)) as url, httpx.Client(base_url=url) as client:
        sent = send_rows(client, f"{TABLE}/create")
        client.request("PROPFIND", "/nowhere")
    request = {"http.request.method": "POST", "url.scheme": "http"}
    result = {
        "lance.operation": "create_table",
        "lance.code": "OK",
        "http.route": "/v1/table/{id}/create",
        "http.response.status_code": 200,
    }
    mine = [each for each in meter.kept if each[-1]["http.request.method"] == "POST"]
    begun, ended, (name, unit, seconds, attributes), *sizes = mine
    assert begun == ("http.server.active_requests", "{request}", 1, request)
    assert ended == ("http.server.active_requests", "{request}", -1, request)
    assert (name, unit, attributes) == ("http.server.request.duration", "s", request | result)
    assert 0 < seconds < 60
    assert sizes == [
        ("http.server.request.body.size", "By", len(sent.request.content), request | result),
        ("http.server.response.body.size", "By", len(sent.content), request | result),
    ]
    [other] = (each[-1] for each in meter.kept if "other" in each[-1].values() and each[1] == "s")
    assert other["http.request.method"] == "_OTHER"


# -- traces ----------------------------------------------------------------------------------------


class Span(NonRecordingSpan):
    """A span that keeps what is recorded."""

    def __init__(self, parent: SpanContext) -> None:
        mine = SpanContext(parent.trace_id or 7, 0xABC, False, trace.TraceFlags(1))
        super().__init__(mine)
        self.parent = parent
        self.name = ""
        self.attributes: dict[str, Any] = {}
        self.status: Any = None
        self.has_ended = False

    def is_recording(self) -> bool:
        return True

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:  # noqa: ARG002 - of the class
        self.status = status

    def end(self, end_time: int | None = None) -> None:  # noqa: ARG002 - of the class
        self.has_ended = True


class Provider(TracerProvider, Tracer):
    """An SDK that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:
        return self

    def start_span(self, name: str, context: Any = None, *_: Any, **__: Any) -> Span:  # noqa: ARG002 - of the class
        self.spans.append(Span(trace.get_current_span(context).get_span_context()))
        return self.spans[-1]

    start_as_current_span: Any = None


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    provider = Provider()
    monkeypatch.setattr(monitoring, "_TRACER", provider)
    return provider.spans


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_request_is_a_span_of_the_clients_trace(
    gateway: Gateway, namespace: Recorder, spans: list[Span]
) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    # The span ends after the answer was sent: before the server has stopped, but maybe not sooner.
    with serve_app(create_app(gateway)) as url:
        refused(httpx.post(f"{url}{TABLE}/describe", headers=headers), 404, 4)
    [span] = spans
    assert format(span.parent.span_id, "x") == "b7ad6b7169203331"
    assert (span.name, span.has_ended, span.status) == ("describe_table", True, None)
    assert span.attributes == {
        "lance.operation": "describe_table",
        "lance.code": "TABLE_NOT_FOUND",
        "http.route": "/v1/table/{id}/describe",
        "http.response.status_code": 404,
    }
    # What the catalog is sent makes its spans children of this one.
    passed_on = namespace.requests[-1].context["header.traceparent"]
    assert passed_on == "00-0af7651916cd43dd8448eb211c80319c-0000000000000abc-01"


def test_a_failure_of_the_server_is_an_error_of_the_span(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, spans: list[Span]
) -> None:
    monkeypatch.setattr(gateway, "run", None)
    with serve_app(create_app(gateway)) as url:
        refused(httpx.post(f"{url}{TABLE}/describe"), 500, 18)
    assert spans[0].status is trace.StatusCode.ERROR
    assert spans[0].attributes["lance.code"] == "INTERNAL"


# -- logs ------------------------------------------------------------------------------------------


def test_lines_of_the_log_have_the_request(namespace: Any) -> None:
    lines: list[dict[str, Any]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    class Logging:
        def describe_table(self, request: Any) -> Any:
            log.warning("described with password=hidden")
            return namespace.describe_table(request)

    log = logging.getLogger("lance_bridge.test")
    log.addHandler(handler := Kept())
    service: Any = Logging()
    with serve_namespace(service) as url:
        httpx.post(f"{url}{TABLE}/describe", headers={"x-request-id": "r-1"})
    log.removeHandler(handler)
    [line] = lines
    assert (line["request_id"], line["level"]) == ("r-1", "warning")
    assert line["message"] == "described with password=***"
