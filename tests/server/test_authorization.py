"""Authorization through HTTP: every operation, and every object that a request names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace.errors import InvalidTableStateError
from server.gateways import (
    ARROW,
    cedar,
    clients,
    declare,
    memory_namespace,
    one_row,
    operation_named,
    request_for,
)

import lance_bridge
from lance_bridge.catalog import NamespaceWords
from lance_bridge.errors import marking_other_entries
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.permissions import CREATING, LISTINGS, Access, is_table_operation
from lance_bridge_server.access.visibility import hide_other_objects
from lance_bridge_server.operations import OPERATIONS, Operation
from lance_bridge_server.redaction import PublicAnswers

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("server.md#authorization", "server.md#hidden-objects"),
]

POLICIES = """
@id("seeing") permit(principal in Group::"seers", action in Action::"see", resource);
@id("all") permit(principal == User::"owner", action, resource);
@id("half") permit(principal == User::"half", action, resource);
@id("half-not") forbid(principal == User::"half", action, resource)
    when { resource in Namespace::"closed" || resource == Table::"open.hidden" };
@id("maker") permit(principal == User::"maker", action in Action::"create", resource);
@id("keeper") permit(principal == User::"keeper", action, resource in Namespace::"open");
@id("adder") permit(principal == User::"adder", action, resource in Namespace::"open");
@id("adding") forbid(principal == User::"adder", action == Action::"delete_from_table", resource);
@id("kept") forbid(principal == User::"keeper",
    action in [Action::"set_location", Action::"write", Action::"drop_table"], resource);
