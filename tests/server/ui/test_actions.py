"""What the catalog page does beyond reading, and what each request leaves in records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from server.gateways import (
    NamedByHeader,
    cedar,
    clients,
    declare,
    memory_namespace,
    serve_namespace,
)
from server.test_audit import lines_of
from server.ui.browsers import Browser, HtmlPage
from servers.processes import wait_until

from lance_bridge.testing.calls import ipc
from lance_bridge_server.access.audit import open_audit_log
from lance_bridge_server.access.authorizer import AllowAll
from lance_bridge_server.gateway.limits import Limits

from .conftest import create_articles

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#actions", "server.md#the-catalog-page"),
]

# -- creating a tag --------------------------------------------------------------------------------


POLICIES = """
permit(principal == User::"ann", action, resource);
permit(principal == User::"bob", action in Action::"read", resource);
"""
TAG = "/ui/tag/sales/articles"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the audit log."""
    return tmp_path_factory.mktemp("actions") / "audit.jsonl"


@pytest.fixture(scope="module")
def url(log: Path) -> Iterator[str]:
    directory = log.parent
    namespace = memory_namespace(directory / "lake")
    create_articles(namespace)
    authorizer = cedar(directory, POLICIES)
    with serve_namespace(
        namespace,
        authenticator=NamedByHeader(),
        authorizer=authorizer,
        audit=open_audit_log(log),
        catalogs={"lake": namespace},
    ) as found:
        yield found


@pytest.fixture
def ann(url: str) -> Browser:
    return Browser(url, "ann")


def create(browser: Browser, name: str, version: str) -> httpx.Response:
    """Fill in the form, and confirm."""
    page = browser.http.get(f"{browser.url}{TAG}", params={"name": name, "version": version})
    return browser.submit(page, TAG)


def tag_lines(log: Path) -> list[dict[str, Any]]:
    return [each for each in lines_of(log) if each["operation"] == "ui_tag"]


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_a_tag_is_created_when_that_was_confirmed(ann: Browser, log: Path) -> None:
    form = ann.get(TAG)
    assert form.status_code == 200
    assert ">Continue<" in form.text
    question = ann.http.get(f"{ann.url}{TAG}", params={"name": "good", "version": "2"})
    assert "will name version" in question.text
    assert "good" not in ann.get("/ui/versions/sales/articles").text
    done = ann.submit(question, TAG)
    assert done.url.path == "/ui/versions/sales/articles"
    assert "tag%3Agood" in done.text
    wait_until(lambda: len(tag_lines(log)) > 1)
    written = tag_lines(log)
    assert [(each["event"], each["principal"]) for each in written] == [
        ("decision", "ann"),
        ("commit", "ann"),
    ]
    assert written[0]["action"] == "create_table_tag"


def test_a_tag_takes_the_right_to_create_it(url: str) -> None:
    bob = Browser(url, "bob")
    assert create(bob, "bobs", "2").status_code == 403
    assert "bobs" not in bob.get("/ui/versions/sales/articles").text


def test_what_cannot_be_tagged_is_said_on_the_form(ann: Browser) -> None:
    for name, version, status in (("x", "two", 400), ("y", "999", 404), ("first", "2", 409)):
        page = create(ann, name, version)
        assert page.status_code == status
        assert "tag-problem" in page.text


def test_a_tag_without_a_version_is_no_failed_change(ann: Browser, log: Path) -> None:
    before = len(lines_of(log))
    question = ann.http.get(f"{ann.url}{TAG}", params={"name": "z", "version": "abc"})
    assert ann.submit(question, TAG).status_code == 400
    wait_until(lambda: any(each["operation"] == "ui_tag" for each in lines_of(log)[before:]))
    written = [each for each in lines_of(log)[before:] if each["operation"] == "ui_tag"]
    assert {each["event"] for each in written} == {"decision"}
    assert "create_table_tag" not in {each["action"] for each in written}
    assert {each["code"] for each in written} == {13}


def test_a_change_that_fails_names_only_its_own_objects(ann: Browser, log: Path) -> None:
    before = len(lines_of(log))
    assert create(ann, "first", "2").status_code == 409
    wait_until(lambda: lines_of(log)[-1]["event"] == "failure")
    [failure] = [each for each in lines_of(log)[before:] if each["event"] == "failure"]
    assert failure["ids"] == [["sales", "articles"]]


def test_pages_of_other_sites_create_no_tag(ann: Browser) -> None:
    question = ann.http.get(f"{ann.url}{TAG}", params={"name": "evil", "version": "2"})
    token = question.text.split('name="token" value="')[1].split('"')[0]
    fields = {"name": "evil", "version": "2", "token": token}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert ann.http.post(f"{ann.url}{TAG}", data=fields, headers=headers).status_code == 403
    assert ann.http.post(f"{ann.url}{TAG}", data={**fields, "token": "x"}).status_code == 403
    ann.http.cookies.clear()
    assert ann.http.post(f"{ann.url}{TAG}", data=fields).status_code == 403
    assert "evil" not in ann.get("/ui/versions/sales/articles").text


# -- records: the audit log and metrics, and limits ------------------------------------------------


@pytest.fixture
def namespace(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    declare(namespace, "db.t")
    return namespace


def test_every_decision_for_a_page_is_in_the_audit_log(namespace: Any, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    policies = 'permit(principal == User::"ann", action in Action::"see", resource);'
    authorizer = cedar(tmp_path, policies)
    with clients(namespace, authorizer, audit=open_audit_log(log)) as client_of:
        client_of("ann")("GET", "/ui/table/db/t")
        client_of("eve")("GET", "/ui/table/db/t")
        client_of("")("GET", "/ui/table/db/t")
    lines = lines_of(log)
    assert {each["operation"] for each in lines} == {"ui_table"}
    decisions = {
        (each["principal"], each.get("action"), each["decision"], each["code"]) for each in lines
    }
    assert ("ann", "describe_table", "allow", None) in decisions
    assert ("ann", "count_table_rows", "deny", None) in decisions
    assert ("eve", "describe_table", "deny", 1) in decisions
    assert (None, None, "none", 16) in decisions


def test_a_page_is_one_request_for_the_limits(namespace: Any) -> None:
    with clients(namespace, AllowAll(), limits=Limits(rate="2/hour")) as client_of:
        answers = [client_of("ann")("GET", "/ui/namespace/db") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0


@pytest.mark.spec("server.md#versions-on-a-page")
def test_versions_name_who_wrote_them(namespace: Any) -> None:
    with clients(namespace, AllowAll()) as client_of:
        rows = ipc(pa.table({"id": [1, 2]}))
        headers = {"content-type": "application/vnd.apache.arrow.stream"}
        for _ in range(2):
            path = "/v1/table/db$t/insert"
            answer = client_of("ann")("POST", path, content=rows, headers=headers)
            assert answer.status_code == 200, answer.text
        text = HtmlPage.of(client_of("bob")("GET", "/ui/versions/db/t").text).text
    assert "Append +2 rows by ann" in text
    assert "Overwrite +2 rows by ann" in text


def test_the_page_can_be_switched_off(namespace: Any) -> None:
    with serve_namespace(namespace, authenticator=NamedByHeader(), ui=False) as url:
        assert httpx.get(f"{url}/ui", headers={"x-user": "ann"}).status_code == 404


def test_a_table_that_the_catalog_manages_is_said_to_be(namespace: Any) -> None:
    namespace.manage_table(["db", "t"])
    with clients(namespace, AllowAll()) as client_of:
        assert "catalog-managed" in client_of("ann")("GET", "/ui/table/db/t").text
