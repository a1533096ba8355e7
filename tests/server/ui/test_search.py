"""The search of the catalog page."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from server.ui.conftest import TABLES, GetPage

from lance_bridge_server.ui import search_page
from lance_bridge_server.ui.visible_namespace import VisibleNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_tables_are_found_by_name_in_every_catalog(get: GetPage) -> None:
    page = get("/ui/search", q="ART")
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    assert "1 match" in page.text
    assert f"{TABLES} matches" in get("/ui/search", q="db.t").text


def test_columns_and_properties_are_searched_where_that_is_asked_for(get: GetPage) -> None:
    assert "0 matches" in get("/ui/search", q="embedd").text
    page = get("/ui/search?in=column&in=property&q=embedd")
    assert "prod.sales.articles" in page.links
    assert "embedding: fixed_size_list" in page.cells


def test_a_catalog_that_is_down_is_named_and_the_others_are_searched(get: GetPage) -> None:
    page = get("/ui/search", q="articles")
    assert "Could not search dead" in page.text
    assert "10.9.8.7" not in page.text


def test_a_catalog_that_is_slow_is_named_and_the_others_are_searched(
    get: GetPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer, list_tables = threading.Event(), VisibleNamespace.list_tables

    def list_slowly(namespace: VisibleNamespace, request: Any) -> Any:
        if namespace.parent == ["many"]:
            may_answer.wait(60)
        return list_tables(namespace, request)

    monkeypatch.setattr(VisibleNamespace, "list_tables", list_slowly)
    monkeypatch.setattr(search_page, "_SECONDS", 3.0)
    monkeypatch.setattr(search_page, "_GRACE_SECONDS", 0.0)
    try:
        page = get("/ui/search", q="articles")
    finally:
        may_answer.set()
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    assert "Could not search many: ui_search did not respond within 3 s" in page.text


def test_a_search_finds_nothing_that_may_not_be_seen(get: GetPage) -> None:
    for word in ("secret", "pay", "t0"):
        page = get("/ui/search", "bob", q=word)
        assert "0 matches" in page.text
        assert "dead" not in page.text
    assert "1 match" in get("/ui/search", "bob", q="articles").text


def test_a_search_ends_in_time_and_says_so(get: GetPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_page, "_SECONDS", 0.0)
    monkeypatch.setattr(search_page, "_GRACE_SECONDS", 30.0)
    page = get("/ui/search", q="articles")
    assert "Could not search prod" in page.text


def test_matches_are_limited(get: GetPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_page, "_MOST_MATCHES", 5)
    assert "5 matches; more not shown" in get("/ui/search", q="db.t").text
