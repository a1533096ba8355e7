"""The double holds requests and replies against the published API, and records what came."""

from __future__ import annotations

import pytest

from servers.unity import OPEN_SOURCE_0_4, UnityServer
from servers.unity.process import UnityProcess
from servers.unity.raw import Raw, table

# -- validation ----------------------------------------------------------------------------------


def end_of_a_server_after(method: str, path: str, body: object, **query: str) -> None:
    with UnityServer() as server:
        Raw.with_schema(server.url).send(method, path, body, **query)


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "problem"),
    [
        ("POST", "/catalogs", {"name": "x", "colour": "red"}, {}, "colour"),
        ("POST", "/catalogs", {"name": 5}, {}, "name"),
        ("POST", "/tables", table(columns=None), {}, "columns"),
        ("POST", "/tables", table(columns=[{"title": "x"}]), {}, "columns.title"),
        ("GET", "/schemas", None, {}, "catalog_name"),
        ("GET", "/catalogs", None, {"limit": "5"}, "limit"),
    ],
)
def test_a_request_against_the_published_api_fails_the_test_that_sent_it(
    method: str, path: str, body: object, query: dict[str, str], problem: str
) -> None:
    with pytest.raises(AssertionError, match=problem):
        end_of_a_server_after(method, path, body, **query)


def test_a_reply_against_the_published_api_is_a_defect_of_the_double() -> None:
    with UnityServer() as server:
        raw = Raw.with_schema(server.url)
        server.state.catalogs.page(None, 1)[0].change(created_at="yesterday")
        assert "created_at" in raw.send("GET", "/catalogs/c").json()["message"]
        assert server.defects
        with pytest.raises(AssertionError, match="created_at"):
            server.require_clean()
        server.defects.clear()


def test_the_double_runs_in_a_process_of_its_own() -> None:
    with UnityProcess(OPEN_SOURCE_0_4, ["made"]) as running:
        raw = Raw(running.url)
        assert [row["name"] for row in raw.get("/catalogs")["catalogs"]] == ["made"]
        assert raw.error("GET", "/catalogs/nowhere") == (404, "NOT_FOUND")


def test_a_process_that_saw_bad_requests_says_so_at_its_end() -> None:
    running = UnityProcess()
    with running:
        Raw(running.url).send("POST", "/catalogs", {"name": "x", "colour": "red"})
        assert running.stop() == 1


def test_requests_are_recorded_with_what_they_carried(new: UnityServer) -> None:
    Raw.with_schema(new.url)
    assert new.counts == {"POST /catalogs": 1, "POST /schemas": 1}
    assert [request.fields["name"] for request in new.requests] == ["c", "s"]
    new.forget_requests()
    assert not new.counts
    assert Raw(new.url).get("/catalogs", max_results="1")["catalogs"]
    assert new.requests[0].query == {"max_results": "1"}
