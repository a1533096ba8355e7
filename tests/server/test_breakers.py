"""The breaker of each catalog: what is down neither is called nor slows what is up."""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError
from prometheus_client.parser import text_string_to_metric_families
from server.gateways import done, refused, serve_app
from servers.processes import wait_until

from lance_bridge_doctor import Diagnosis
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.breakers import CatalogState, ReadinessSettings, RunningReads
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.gateway.limits import Limits
from lance_bridge_server.queries.runs import Run
from lance_bridge_server.run.server import ReloadingApp
from lance_bridge_server.ui import health_page

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#health")]

T = TypeVar("T")

TIMEOUT = 0.3
until = partial(wait_until, seconds=20.0, every=0.02)


class Breakable(LanceNamespace):
    """A catalog that answers, hangs or fails."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.error: Exception | None = None
        self.table_error: Exception | None = None
        self.described = 0

    def namespace_id(self) -> str:
        return "breakable"

    def _answer(self) -> None:
        assert self.answers.wait(30)
        if self.error is not None:
            raise self.error

    def list_namespaces(self, request: Any) -> Any:  # noqa: ARG002
        self._answer()
        return api.ListNamespacesResponse(namespaces=[])

    def create_namespace(self, request: Any) -> Any:  # noqa: ARG002
        self._answer()
        return api.CreateNamespaceResponse()

    def list_tables(self, request: Any) -> Any:  # noqa: ARG002
        self._answer()
        return api.ListTablesResponse(tables=["t"])

    def describe_table(self, request: Any) -> Any:  # noqa: ARG002
        self.described += 1
        self._answer()
        if self.table_error is not None:
            raise self.table_error
        return api.DescribeTableResponse(location="file:///t.lance")


@contextmanager
def served(
    catalogs: Mapping[str, LanceNamespace],
    root: LanceNamespace | None = None,
    timeout: float = TIMEOUT,
    **settings: Any,
) -> Iterator[httpx.Client]:
    gateway = Gateway(
        root or FederatedNamespace(catalogs),
        **settings,
        catalogs=catalogs,
        readiness=ReadinessSettings(timeout=timeout, keep=0.001),
        limits=Limits(threads=8),
    )
    with serve_app(create_app(gateway)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client
    gateway.health.close()


@pytest.fixture
def catalogs() -> Iterator[dict[str, Breakable]]:
    made = {"up": Breakable(), "down": Breakable()}
    yield made
    for each in made.values():
        each.answers.set()


def describe(client: httpx.Client, catalog: str = "down", table: str = "t") -> httpx.Response:
    return client.post(f"/v1/table/{catalog}${table}/describe", json={})


def is_refused(client: httpx.Client) -> bool:
    return "tried again every half second" in describe(client).text


def test_a_catalog_that_fails_is_not_called_until_it_responds_again(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs) as client:
        done(describe(client))
        down.error = ServiceUnavailableError("no answer")
        until(lambda: is_refused(client))
        calls = down.described
        answer = describe(client)
        assert "'down' does not respond" in refused(answer, 503, 17)
        assert answer.headers["retry-after"] == "1"
        assert down.described == calls
        done(describe(client, "up"))
        states = client.get("/readyz").json()["catalogs"]
        assert states == {"up": "OK", "down": "SERVICE_UNAVAILABLE"}
        listed = client.get("/v1/table").json()
        assert listed["tables"] == ["up$t"]
        assert "does not respond" in listed["context"]["unavailable.down"]
        assert down.described == calls
        down.error = None
        until(lambda: describe(client).status_code == 200)
        assert client.get("/readyz").json()["catalogs"] == {"up": "OK", "down": "OK"}


def gauges(client: httpx.Client) -> dict[str, float]:
    """Return the metric of each catalog."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    [family] = [each for each in families if each.name == "lance_bridge_catalog_up"]
    return {each.labels["catalog"]: each.value for each in family.samples}


@pytest.mark.spec("server.md#metrics-traces-and-logs", "server.md#health-on-a-page")
def test_readyz_metrics_and_the_page_say_the_same(catalogs: dict[str, Breakable]) -> None:
    down = catalogs["down"]
    with served(catalogs) as client:
        assert gauges(client) == {"up": 1, "down": 1}
        assert "problems" not in client.get("/readyz").json()
        down.error = ServiceUnavailableError("thrift://host:9083 refuses the connection")
        until(lambda: is_refused(client))
        assert gauges(client) == {"up": 1, "down": 0}
        ready = client.get("/readyz").json()
        [(name, problem)] = ready["problems"].items()
        assert name == "down"
        age = datetime.now(timezone.utc) - datetime.fromisoformat(problem["since"])
        assert age < timedelta(seconds=60)
        assert "refuses the connection" in problem["error"]
        assert "host" not in problem["error"]
        page = html.unescape(client.get("/ui/health").text)
        assert "down has not responded since " in page
        assert problem["error"] in page
        down.error = None
        until(lambda: gauges(client) == {"up": 1, "down": 1})
        assert "problems" not in client.get("/readyz").json()
        assert "not responded" not in client.get("/ui/health").text


