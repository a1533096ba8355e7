"""Listings through HTTP: only what a principal may see, in full pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from server.policies import cedar, clients, declare, memory_namespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#hidden-objects")]

POLICIES = """
permit(principal == User::"all", action, resource);
permit(principal, action in Action::"see", resource)
    when { resource.name like "shown*" || resource.name == "many" };
"""
SHOWN = ["shown1", "shown2", "shown3", "shown4"]


class Counting:
    """A namespace that counts its listings, and refuses pages of no name."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        self.pages: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)

    def list_tables(self, request: Any) -> Any:
        self.pages.append(request.limit)
        return self._namespace.list_tables(request)


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    namespace = memory_namespace(tmp_path_factory.mktemp("memory"))
    hidden = [f"{letter}{number}" for letter in "aszz" for number in range(40)]
    declare(namespace, *(f"many.{name}" for name in [*dict.fromkeys(hidden), *SHOWN]))
    declare(namespace, "other.t", "shown0.t", "shown0.shown5", "twin.shown6")
    return Counting(namespace)


@pytest.fixture(scope="module")
def client_of(namespace: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with clients(namespace, cedar(tmp_path_factory.mktemp("policies"), POLICIES)) as client_of:
        yield client_of


def pages(send: Any, path: str, limit: int, field: str = "tables") -> list[list[str]]:
    found, token = [], None
    while True:
        params = {"limit": limit, **({"page_token": token} if token else {})}
        answer = send("GET", path, params=params).json()
        found.append(answer[field])
        token = answer.get("page_token")
        if not token:
            return found


@pytest.mark.parametrize("limit", range(1, 7))
def test_pages_are_as_if_nothing_was_hidden(client_of: Any, limit: int) -> None:
    found = pages(client_of("eve"), "/v1/namespace/many/table/list", limit)
    assert found == [SHOWN[start : start + limit] for start in range(0, len(SHOWN), limit)]


def test_tokens_are_as_if_nothing_was_hidden(client_of: Any, tmp_path: Path) -> None:
    bare = memory_namespace(tmp_path)
    declare(bare, *(f"many.{name}" for name in SHOWN))
    expected = bare.list_tables(api.ListTablesRequest(id=["many"], limit=2)).page_token
    answer = client_of("eve")("GET", "/v1/namespace/many/table/list", params={"limit": 2}).json()
    assert answer["page_token"] == expected


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_one_who_sees_all_gets_the_same_pages_as_directly(
    client_of: Any, namespace: Any, limit: int
) -> None:
    request = api.ListTablesRequest(id=["many"], limit=limit)
    answer = client_of("all")("GET", "/v1/namespace/many/table/list", params={"limit": limit})
    assert answer.json() == namespace.list_tables(request).model_dump(exclude_none=True)


def test_listings_that_are_nearly_all_hidden_take_few_calls(client_of: Any, namespace: Any) -> None:
    namespace.pages.clear()
    pages(client_of("eve"), "/v1/namespace/many/table/list", 1)
    assert len(namespace.pages) < 40  # of 124 names, for 4 pages


def test_namespaces_are_filtered(client_of: Any) -> None:
    answer = client_of("eve")("GET", "/v1/namespace/%24/list").json()
    assert answer["namespaces"] == ["many", "shown0"]


def test_listings_of_all_tables_are_filtered(client_of: Any) -> None:
    found = pages(client_of("eve"), "/v1/table", 2)
    expected = [f"many${name}" for name in SHOWN] + ["shown0$shown5", "twin$shown6"]
    assert found == [expected[:2], expected[2:4], expected[4:]]


def test_bad_tokens_and_limits_are_refused(client_of: Any) -> None:
    for params in ({"page_token": "x"}, {"limit": 0}, {"limit": -1}):
        response = client_of("eve")("GET", "/v1/namespace/many/table/list", params=params)
        assert response.json()["code"] == 13
