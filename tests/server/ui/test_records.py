"""What a request for a page leaves in the audit log and in the metrics, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from server.policies import NamedByHeader, cedar, clients, declare, memory_namespace
from server.serving import serving
from server.test_audit import lines_of
from server.ui.browsers import HtmlPage

from lance_bridge.testing.build import ipc
from lance_bridge_server.app import create_app
from lance_bridge_server.audit import open_audit_log
from lance_bridge_server.authorization import AllowAll
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.limits import Limits

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]


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


def test_pages_are_counted_by_their_names_and_codes(namespace: Any) -> None:
    with clients(namespace, AllowAll()) as client_of:
        client_of("ann")("GET", "/ui/namespace/db")
        client_of("ann")("GET", "/ui/namespace/absent")
        metrics = client_of("ann")("GET", "/metrics").text
    assert 'requests_total{code="OK",operation="ui_namespace"} 1.0' in metrics
    assert 'requests_total{code="NAMESPACE_NOT_FOUND",operation="ui_namespace"} 1.0' in metrics


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
    gateway = Gateway(namespace, authenticator=NamedByHeader(), ui=False)
    with serving(create_app(gateway)) as url:
        assert httpx.get(f"{url}/ui", headers={"x-user": "ann"}).status_code == 404


def test_a_table_that_the_catalog_manages_is_said_to_be(namespace: Any) -> None:
    namespace.manage_table(["db", "t"])
    with clients(namespace, AllowAll()) as client_of:
        assert "catalog-managed" in client_of("ann")("GET", "/ui/table/db/t").text