class HidesDown(AllowAll):
    """Shows nobody the catalog ``down``."""

    def filter(self, principal: Any, action: str, paths: Sequence[Any]) -> list[Any]:
        return [each for each in super().filter(principal, action, paths) if each[0] != "down"]


@pytest.mark.spec("server.md#hidden-objects")
def test_why_a_hidden_catalog_does_not_respond_is_hidden(catalogs: dict[str, Breakable]) -> None:
    for each in catalogs.values():
        each.error = ServiceUnavailableError("no answer")
    with served(catalogs, authorizer=HidesDown()) as client:
        assert list(client.get("/readyz").json()["problems"]) == ["up"]
        page = shown(client, "/ui/health")
        assert "up has not responded since" in page
        assert "down has not responded since" not in page


def test_what_only_a_probe_finds_is_refused_to_calls_as_well(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs) as client:
        down.error = ServiceUnavailableError("no answer")
        assert client.get("/readyz").json()["catalogs"]["down"] == "SERVICE_UNAVAILABLE"
        until(lambda: client.get("/v1/table").json()["tables"] == ["up$t"])
        refused(describe(client), 503, 17)
        assert down.described == 0


# -- requests about several catalogs ---------------------------------------------------------------


GENEROUS = 3.0
"""Seconds; one on a machine that is not busy. Less than the catalogs of `several` would take one
after the other, and much less than the timeout of their server."""