"""
SEEING = {"describe_namespace", "namespace_exists", "describe_table", "table_exists", *LISTINGS}
UNSUPPORTED = {"refresh_materialized_view"}
"""What this namespace cannot do on any table, which it says first."""


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Any:
    namespace = memory_namespace(tmp_path_factory.mktemp("memory"))
    declare(namespace, "open.shown", "open.hidden", "closed.secret")
    return namespace


@pytest.fixture(scope="module")
def client_of(namespace: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with clients(namespace, cedar(tmp_path_factory.mktemp("policies"), POLICIES)) as client_of:
        yield client_of


def path_for(operation: Operation, table: str = "open.shown") -> list[str]:
    names = table.split(".")
    return names if is_table_operation(operation.name) else names[:-1]


def code_of(response: Any) -> int | None:
    return response.json()["code"] if response.status_code >= 400 else None


each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.path)


@each_operation
def test_who_sees_nothing_finds_nothing(client_of: Any, operation: Operation) -> None:
    response = client_of("nobody")(**request_for(operation, path_for(operation)))
    if operation.name == "list_all_tables":
        assert response.json()["tables"] == []
    elif operation.name == "create_namespace":
        assert code_of(response) == 15  # the root, where it would be, is no secret
    elif operation.name in UNSUPPORTED:
        assert (response.status_code, code_of(response)) == (406, 0)
    else:
        assert (response.status_code, code_of(response)) == (404, 1)


@each_operation
def test_who_sees_but_may_not_is_refused(client_of: Any, operation: Operation) -> None:
    response = client_of("seer", "seers")(**request_for(operation, path_for(operation)))
    if operation.name in SEEING:
        assert response.status_code == 200, response.text
    else:
        assert (response.status_code, code_of(response)) == (403, 15)


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.name not in {*CREATING, "list_all_tables"}],
    ids=lambda each: each.path,
)
def test_what_is_hidden_answers_as_what_is_missing(client_of: Any, operation: Operation) -> None:
    names = [("open.hidden", "open.absent"), ("closed.secret", "absent.secret")]
    if not is_table_operation(operation.name):
        names = names[1:]
    for hidden, missing in names:
        found, expected = (
            client_of("half")(**request_for(operation, path_for(operation, each)))
            for each in (hidden, missing)
        )
        status = 406 if operation.name in UNSUPPORTED else 404
        assert status == found.status_code == expected.status_code
        assert _without_names(found, hidden) == _without_names(expected, missing)


def _without_names(response: Any, table: str) -> tuple[dict[str, str], bytes]:
    varying = ("date", "x-request-id")
    headers = {key: value for key, value in response.headers.items() if key not in varying}
    body = response.content
    for name, label in zip(table.split("."), (b"NAMESPACE", b"TABLE"), strict=True):
        body = body.replace(name.encode(), label)
    return headers, body.replace(response.headers["x-request-id"].encode(), b"")


# -- objects in other places -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["create", "declare", "register"])
@pytest.mark.parametrize("table", ["open$hidden", "open$absent"])
def test_creating_needs_to_see(client_of: Any, name: str, table: str) -> None:
    """The answer is the same whether something is there: that it exists would be its secret."""
    operation = operation_named(f"{name}_table")
    response = client_of("maker")(**request_for(operation, table.split("$")))
    assert (response.status_code, code_of(response)) == (404, 1)
    response = client_of("half")(**request_for(operation, ["open", "hidden"]))
    assert (response.status_code, code_of(response)) == (403, 15)


def test_an_identifier_in_the_body_must_be_that_of_the_path(client_of: Any) -> None:
    body = {"id": ["open", "hidden"]}
    for table in ("open$shown", "open$hidden"):
        response = client_of("nobody")("POST", f"/v1/table/{table}/describe", json=body)
        assert code_of(response) == (13 if table == "open$shown" else 1)


def test_an_identifier_adds_nothing_to_the_names_of_all_tables(tmp_path: Path) -> None:
    """A directory ignores it, and lists all: the names would be checked as those of `open`."""
    namespace = lance_bridge.connect("dir", {"root": str(tmp_path / "root")})
    namespace.create_namespace(api.CreateNamespaceRequest(id=["open"]))
    namespace.declare_table(api.DeclareTableRequest(id=["secret"]))
    with clients(namespace, cedar(tmp_path, POLICIES)) as client_of:
        response = client_of("keeper")("GET", "/v1/table", json={"id": ["open"]})
        assert code_of(response) == 13
        assert client_of("keeper")("GET", "/v1/table").json()["tables"] == []


@pytest.mark.parametrize(
    ("target", "table", "code", "error"),
    [
        ("closed", "secret", 1, "Namespace not found: closed."),
        ("closed", "new", 1, "Namespace not found: closed."),
        ("absent", "new", 1, "Namespace not found: absent."),
        ("open", "hidden", 15, "is not allowed"),
    ],
)
def test_the_target_of_a_rename_is_checked(
    client_of: Any, target: str, table: str, code: int, error: str
) -> None:
    body = {"new_table_name": table, "new_namespace_id": [target]}
    response = client_of("half")("POST", "/v1/table/open$shown/rename", json=body)
    assert code_of(response) == code
    assert error in response.json()["error"]


def version(*path: str) -> dict[str, Any]:
    return {"id": path, "version": 1, "manifest_path": "m"}


def declared(*path: str, **more: str) -> dict[str, Any]:
    return {"declare_table": {"id": path, **more}}


def deregistered(*path: str) -> dict[str, Any]:
    return {"deregister_table": {"id": path}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("version/batch-create", {"entries": [version("open", "shown"), version("closed", "t")]}),
        ("batch-commit", {"operations": [declared("open", "new"), deregistered("closed", "t")]}),
        ("batch-commit", {"operations": [declared("closed", "new")]}),
    ],
)  # fmt: skip
def test_every_entry_of_a_batch_is_checked(
    client_of: Any, namespace: Any, path: str, body: dict[str, Any]
) -> None:
    response = client_of("half")("POST", f"/v1/table/{path}", json=body)
    assert "Namespace not found: closed" in response.json()["error"]
    assert sorted(namespace.list_tables(api.ListTablesRequest(id=["open"])).tables) == [
        "hidden", "shown",
    ]  # fmt: skip


SECRET = "/data/secret.lance"
IN_HEADER = {"Content-Type": ARROW, "x-lance-table-location": SECRET}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("open$new/declare", {"json": {"location": SECRET}}),
        ("open$new/register", {"json": {"location": SECRET}}),
        ("open$new/declare", {"json": {"properties": {"location": SECRET}}}),
        ("open$new/create", {"content": one_row(), "headers": IN_HEADER}),
        ("batch-commit", {"json": {"operations": [declared("open", "new", location=SECRET)]}}),
    ],
)
def test_a_location_takes_a_right_of_its_own(
    client_of: Any, path: str, sent: dict[str, Any]
) -> None:
    response = client_of("keeper")("POST", f"/v1/table/{path}", **sent)
    assert "is not allowed to perform set_location on 'open.new'" in response.json()["error"]


def test_a_location_must_be_what_it_says(client_of: Any) -> None:
    body = {"location": "s3://team-a/../team-b/t"}
    response = client_of("owner")("POST", "/v1/table/open$new/declare", json=body)
    assert code_of(response) == 13


def test_a_location_is_compared_in_one_spelling(tmp_path: Path) -> None:
    namespace = memory_namespace(tmp_path)
    declare(namespace, "open.t")
    text = """permit(principal, action, resource);
    forbid(principal, action == Action::"set_location", resource)
        when { context.location like "s3://closed/a/*" || context.location == "s3://closed/t" };"""
    with clients(namespace, cedar(tmp_path, text)) as client_of:
        for location in ("closed/t", "closed/./a/t", "closed/%61/t", "closed/%2E/a/t"):
            for scheme in ("s3", "s3a"):
                body = {"location": f"{scheme}://{location}"}
                response = client_of("eve")("POST", "/v1/table/open$new/register", json=body)
                assert code_of(response) == 15


def test_a_location_of_a_namespace_takes_a_right_of_its_own(tmp_path: Path) -> None:
    """Catalogs have their own words for it."""
    words = (NamespaceWords(location="database.location-uri"),)
    inner = memory_namespace(tmp_path, namespace_words=words)
    declare(inner, "open.t")
    text = """permit(principal, action in Action::"create", resource);
    permit(principal, action in Action::"see", resource);"""
    federation = FederatedNamespace({"prod": inner})
    # As the server connects a catalog that is itself a federation.
    served = PublicAnswers(federation, ())
    locations = ["s3://lake/closed", "hdfs://name:8020/closed", "/closed"]
    for namespace, prefix in (
        (inner, ""),
        (federation, "prod$"),
        (served, "prod$"),
        (FederatedNamespace({"all": served}), "all$prod$"),
    ):
        with clients(namespace, cedar(tmp_path, text)) as client_of:
            for key, location in product(["location", "database.location-uri"], locations):
                body = {"properties": {key: location}}
                response = client_of("eve")("POST", f"/v1/namespace/{prefix}new/create", json=body)
                error = response.json()["error"]
                assert "is not allowed to perform set_namespace_location" in error


def test_overwriting_takes_the_right_to_write(client_of: Any) -> None:
    create = operation_named("create_table")
    request = request_for(create, ["open", "shown"])
    response = client_of("keeper")(**{**request, "params": {"mode": "overwrite"}})
    assert "is not allowed to perform insert_into_table" in response.json()["error"]


DELETING = {"when_not_matched_by_source_delete": "true"}
LANCEDB = {"user-agent": "LanceDB-Python-Client"}


@pytest.mark.parametrize(
    ("user", "name", "params", "denied"),
    [
        ("appender", "insert_into_table", {"mode": "overwrite"}, "delete_from_table"),
        ("appender", "insert_into_table", {"mode": "Overwrite"}, "delete_from_table"),
        ("appender", "insert_into_table", {"mode": " overwrite"}, "delete_from_table"),
        ("appender", "insert_into_table", {"mode": "Append"}, None),
        ("appender", "insert_into_table", {}, None),
        ("appender", "create_table", {"mode": "overwrite"}, "delete_from_table"),
        ("writer", "create_table", {"mode": "overwrite"}, "drop_table"),
        ("appender", "create_table", {"mode": "exist_ok"}, None),
        ("appender", "create_table", {"mode": "ExistOk"}, None),
        ("appender", "merge_insert_into_table", DELETING, "delete_from_table"),
        (
            "appender",
            "merge_insert_into_table",
            {"when_not_matched_by_source_delete_filt": "id > 1"},
            "delete_from_table",
        ),
        ("writer", "merge_insert_into_table", DELETING, None),
    ],
)
def test_removing_rows_takes_the_right_to_delete_them(
    appending: Any, user: str, name: str, params: dict[str, str], denied: str | None
) -> None:
    operation = operation_named(name)
    request = request_for(operation, ["open", "t"])
    request["params"] = {**request.get("params", {}), **params}
    for headers in ({}, LANCEDB):
        response = appending(user)(**{**request, "headers": {**request["headers"], **headers}})
        if denied:
            assert f"is not allowed to perform {denied} on 'open.t'" in response.json()["error"]
        else:
            assert response.status_code == 200, response.text


@pytest.fixture(scope="module")
def appending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Principals that may add rows; one of them may delete them, too."""
    directory = tmp_path_factory.mktemp("appending")
    namespace = memory_namespace(directory)
    declare(namespace, "open.t")
    text = """permit(principal, action in [Action::"see", Action::"create",
        Action::"insert_into_table", Action::"merge_insert_into_table"], resource);
    permit(principal == User::"writer", action == Action::"delete_from_table", resource);"""
    with clients(namespace, cedar(directory, text)) as client_of:
        yield client_of


