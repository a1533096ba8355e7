"""The health of a server on the catalog page, the doctor, and a table whose files are gone."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import (
    NamedByHeader,
    cedar,
    clients,
    declare,
    memory_namespace,
    serve_namespace,
)
from server.ui.browsers import Browser, HtmlPage

import lance_bridge
from lance_bridge.testing.calls import ipc
from lance_bridge_federated import FederatedNamespace
from lance_bridge_migrate import (
    Directory,
    Endpoints,
    Migration,
    Migrations,
    address_of,
    make_plan,
    migration_type,
)
from lance_bridge_server.access.audit import open_audit_log
from lance_bridge_server.redaction import PublicAnswers
from lance_bridge_server.ui import health_page, table_page
from lance_bridge_server.ui.health_page import quantile

from .conftest import POLICIES as CATALOG_POLICIES
from .conftest import create_articles

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#presence-of-data", "server.md#health-on-a-page"),
]

POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"bob", action in Action::"read", resource in Namespace::"good");
permit(principal == User::"olga", action in Action::"see", resource);
permit(principal == User::"olga", action == Action::"run_doctor", resource == Namespace::"good");
"""
REPORT = "<script>alert(1)</script>"
ID = ["prod", "sales", "articles"]
STREAM = {"content-type": "application/vnd.apache.arrow.stream"}
ROWS = ipc(pa.table({"id": [1]}))


def _down() -> None:
    raise ServiceUnavailableError("The metastore at thrift://10.9.8.7:9083 does not answer")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("health")
    good, bad = (memory_namespace(directory / name) for name in ("good", "bad"))
    create_articles(good)
    declare(good, "sales.orders")
    create_articles(bad)
    shutil.rmtree(directory / "bad" / "root" / "sales.db" / "articles.lance" / "_versions")
    catalogs = {"good": good, "bad": bad}
    with serve_namespace(
        FederatedNamespace({**catalogs, "dead": _down}),  # type: ignore[dict-item]
        authenticator=NamedByHeader(),
        authorizer=cedar(directory, POLICIES),
        audit=open_audit_log(directory / "audit.log"),
        catalogs=catalogs,
    ) as found:
        yield found


@pytest.fixture
def migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Migration:
    """A migration that the server's user has planned."""
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path / "state"))
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "lake" / "t.lance")
    source, target = Directory.at(str(tmp_path / "lake")), memory_namespace(tmp_path / "target")
    endpoints = Endpoints(source, target, source.address, address_of(target))
    return Migrations().add(make_plan(migration_type("register"), endpoints, {"namespace": ["a"]}))


def page_of(url: str, user: str, path: str = "/ui/health") -> HtmlPage:
    answer = Browser(url, user).get(path)
    assert answer.status_code == 200
    return HtmlPage.of(answer.text)


def run_doctor(browser: Browser) -> HtmlPage:
    """Confirm that the doctor is to run."""
    question = browser.get("/ui/doctor")
    assert question.status_code == 200
    answer = browser.submit(question, "/ui/doctor")
    assert answer.status_code == 200
    return HtmlPage.of(answer.text)


def test_requests_and_catalogs_are_shown(url: str) -> None:
    ann = Browser(url, "ann")
    ann.get("/ui/namespace/good")
    ann.get("/ui/namespace/absent")
    page = page_of(url, "ann")
    cells = page.cells
    row = cells[cells.index("ui_namespace") :]
    assert int(row[1]) >= 2
    assert int(row[2]) >= 1
    assert "NAMESPACE_NOT_FOUND" in row[3]
    assert row[4].endswith("s")
    assert "good : online" in page.text


def test_catalogs_that_may_not_be_seen_are_not_shown(url: str) -> None:
    assert "bad : online" in page_of(url, "ann").text
    text = page_of(url, "bob").text
    assert "good : online" in text
    assert "bad" not in text


def test_the_audit_log_is_for_those_who_may_read_it(url: str) -> None:
    Browser(url, "ann").get("/ui/table/good/sales/articles")
    page = page_of(url, "ann")
    assert "good.sales.articles" in page.cells
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", page.text.partition("Audit log")[2])
    assert "Audit log" not in page_of(url, "bob").text


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_the_doctor_runs_on_all_catalogs_when_that_was_confirmed(url: str) -> None:
    page = run_doctor(Browser(url, "ann"))
    assert "location-gone" in page.text
    assert "lance-bridge table deregister bad" in page.text
    assert ("h2", {"id": "catalog-1", "class": "wrap"}) in page.tags


def test_the_doctor_runs_where_the_principal_may(url: str) -> None:
    page = run_doctor(Browser(url, "olga"))
    assert "location-gone" not in page.text
    assert "tables and" in page.text
    assert "Run the doctor" not in page_of(url, "bob").text
    assert Browser(url, "bob").get("/ui/doctor").status_code == 403


def test_the_doctor_is_not_offered_for_catalogs_that_it_does_not_know(tmp_path: Path) -> None:
    directory = lance_bridge.connect("dir", {"root": str(tmp_path)})
    with serve_namespace(PublicAnswers(directory, ())) as url:
        browser = Browser(url)
        assert "Run the doctor" not in browser.get("/ui/health").text
        answer = browser.get("/ui/doctor")
    assert answer.status_code == 406
    assert "does not know pylance's own catalogs" in HtmlPage.of(answer.text).text


def test_the_doctor_goes_on_where_it_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_page, "_DOCTOR_LIMIT", 1)
    olga = Browser(url, "olga")
    question = olga.get("/ui/doctor")
    first = olga.submit(question, "/ui/doctor")
    assert "Check more of good" in first.text
    assert "location-gone" not in first.text
    second = olga.submit(first, "/ui/doctor")
    assert "1 tables and 0 directories checked" in HtmlPage.of(second.text).text
    assert "Check more of" not in second.text
    hidden = olga.submit(first, "/ui/doctor", catalog="bad")
    assert hidden.status_code == 403