def seconds_of(work: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    return work(), time.monotonic() - began


def shown(client: httpx.Client, path: str) -> str:
    return html.unescape(client.get(path).text)


@pytest.fixture
def several(catalogs: dict[str, Breakable]) -> Iterator[httpx.Client]:
    """A server of catalogs that have responded, and would be waited for for long."""
    catalogs |= {f"{name}_down": Breakable() for name in ("also", *"abcdef")}
    with served(catalogs, timeout=20) as client:
        assert shown(client, "/ui").count("unreachable") == 0
        yield client
        for each in catalogs.values():
            each.answers.set()


@pytest.mark.spec("server.md#the-catalog-page")
def test_the_first_search_after_a_catalog_hangs_names_it(
    several: httpx.Client, catalogs: dict[str, Breakable]
) -> None:
    catalogs["down"].answers.clear()
    catalogs["also_down"].answers.clear()
    page, seconds = seconds_of(lambda: shown(several, "/ui/search?q=t"))
    assert "up.t" in page
    assert "Could not search down: 'down' did not respond" in page
    assert "Could not search also_down" in page
    assert seconds < GENEROUS


def test_the_first_listing_after_catalogs_hang_names_them(
    several: httpx.Client, catalogs: dict[str, Breakable]
) -> None:
    down = {name for name in catalogs if "down" in name}
    for each in down:
        catalogs[each].answers.clear()
    listed, seconds = seconds_of(lambda: several.get("/v1/table").json())
    assert listed["tables"] == ["up$t"]
    left_out = {key for key in listed["context"] if key.startswith("unavailable.")}
    assert left_out == {f"unavailable.{name}" for name in down}
    assert seconds < GENEROUS


@pytest.mark.parametrize("reloads", [False, True])
def test_catalogs_are_probed_before_the_first_request(
    catalogs: dict[str, Breakable], reloads: bool
) -> None:
    settings = ReadinessSettings(timeout=TIMEOUT, keep=0.001)

    def make() -> Gateway:
        return Gateway(FederatedNamespace(catalogs), catalogs=catalogs, readiness=settings)

    first, second = make(), make()
    if not reloads:
        catalogs["down"].answers.clear()
    app = ReloadingApp(first, lambda: second)
    with serve_app(app) as url:
        if reloads:
            catalogs["down"].answers.clear()
            asyncio.run(app.reload())
        until(lambda: (second if reloads else first).health.catalogs["down"].is_open)
        assert httpx.get(f"{url}/v1/table").json()["tables"] == ["up$t"]
    second.health.close()


def test_an_outage_does_not_make_the_next_one_be_noticed_late(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs, timeout=1.1 * GENEROUS) as client:
        done(client.get("/v1/table"))
        down.answers.clear()
        until(lambda: is_refused(client))
        down.answers.set()
        until(lambda: describe(client).status_code == 200)
        down.answers.clear()
        listed, seconds = seconds_of(lambda: client.get("/v1/table").json())
        assert "unavailable.down" in listed["context"]
        assert seconds < GENEROUS
        down.answers.set()


@pytest.mark.spec("server.md#the-catalog-page")
def test_the_first_page_after_a_catalog_hangs_names_it(
    several: httpx.Client, catalogs: dict[str, Breakable]
) -> None:
    catalogs["down"].answers.clear()
    page, seconds = seconds_of(lambda: shown(several, "/ui"))
    tree, rest = page.split("<main")
    for part, between in ((tree, " "), (rest, r"</th>\s*<td>")):
        assert part.count("unreachable") == 1
        assert re.search(rf">down</a>{between}<span[^>]*>unreachable<", part)
    assert seconds < GENEROUS
    page, seconds = seconds_of(lambda: shown(several, "/ui/namespace/up"))
    assert re.search(r">down</a> <span[^>]*>unreachable<", page)
    assert page.count("unreachable") == 1
    assert seconds < GENEROUS


class SlowListing(Breakable):
    """A catalog that responds, but takes long for listings of tables."""

    def list_tables(self, request: Any) -> Any:
        time.sleep(1.5)
        return super().list_tables(request)


def test_a_catalog_that_takes_long_is_waited_for_if_it_responds(
    catalogs: dict[str, Breakable],
) -> None:
    with served({**catalogs, "slow": SlowListing()}, timeout=2.0) as client:
        assert client.get("/readyz").status_code == 200
        assert "slow$t" in client.get("/v1/table").json()["tables"]
        assert "slow.t" in shown(client, "/ui/search?q=t")


def test_a_search_of_the_only_catalog_ends_when_it_hangs(catalogs: dict[str, Breakable]) -> None:
    down = catalogs["down"]
    with served({"prod": down}, down, timeout=20) as client:
        shown(client, "/ui")
        down.answers.clear()
        page, seconds = seconds_of(lambda: shown(client, "/ui/search?q=t"))
        assert "Could not search the catalog: The catalog did not respond" in page
        assert seconds < GENEROUS
        down.answers.set()


@pytest.mark.spec("server.md#health-on-a-page")
def test_the_doctor_on_a_page_does_not_wait_for_a_catalog_that_is_down(
    monkeypatch: pytest.MonkeyPatch, catalogs: dict[str, Breakable]
) -> None:
    def diagnose(namespace: Breakable, *_: Any, **__: Any) -> Diagnosis:
        namespace.list_namespaces(None)
        return Diagnosis((), 7, 0)

    monkeypatch.setattr(health_page, "diagnose_namespace", diagnose)
    monkeypatch.setattr(health_page.HealthPages, "_with_doctor", lambda _, found: list(found))
    with served(catalogs, timeout=20) as client:
        shown(client, "/ui")  # they have responded once
        form = shown(client, "/ui/doctor")
        [token] = re.findall(r'name="token" value="([^"]+)"', form)
        catalogs["down"].answers.clear()
        page, seconds = seconds_of(lambda: client.post("/ui/doctor", data={"token": token}).text)
        assert "7 tables" in page
        assert "The catalog 'down' does not respond" in html.unescape(page)
        assert seconds < GENEROUS
        catalogs["down"].answers.set()


# -- hanging ---------------------------------------------------------------------------------------


def test_a_catalog_that_hangs_leaves_threads_for_the_others(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs) as client, ThreadPoolExecutor(20) as pool:
        down.answers.clear()
        hanging = [pool.submit(describe, client, table=f"t{number}") for number in range(20)]
        until(lambda: down.described == 3)  # three quarters of half of the threads
        done(describe(client, "up"))
        until(lambda: is_refused(client))
        down.answers.set()
        until(lambda: describe(client).status_code == 200)
        assert {each.result().status_code for each in hanging} <= {200, 503}


def test_a_read_that_is_running_ends_when_its_catalog_is_found_to_be_down(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs) as client:
        down.answers.clear()
        answer, seconds = seconds_of(lambda: describe(client))
        assert "'down' does not respond" in refused(answer, 503, 17)
        assert answer.headers["retry-after"] == "1"
        assert seconds < 2 * TIMEOUT + GENEROUS
        down.answers.set()
        until(lambda: describe(client).status_code == 200)


def test_a_change_that_is_running_is_waited_for(catalogs: dict[str, Breakable]) -> None:
    """It may succeed: nobody could say whether it did."""
    down = catalogs["down"]
    with served(catalogs) as client, ThreadPoolExecutor(1) as pool:
        down.answers.clear()
        running = pool.submit(client.post, "/v1/namespace/down$n/create", json={})
        until(lambda: is_refused(client))
        time.sleep(2 * TIMEOUT)
        assert not running.done()
        down.answers.set()
        assert running.result().status_code == 200


def test_a_query_that_reads_the_storage_is_waited_for() -> None:
    reads = RunningReads(lambda: ServiceUnavailableError("no answer"))

    async def wait(run: Run) -> str:
        with reads.ending(run.needs_catalog):
            await asyncio.sleep(TIMEOUT)
        return "rows"

    async def end_two() -> list[Any]:
        opened, waiting = Run(60), Run(60)
        tasks = [asyncio.ensure_future(wait(each)) for each in (opened, waiting)]
        await asyncio.sleep(0)  # both have begun
        opened.note_opened()
        reads.end()
        return await asyncio.gather(*tasks, return_exceptions=True)

    rows, error = asyncio.run(end_two())
    assert rows == "rows"
    assert isinstance(error, ServiceUnavailableError)


def test_a_table_that_cannot_be_read_does_not_stop_its_catalog(
    catalogs: dict[str, Breakable],
) -> None:
    down = catalogs["down"]
    with served(catalogs) as client:
        down.table_error = ServiceUnavailableError("the storage does not answer")
        for _ in range(3):
            assert "the storage" in refused(describe(client), 503, 17)
            time.sleep(2 * TIMEOUT)
        down.table_error = None
        done(describe(client))
        assert down.described == 4


class PartlyDown(Breakable):
    """A catalog that fails for the statistics of some tables, and for the namespace ``a``."""

    STOPPED = ServiceUnavailableError("no answer")
    ERRORS = {"stopped": STOPPED, "denied": PermissionDeniedError("not allowed")}  # noqa: RUF012
    is_down = False
    """Whether probes fail, too."""

    def list_namespaces(self, request: Any) -> Any:
        if request.id or self.is_down:
            raise self.STOPPED
        return api.ListNamespacesResponse(namespaces=["a"])

    def get_table_stats(self, request: Any) -> Any:
        if request.id[-1] in self.ERRORS:
            raise self.ERRORS[request.id[-1]]
        fragments = SimpleNamespace(num_fragments=1)
        return SimpleNamespace(num_rows=1, total_bytes=1, num_indices=0, fragment_stats=fragments)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ui/figures/down?table=t&table=denied", ["note_answer"]),
        ("/ui/figures/down?table=t&table=stopped", ["suspect"]),
        ("/ui/figures/down?table=denied&table=stopped", ["suspect"]),
        ("/ui/figures/down?table=denied", []),
        ("/ui/counts/down", ["suspect"]),
    ],
)
def test_figures_count_as_an_answer_only_if_their_catalog_has_responded(
    monkeypatch: pytest.MonkeyPatch, path: str, expected: list[str]
) -> None:
    catalogs = {"down": PartlyDown()}
    with served(catalogs, timeout=60.0) as client:
        found: list[str] = []
        for name in ("note_answer", "suspect"):
            record = partial(found.append, name)
            monkeypatch.setattr(CatalogState, name, lambda _state, record=record: record())
        assert client.get(path).json()["figures"]
    assert found == expected


