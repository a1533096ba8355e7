"""Listings, and requests of LanceDB's client, of those who may not see everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from server.http_requests import request_for
from server.policies import cedar, clients, declare, memory_namespace

from lance_bridge_server.authorization.accesses import CREATING, is_table_operation
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.operations import OPERATIONS, Operation

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#databases", "server.md#hidden-objects"),
]

# -- listings, in full pages -----------------------------------------------------------------------


SEEING = """
permit(principal == User::"all", action, resource);
permit(principal, action in Action::"see", resource)
    when { resource.name like "shown*" || resource.name == "many" };
"""
VISIBLE = ["shown1", "shown2", "shown3", "shown4"]


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
def listed(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    namespace = memory_namespace(tmp_path_factory.mktemp("memory"))
    hidden = [f"{letter}{number}" for letter in "aszz" for number in range(40)]
    declare(namespace, *(f"many.{name}" for name in [*dict.fromkeys(hidden), *VISIBLE]))
    declare(namespace, "other.t", "shown0.t", "shown0.shown5", "twin.shown6")
    return Counting(namespace)


@pytest.fixture(scope="module")
def client_of(listed: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with clients(listed, cedar(tmp_path_factory.mktemp("policies"), SEEING)) as client_of:
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
    assert found == [VISIBLE[start : start + limit] for start in range(0, len(VISIBLE), limit)]


def test_tokens_are_as_if_nothing_was_hidden(client_of: Any, tmp_path: Path) -> None:
    bare = memory_namespace(tmp_path)
    declare(bare, *(f"many.{name}" for name in VISIBLE))
    expected = bare.list_tables(api.ListTablesRequest(id=["many"], limit=2)).page_token
    answer = client_of("eve")("GET", "/v1/namespace/many/table/list", params={"limit": 2}).json()
    assert answer["page_token"] == expected


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_one_who_sees_all_gets_the_same_pages_as_directly(
    client_of: Any, listed: Any, limit: int
) -> None:
    request = api.ListTablesRequest(id=["many"], limit=limit)
    answer = client_of("all")("GET", "/v1/namespace/many/table/list", params={"limit": limit})
    assert answer.json() == listed.list_tables(request).model_dump(exclude_none=True)


def test_listings_that_are_nearly_all_hidden_take_few_calls(client_of: Any, listed: Any) -> None:
    listed.pages.clear()
    pages(client_of("eve"), "/v1/namespace/many/table/list", 1)
    assert len(listed.pages) < 40  # of 124 names, for 4 pages


def test_namespaces_are_filtered(client_of: Any) -> None:
    answer = client_of("eve")("GET", "/v1/namespace/%24/list").json()
    assert answer["namespaces"] == ["many", "shown0"]


def test_listings_of_all_tables_are_filtered(client_of: Any) -> None:
    found = pages(client_of("eve"), "/v1/table", 2)
    expected = [f"many${name}" for name in VISIBLE] + ["shown0$shown5", "twin$shown6"]
    assert found == [expected[:2], expected[2:4], expected[4:]]


def test_bad_tokens_and_limits_are_refused(client_of: Any) -> None:
    for params in ({"page_token": "x"}, {"limit": 0}, {"limit": -1}):
        response = client_of("eve")("GET", "/v1/namespace/many/table/list", params=params)
        assert response.json()["code"] == 13


# -- requests of LanceDB's client, whose header names the namespace they are in --------------------


POLICIES = """
permit(principal == User::"half", action, resource);
forbid(principal == User::"half", action, resource)
    when { resource in Namespace::"closed" || resource.name like "hidden*" };
"""
AGENT = {"user-agent": "LanceDB-Python-Client/0.40.0"}
SHOWN = ["a1", "b2", "c3", "d4", "e5"]
HIDDEN = ["hidden0", "hidden1", "hidden2"]
UNSUPPORTED = {"refresh_materialized_view"}
"""What this namespace cannot do on any table, which it says first."""


@pytest.fixture(scope="module")
def send(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that sends requests of one who may not see everything."""
    namespace = memory_namespace(tmp_path_factory.mktemp("memory"))
    declare(namespace, *(f"open.{name}" for name in [*SHOWN, *HIDDEN]), "closed.t")
    authorizer = cedar(tmp_path_factory.mktemp("policies"), POLICIES)
    databases = DatabasePaths(names={"alias": ["closed"], "top": []})
    with clients(namespace, authorizer, databases=databases) as client_of:
        yield client_of("half")