def test_a_view_takes_the_right_to_read_everything(client_of: Any) -> None:
    create = operation_named("create_materialized_view")
    response = client_of("keeper")(**request_for(create, ["open", "view"]))
    assert "is not allowed to perform query_table on the root namespace" in response.json()["error"]


def test_dropping_with_cascade_takes_the_right_to_drop_each_table(
    client_of: Any, namespace: Any
) -> None:
    body = {"behavior": "Cascade"}
    response = client_of("keeper")("POST", "/v1/namespace/open/drop", json=body)
    assert code_of(response) == 15
    assert namespace.list_tables(api.ListTablesRequest(id=["open"])).tables == ["hidden", "shown"]


def test_skipping_what_is_missing_skips_what_is_hidden(client_of: Any, namespace: Any) -> None:
    body = {"mode": "Skip", "behavior": "Cascade"}
    answers = [
        client_of("half")("POST", f"/v1/namespace/{name}/drop", json=body)
        for name in ("closed", "absent")
    ]
    assert answers[0].content == answers[1].content
    assert {each.status_code for each in answers} == {200}
    assert "closed" in namespace.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces


def test_letter_case_and_federations_are_no_way_around(tmp_path: Path) -> None:
    inner = memory_namespace(tmp_path, folds_case=True)
    declare(inner, "closed.secret")
    text = """permit(principal, action, resource);
    forbid(principal, action, resource in Namespace::"closed");
    forbid(principal, action, resource in Namespace::"prod.closed");
    forbid(principal, action, resource in Namespace::"hidden");"""
    federated = FederatedNamespace({"prod": inner, "hidden": inner})
    for namespace, table in ((inner, "CLOSED$Secret"), (federated, "prod$CLOSED$Secret")):
        with clients(namespace, cedar(tmp_path, text)) as client_of:
            for name in (table, table.lower()):
                response = client_of("eve")("POST", f"/v1/table/{name}/describe", json={})
                assert code_of(response) == 1
    with clients(federated, cedar(tmp_path, text)) as client_of:
        answers = [
            client_of("eve")("POST", f"/v1/table/{catalog}$db$t/describe", json={})
            for catalog in ("hidden", "absent")
        ]
        assert [each.status_code for each in answers] == [404, 404]
        assert answers[0].json()["error"].replace("hidden", "absent") == answers[1].json()["error"]