def test_figures_that_all_fail_stop_the_calls_of_their_catalog(
    catalogs: dict[str, Breakable],
) -> None:
    down = PartlyDown()
    with served({**catalogs, "down": down}) as client:
        path = "/ui/figures/down?table=stopped"
        assert "problem" in client.get(path).json()["figures"]["stopped"]
        down.is_down = True
        until(lambda: client.get(path).status_code == 503)


class SlowProbe(Breakable):
    """A catalog that takes long for the probe alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = threading.Event()

    def list_namespaces(self, request: Any) -> Any:
        assert self.lists.wait(30)
        return super().list_namespaces(request)


def test_a_slow_catalog_that_responds_is_called() -> None:
    """Its probe has no answer in time, but other calls have."""
    slow = SlowProbe()
    with served({"slow": slow}, timeout=2.0) as client:
        slow.table_error = ServiceUnavailableError("the storage does not answer")
        refused(describe(client, "slow"), 503, 17)
        slow.table_error = None
        end = time.monotonic() + 5
        while time.monotonic() < end:
            done(describe(client, "slow"))
            time.sleep(0.02)
        slow.lists.set()
        assert client.get("/readyz").json()["catalogs"] == {"slow": "OK"}


def test_the_only_catalog_is_not_called_while_it_is_down() -> None:
    catalog = Breakable()
    with served({"prod": catalog}, catalog) as client:
        catalog.error = ServiceUnavailableError("no answer")
        path = "/v1/table/t/describe"
        until(lambda: "tried again" in client.post(path, json={}).text)
        catalog.error = None
        until(lambda: client.post(path, json={}).status_code == 200)
