"""Policies decide on requests of LanceDB's client, whose header names the namespace they are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server.operation_requests import request_for
from server.policies import cedar, clients, declare, memory_namespace

from lance_bridge_server.authorization.accesses import CREATING, is_table_operation
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.operations import OPERATIONS, Operation

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#databases")]

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
