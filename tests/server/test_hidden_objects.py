"""What those who may not see everything get: listings, LanceDB's requests, and hidden catalogs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from federated.conftest import Broken
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import cedar, clients, declare, memory_namespace, request_for

from lance_bridge.paging import encode_token
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.permissions import CREATING, is_table_operation
from lance_bridge_server.lancedb import DatabasePaths
from lance_bridge_server.operations import OPERATIONS, Operation
from lance_bridge_server.redaction import PublicAnswers

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#databases", "server.md#hidden-objects"),
]

SEEING = """
permit(principal == User::"all", action, resource);
permit(principal, action in Action::"see", resource)
    when { resource.name like "shown*" || resource.name == "many" };
"""
VISIBLE = ["shown1", "shown2", "shown3", "shown4"]
CATALOG_POLICIES = """
permit(principal == User::"ann", action, resource in Namespace::"prod");
permit(principal == User::"owner", action, resource);
"""


# -- listings, in full pages -----------------------------------------------------------------------


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


# -- catalogs of a federation, some of which do not answer -----------------------------------------


@pytest.fixture(scope="module")
def vault() -> Broken:
    return Broken(ServiceUnavailableError("vault.internal:9083 refused the connection"))


@pytest.fixture(scope="module")
def federation(vault: Broken, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("federation")
    inner = memory_namespace(directory)
    declare(inner, "open.t")
    federated = FederatedNamespace({"prod": inner, "spare": inner, "vault": vault})
    with clients(federated, cedar(directory, CATALOG_POLICIES)) as client_of:
        yield client_of


def answer(response: Any, catalog: str) -> tuple[int, str]:
    content = response.json() if response.content else {}
    content.pop("context", None)
    text = str(content).replace(catalog, "CATALOG")
    return response.status_code, text


@pytest.mark.servers
@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.has_id],
    ids=lambda each: each.path,
)
@pytest.mark.parametrize("names", [[], ["db"], ["db", "t"], ["a", "b", "c"], ["d b", "t"]], ids=str)
def test_a_hidden_catalog_answers_as_one_that_does_not_exist(
    federation: Any, vault: Broken, operation: Operation, names: list[str]
) -> None:
    expected = answer(federation("ann")(**request_for(operation, ["absent", *names])), "absent")
    for hidden in ("spare", "vault"):
        found = federation("ann")(**request_for(operation, [hidden, *names]))
        assert answer(found, hidden) == expected
    assert vault.asked == 0


@pytest.mark.servers
@pytest.mark.parametrize("prefix", [(), ("all",)], ids=["as the root", "in a federation"])
def test_a_hidden_catalog_of_a_served_federation_answers_alike(
    tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    """A catalog with impl=federated is inside the object that removes private options."""

    def connect() -> Any:
        raise ServiceUnavailableError("vault.internal:9083 refused the connection")

    federation = FederatedNamespace({"prod": memory_namespace(tmp_path), "vault": connect})
    served: Any = PublicAnswers(federation, ())
    if prefix:
        served = FederatedNamespace({"all": served})
    seen = CATALOG_POLICIES.replace('"prod"', '"' + ".".join((*prefix, "prod")) + '"')
    with clients(served, cedar(tmp_path, seen)) as client_of:
        for operation in (each for each in OPERATIONS if each.has_id):
            absent = request_for(operation, [*prefix, "absent", "db", "t"])
            hidden = request_for(operation, [*prefix, "vault", "db", "t"])
            found = answer(client_of("ann")(**hidden), "vault")
            assert found == answer(client_of("ann")(**absent), "absent"), operation.name


@pytest.mark.servers
def test_listings_do_not_name_a_hidden_catalog_that_does_not_answer(federation: Any) -> None:
    assert federation("ann")("GET", "/v1/table").json() == {"tables": ["prod$open$t"]}
    found = federation("owner")("GET", "/v1/table").json()
    assert list(found["context"]) == ["unavailable.vault"]


HIDDEN_CATALOGS = ("attic", "hall", "quiet")


@pytest.fixture
def send_listing(tmp_path: Path) -> Iterator[Any]:
    """Requests of one who may see some of the catalogs, with more below one of them."""
    inner = memory_namespace(tmp_path)
    declare(inner, "open.t")
    down = Broken(ServiceUnavailableError("refused the connection"))
    nest = FederatedNamespace({"attic": down, "hall": inner, "loft": inner, "yard": inner})
    federated = FederatedNamespace(
        {"attic": down, "nest": nest, "prod": inner, "quiet": inner, "shop": inner}
    )
    text = """permit(principal, action, resource)
        when { resource in Namespace::"nest.loft" || resource in Namespace::"nest.yard"
            || resource in Namespace::"prod" || resource in Namespace::"shop" };"""
    with clients(federated, cedar(tmp_path, text)) as client_of:

        def send(token: str | None) -> Any:
            params = {"limit": "1", **({"page_token": token} if token else {})}
            response = client_of("ann")("GET", "/v1/table", params=params)
            assert response.status_code == 200, response.text
            return response.json()

        yield send


def texts_in(token: str) -> Iterator[str]:
    """Yield the texts in a page token, and in those that it holds."""
    try:
        content = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        return
    for each in content:
        if isinstance(each, str):
            yield each
            yield from texts_in(each)


@pytest.mark.servers
def test_page_tokens_name_no_hidden_catalog(send_listing: Any) -> None:
    found, token = [], None
    while True:
        page = send_listing(token)
        found += page["tables"]
        assert "context" not in page
        if not (token := page.get("page_token")):
            break
        assert not set(HIDDEN_CATALOGS) & set(texts_in(token))
    assert found == ["nest$loft$open$t", "nest$yard$open$t", "prod$open$t", "shop$open$t"]


@pytest.mark.servers
@pytest.mark.parametrize("inner", ["", "x", encode_token("all tables", ("open", "s"))])
def test_a_changed_page_token_does_not_say_that_a_catalog_exists(
    send_listing: Any, inner: str
) -> None:
    scope = "all tables of all catalogs"
    for hidden, absent in (("attic", "basement"), ("quiet", "q"), ("hall", "h")):
        tokens = [encode_token(scope, (name, inner, name)) for name in (hidden, absent)]
        if hidden == "hall":
            tokens = [encode_token(scope, ("nest", each)) for each in tokens]
        answers = [send_listing(each) for each in tokens]
        assert answers[0] == answers[1]


@pytest.mark.servers
@pytest.mark.spec("server.md#requests")
@pytest.mark.parametrize("names", [["x"] * 33, ["x" * 8193]], ids=["names", "characters"])
@pytest.mark.parametrize("user", ["ann", "owner"])
def test_an_identifier_that_no_catalog_has_is_not_decided_on(
    federation: Any, user: str, names: list[str]
) -> None:
    """A decision on thousands of names would take minutes and gigabytes."""
    version = {"version": 1, "manifest_path": "m"}
    requests = [
        ("version/batch-create", {"entries": [{"id": names, **version}]}),
        ("batch-commit", {"operations": [{"declare_table": {"id": names}}]}),
        ("prod$open$t/rename", {"new_namespace_id": names, "new_table_name": "t"}),
    ]
    for path, body in requests:
        response = federation(user)("POST", f"/v1/table/{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (400, 13), response.text
    response = federation(user)("POST", f"/v1/namespace/{'$'.join(names)}/describe", json={})
    assert (response.status_code, response.json()["code"]) == (400, 13), response.text


# -- protected tables ------------------------------------------------------------------------------


@pytest.mark.spec("common.md#protected-tables-and-namespaces")
def test_what_is_protected_is_said_of_the_object_of_the_request_alone(tmp_path: Path) -> None:
    memory = memory_namespace(tmp_path)
    declare(memory, "db.kept", "db.other")
    memory.tables.load_by_id(["db", "kept"]).set_properties({"protected": "true"})
    policies = 'permit(principal == User::"ann", action, resource);'
    with clients(memory, cedar(tmp_path, policies)) as client_of:
        ann = client_of("ann")
        for operation in ("drop", "deregister"):
            answer = ann("POST", f"/v1/table/db$kept/{operation}", json={})
            assert "set its property 'protected' to false first" in answer.text
        answer = ann("POST", "/v1/namespace/db/drop", json={"behavior": "Cascade"})
        assert answer.json()["code"] == 19
        assert "kept" not in answer.text