def test_a_table_has_its_findings_on_its_page(url: str) -> None:
    broken = page_of(url, "ann", "/ui/table/bad/sales/articles")
    assert "location-gone: sales.articles" in broken.text
    assert "lance-bridge table deregister bad sales.articles" in broken.text
    assert "No problems found" in page_of(url, "ann", "/ui/table/good/sales/articles").text


def test_a_doctor_that_takes_too_long_leaves_the_page(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_page, "_DOCTOR_SECONDS", 0.0)
    page = page_of(url, "ann", "/ui/table/good/sales/articles")
    assert "Could not check the table" in page.text
    assert "embedding" in page.cells


@pytest.mark.spec("server.md#actions")
def test_a_doctor_that_no_page_of_the_server_asked_for_does_not_run(url: str) -> None:
    ann = Browser(url, "ann")
    ann.get("/ui/doctor")
    assert ann.http.post(f"{url}/ui/doctor", data={"token": "x"}).status_code == 403


def test_migrations_have_their_reports(url: str, migration: Migration) -> None:
    (migration.directory / "report.html").write_text(REPORT)
    identifier = migration.directory.name
    page = page_of(url, "ann")
    assert {identifier, "planned"} <= set(page.cells)
    answer = Browser(url, "ann").get(page.links["Download"])
    assert answer.text == REPORT
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "sandbox"
    assert identifier not in page_of(url, "bob").text
    assert Browser(url, "bob").get(page.links["Download"]).status_code == 403
    for name in ("absent", "%2e%2e", "%2e%2e%2fx"):
        assert Browser(url, "ann").get(f"/ui/report/{name}").status_code in (400, 404)


def test_a_damaged_migration_leaves_the_others(url: str, migration: Migration) -> None:
    damaged = migration.directory.parent / "20990101-000000-register-000000"
    damaged.mkdir()
    (damaged / "plan.json").write_text("{")
    page = page_of(url, "ann")
    assert {damaged.name, migration.directory.name, "planned"} <= set(page.cells)


def test_quantiles_are_those_of_prometheus() -> None:
    buckets = {0.1: 50.0, 0.2: 90.0, math.inf: 100.0}
    assert quantile(buckets, 0.5) == pytest.approx(0.1)
    assert quantile(buckets, 0.7) == pytest.approx(0.15)
    assert quantile(buckets, 0.95) == pytest.approx(0.2)
    assert quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None
    assert quantile({}, 0.5) is None


# -- a table whose files are gone ------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of the table were."""
    return tmp_path_factory.mktemp("missing") / "prod" / "root" / "sales.db" / "articles.lance"


@pytest.fixture(scope="module")
def client_of(place: Path) -> Iterator[Any]:
    """Serve a table that lost its files, and one that was never written."""
    prod = memory_namespace(place.parents[2])
    create_articles(prod)
    declare(prod, "sales.orders")
    shutil.rmtree(place)
    catalogs = {"prod": prod}
    authorizer = cedar(place.parents[3], CATALOG_POLICIES)
    with clients(FederatedNamespace(catalogs), authorizer, catalogs=catalogs) as found:
        yield found


def page_of_prod(client_of: Any, path: str, status: int = 200) -> HtmlPage:
    answer = client_of("ann")("GET", path)
    assert answer.status_code == status, answer.text
    return HtmlPage.of(answer.text)


def test_the_page_of_a_table_says_that_its_data_is_missing(client_of: Any) -> None:
    text = page_of_prod(client_of, "/ui/table/prod/sales/articles").text
    assert "data missing" in text
    assert "is missing: there is no version at" in text
    assert "location-gone: sales.articles" in text
    assert "lance-bridge table deregister prod sales.articles" in text
    assert "no data yet" not in text
    assert "no schema yet" not in text


@pytest.mark.parametrize("page", ["rows", "versions", "connect"])
def test_the_other_pages_of_the_table_say_it(client_of: Any, page: str) -> None:
    text = page_of_prod(client_of, f"/ui/{page}/prod/sales/articles", 409).text
    assert "is missing: there is no version at" in text


def test_a_table_that_was_never_written_is_declared(client_of: Any) -> None:
    text = page_of_prod(client_of, "/ui/table/prod/sales/orders").text
    assert "declared, no data yet" in text
    assert "data missing" not in text


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "count": ("count_rows", {"json": {}}),
    "describe": ("describe?check_declared=true", {"json": {}}),
    "query": ("query", {"json": {"k": 1, "vector": {}}}),
    "insert": ("insert", {"content": ROWS, "headers": STREAM}),
    "create": ("create?mode=create", {"content": ROWS, "headers": STREAM}),
    "overwrite": ("create?mode=overwrite", {"content": ROWS, "headers": STREAM}),
    "declare": ("declare", {"json": {}}),
}


@pytest.mark.parametrize(("call", "given"), CALLS.values(), ids=CALLS)
def test_requests_are_refused(
    client_of: Any, place: Path, call: str, given: dict[str, Any]
) -> None:
    answer = client_of("ann")("POST", f"/v1/table/{'$'.join(ID)}/{call}", **given)
    assert (answer.status_code, answer.json()["code"]) == (409, 19)
    assert "is missing: there is no version at" in answer.json()["error"]
    assert not place.exists()


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_the_table_is_still_listed(client_of: Any, user: str) -> None:
    answer = client_of(user)("GET", "/v1/namespace/prod$sales/table/list?include_declared=false")
    assert answer.json()["tables"] == ["articles"]