def in_database(name: str, request: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a request with the headers of LanceDB's client for a database."""
    added = {**AGENT, "x-lancedb-database": name}
    if prefix:
        added["x-lancedb-database-prefix"] = prefix
    return {**request, "headers": {**request.get("headers", {}), **added}}


def list_names(send: Any, database: str, **params: Any) -> Any:
    listing = {"method": "GET", "path": "/v1/table/", "params": params}
    return send(**in_database(database, listing))


@pytest.mark.parametrize(
    ("operation", "hidden", "missing"),
    [
        pytest.param(operation, hidden, missing, id=f"{hidden} {operation.path}")
        for operation in OPERATIONS
        for hidden, missing in (("closed.t", "absent.t"), ("open.hidden1", "open.absent"))
        if operation.name not in CREATING
        and (is_table_operation(operation.name) or hidden == "closed.t")
    ],
)
def test_what_is_hidden_answers_as_what_is_missing(
    send: Any, operation: Operation, hidden: str, missing: str
) -> None:
    is_table = is_table_operation(operation.name)
    found, expected = (
        send(**in_database(database, request_for(operation, [name] if is_table else [])))
        for database, name in (hidden.split("."), missing.split("."))
    )
    assert found.status_code == expected.status_code
    assert found.json()["code"] in ([0] if operation.name in UNSUPPORTED else [1, 4])
    assert _without_names(found, hidden) == _without_names(expected, missing)


def _without_names(response: Any, table: str) -> tuple[str, str]:
    body: dict[str, Any] = response.json()
    text = f"{body['code']} {body['error']} {sorted(body)}"
    for name in table.split("."):
        text = text.replace(name, "NAME")
    return text, response.headers.get("x-lancedb-version", "")


@pytest.mark.parametrize(
    "params", [{"page_token": "a"}, {"limit": 2}, {"limit": 2, "page_token": "zz"}, {"limit": 0}]
)
def test_names_after_another_do_not_say_that_a_database_exists(
    send: Any, params: dict[str, Any]
) -> None:
    found, expected = (list_names(send, name, **params) for name in ("closed", "absent"))
    assert found.status_code == expected.status_code == (400 if params == {"limit": 0} else 404)
    assert _without_names(found, "closed") == _without_names(expected, "absent")


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_names_of_tables_come_in_full_pages_of_what_is_shown(send: Any, limit: int) -> None:
    pages: list[list[str]] = []
    token = None
    while token or not pages:
        params = {"limit": limit, **({"page_token": token} if token else {})}
        answer = list_names(send, "open", **params).json()
        pages.append(answer["tables"])
        token = answer.get("page_token")
        assert token in (None, pages[-1][-1])
    assert pages == [SHOWN[start : start + limit] for start in range(0, len(SHOWN), limit)]


def test_a_hidden_name_may_stand_in_the_token(send: Any) -> None:
    """The page begins after it, as after any name that no table has."""
    assert list_names(send, "open", page_token="c").json() == {"tables": ["c3", "d4", "e5"]}
    assert list_names(send, "open", page_token="hidden0").json() == {"tables": []}


@pytest.mark.parametrize(("database", "prefix"), [("closed", ""), ("alias", ""), ("top", "closed")])
def test_no_name_of_a_database_is_a_way_around(send: Any, database: str, prefix: str) -> None:
    for operation in OPERATIONS:
        if operation.name in ("describe_table", "count_table_rows", "list_all_tables"):
            request = in_database(database, request_for(operation, ["t"]), prefix)
            assert send(**request).json()["error"].startswith("Namespace not found: closed")


def test_a_client_of_the_specification_is_in_its_database_too(send: Any) -> None:
    headers = {"x-lancedb-database": "open"}
    answer = send("GET", "/v1/table", params={"delimiter": "$"}, headers=headers)
    assert answer.json()["tables"] == SHOWN
    headers = {"x-lancedb-database": "closed"}
    answer = send("GET", "/v1/table", params={"delimiter": "$"}, headers=headers)
    assert answer.status_code == 404


@pytest.mark.parametrize("field", ["new_namespace", "new_namespace_id"])
@pytest.mark.parametrize(
    ("database", "table", "target", "error"),
    [
        ("top", "open$a1", ["closed"], "Namespace not found: closed"),
        ("open", "a1", [], "is not allowed to perform declare_table on 'open.hidden9'"),
    ],
)
def test_the_target_of_a_rename_is_in_the_database(
    send: Any, *, field: str, database: str, table: str, target: list[str], error: str
) -> None:
    body = {"new_table_name": "hidden9", field: target}
    request = {"method": "POST", "path": f"/v1/table/{table}/rename", "json": body}
    assert error in send(**in_database(database, request)).json()["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("t/rename", {"new_table_name": "u", "new_namespace_id": 5}),
        ("version/batch-create", {"entries": 5}),
        ("version/batch-create", {"entries": [5]}),
        ("batch-commit", {"operations": 5}),
        ("batch-commit", {"operations": [5]}),
        ("batch-commit", {"operations": [{"declare_table": 5}]}),
    ],
)
def test_what_is_no_identifier_is_invalid_input(send: Any, path: str, body: Any) -> None:
    request = {"method": "POST", "path": f"/v1/table/{path}", "json": body}
    answer = send(**in_database("open", request))
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
