"""Listings that take long, which pages share for a while."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import ServiceUnavailableError
from server.policies import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage

from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.ui import table_names
from lance_bridge_server.ui.table_names import TableNames

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]

POLICIES = """
permit(principal, action in Action::"see", resource);
forbid(principal == User::"bob", action, resource == Table::"prod.db.t050");
"""


class Counted:
    """Counts the listings of a namespace's catalog, and may fail them."""

    def __init__(self, namespace: Any, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        catalog = namespace.tables.connection.catalog
        self._list = catalog.list_tables
        self._lock = threading.Lock()
        patch.setattr(catalog, "list_tables", self.list_tables)

    def list_tables(self, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.count += 1
        if self.error is not None:
            raise self.error
        return self._list(*arguments, **options)


@pytest.fixture
def namespace(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    declare(namespace, *(f"db.t{i:03}" for i in range(100)))
    return namespace


@pytest.fixture
def counted(namespace: Any, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """A catalog each of whose listings counts as long."""
    monkeypatch.setattr(table_names, "_LONG_SECONDS", 0.0)
    return Counted(namespace, monkeypatch)


def _request(token: str | None = None, limit: int | None = 30) -> Any:
    return api.ListTablesRequest(id=["db"], limit=limit, page_token=token)


def test_pages_of_a_long_listing_are_of_one_call(namespace: Any, counted: Counted) -> None:
    names, found, token = TableNames(), [], None
    while True:
        page = names.list_tables(namespace, _request(token))
        found += page.tables
        token = page.page_token
        if not token:
            break
    assert found == [f"t{i:03}" for i in range(100)]
    assert counted.count == 1
    assert names.list_tables(namespace, _request(limit=None)).tables == found


def test_requests_at_the_same_time_list_once(namespace: Any, counted: Counted) -> None:
    names = TableNames()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: names.list_tables(namespace, _request()), range(8)))
    assert counted.count == 1


def test_a_quick_listing_is_made_each_time(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_names, "_LONG_SECONDS", 1e9)
    names = TableNames()
    names.list_tables(namespace, _request())
    declare(namespace, "db.a")
    assert names.list_tables(namespace, _request()).tables[0] == "a"
    assert counted.count == 2


def test_old_names_are_listed_in_the_background(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TableNames()
    names.list_tables(namespace, _request())
    declare(namespace, "db.a")
    assert names.list_tables(namespace, _request()).tables[0] == "t000"
    monkeypatch.setattr(table_names, "_FRESH_SECONDS", 0.0)
    deadline = time.monotonic() + 60
    while names.list_tables(namespace, _request()).tables[0] != "a":
        assert time.monotonic() < deadline
    assert counted.count > 1


def test_a_listing_that_fails_in_the_background_is_not_shown_for_long(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TableNames()
    names.list_tables(namespace, _request())
    counted.error = ServiceUnavailableError("The metastore does not answer")
    monkeypatch.setattr(table_names, "_FRESH_SECONDS", 0.0)
    deadline = time.monotonic() + 60
    with pytest.raises(ServiceUnavailableError):
        _list_until(names, namespace, deadline)


def _list_until(names: TableNames, namespace: Any, deadline: float) -> None:
    while time.monotonic() < deadline:
        names.list_tables(namespace, _request())


def test_names_that_are_kept_are_filtered_for_each_principal(
    namespace: Any, counted: Counted, tmp_path: Path
) -> None:
    catalogs = {"prod": namespace}
    with clients(FederatedNamespace(catalogs), cedar(tmp_path, POLICIES)) as client_of:
        seen = {
            user: HtmlPage.of(client_of(user)("GET", "/ui/namespace/prod/db").text).links
            for user in ("ann", "bob")
        }
        found = client_of("bob")("GET", "/ui/search", params={"q": "t05"})
    assert "t050" in seen["ann"]
    assert "t050" not in seen["bob"]
    assert "9 matches" in HtmlPage.of(found.text).text
    assert counted.count == 1