@pytest.mark.parametrize(
    ("user", "has_options"), [("owner", True), ("seer", False), ("keeper", True), ("adder", True)]
)
def test_storage_options_take_the_right_to_read(
    tmp_path: Path, user: str, has_options: bool
) -> None:
    memory_namespace(tmp_path)
    options = {"storage.region": "eu-west-1"}
    inner = MemoryNamespace(uri=str(tmp_path), root=str(tmp_path / "root"), **options)
    declare(inner, "open.t")
    text = POLICIES + POLICIES.replace('"open', '"prod.open').replace('@id("', '@id("prod-')
    for namespace, prefix in ((inner, ""), (FederatedNamespace({"prod": inner}), "prod$")):
        with clients(namespace, cedar(tmp_path, text)) as client_of:
            path = f"/v1/table/{prefix}open$t/describe"
            response = client_of(user, "seers")("POST", path, json={})
        assert response.status_code == 200
        assert bool(response.json().get("storage_options")) is has_options


def test_errors_do_not_name_hidden_tables(tmp_path: Path) -> None:
    namespace = memory_namespace(tmp_path)
    declare(namespace, "open.hidden")
    location = namespace.describe_table(api.DescribeTableRequest(id=["open", "hidden"])).location
    request = api.RegisterTableRequest(id=["open", "shown"], location=str(location))
    namespace.register_table(request)
    with clients(namespace, cedar(tmp_path, POLICIES)) as client_of:
        drop = client_of("half")("POST", "/v1/namespace/open/drop", json={})
        shared = client_of("half")("POST", "/v1/table/open$shown/drop")
        body = {"mode": "Overwrite"}
        replace = client_of("half")("POST", "/v1/namespace/open/create", json=body)
    assert [code_of(each) for each in (drop, shared, replace)] == [3, 19, 3]
    assert "hidden" not in drop.text + shared.text + replace.text


def test_errors_that_name_others_are_replaced_in_requests_with_several_objects(
    tmp_path: Path,
) -> None:
    accesses = [Access("create_materialized_view", ("open", "view")), Access("query_table", ())]
    named, other = InvalidTableStateError("as 'pay.t'"), InvalidTableStateError("of its own")
    with pytest.raises(InvalidTableStateError), marking_other_entries():
        raise named
    authorizer = cedar(tmp_path, POLICIES)
    answer = hide_other_objects(authorizer, named, accesses)
    assert type(answer) is InvalidTableStateError
    assert "'open.view'" in str(answer)
    assert "pay" not in str(answer)
    assert hide_other_objects(authorizer, other, accesses) is other
