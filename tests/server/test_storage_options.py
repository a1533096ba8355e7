"""Storage options in answers: public ones, and credentials by the rights of the principal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS, MemoryNamespace, MemoryServer
from core.vending import ASKED, vendor_properties
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError
from server.policies import cedar, clients, memory_namespace

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.storage_options import option_names, public_only
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.catalogs import connect_catalogs
from lance_bridge_server.configuration.settings import ServerSettings

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "common.md#vending-rules",
        "server.md#authorization",
        "server.md#storage-options-in-responses",
    ),
]

# -- public options --------------------------------------------------------------------------------


STORAGE = {
    "storage.aws_region": "eu-1",
    "storage.endpoint": "http://s3.local",
    "storage.aws_secret_access_key": "hidden-1",
    "storage.aws_access_key_id": "hidden-2",
    "storage.timeout": "5s",
}


class OtherNamespace(LanceNamespace):
    """A namespace of another library, which answers with all options that it has."""

    def __init__(self, **properties: str) -> None:
        stored = {key: value for key, value in properties.items() if key.startswith("storage.")}
        self._options = {key.removeprefix("storage."): value for key, value in stored.items()}

    def namespace_id(self) -> str:
        return "other"

    def declare_table(self, request: api.DeclareTableRequest) -> api.DeclareTableResponse:  # noqa: ARG002 - of the trait
        return api.DeclareTableResponse(storage_options=self._options)

    def batch_commit_tables(self, request: Any) -> api.BatchCommitTablesResponse:
        result = api.CommitTableResult(declare_table=self.declare_table(request))
        return api.BatchCommitTablesResponse(results=[result])


IMPL = f"{__name__}.OtherNamespace"


def declared(settings: dict[str, Any]) -> Any:
    """Return the storage options that a catalog's table is declared with."""
    content = {"catalogs": {"c": {"impl": IMPL, **STORAGE}}, **settings}
    known = ServerSettings.model_validate(content)
    namespace: Any = connect_catalogs(known, {})["c"]
    table = api.DeclareTableRequest(id=["t"])
    batch = namespace.batch_commit_tables(api.BatchCommitTablesRequest(operations=[]))
    answer = namespace.declare_table(table)
    assert batch.results[0].declare_table.storage_options == answer.storage_options
    return answer.storage_options


@pytest.mark.parametrize(
    ("settings", "public"),
    [
        ({}, {"aws_region": "eu-1", "endpoint": "http://s3.local"}),
        ({"public_storage_options": ["aws_timeout"]}, {"timeout": "5s"}),
        ({"public_storage_options": []}, None),
    ],
)
def test_regions_and_endpoints_are_public_unless_the_configuration_names_others(
    settings: dict[str, Any], public: dict[str, str] | None
) -> None:
    assert declared(settings) == public


@pytest.mark.parametrize("option", ["aws_secret_access_key", "access_key_id", "sas", "unheard_of"])
def test_a_credential_is_never_public(option: str) -> None:
    with pytest.raises(ValueError, match="may be a credential"):
        ServerSettings.model_validate({"catalogs": {"c": {}}, "public_storage_options": [option]})


def test_a_catalog_has_its_own_list() -> None:
    uri = {"impl": "hive", "uri": "thrift://127.0.0.1:1"}
    own = {"credentials.public-options": "region, endpoint"}
    known = ServerSettings.model_validate({"catalogs": {"one": uri, "two": {**uri, **own}}})
    catalogs: Any = connect_catalogs(known, {})
    lists = [each.connection.config.public_options for each in catalogs.values()]
    assert option_names(lists[0]) == set(known.public_storage_options)
    assert option_names(lists[1]) == {"region", "endpoint"}
    secret = {"credentials.public-options": "aws_session_token"}
    bad = ServerSettings.model_validate({"catalogs": {"c": {**uri, **secret}}})
    with pytest.raises(InvalidInputError, match="may be a credential"):
        connect_catalogs(bad, {})


def test_a_federation_in_a_catalog_hands_out_no_credentials() -> None:
    inner = {f"catalog.files.{key}": value for key, value in STORAGE.items()}
    inner["catalog.files.impl"] = IMPL
    known = ServerSettings.model_validate({"catalogs": {"all": {"impl": "federated", **inner}}})
    namespace = connect_catalogs(known, {})["all"]
    answer = namespace.declare_table(api.DeclareTableRequest(id=["files", "t"]))
    assert answer.storage_options == {"aws_region": "eu-1", "endpoint": "http://s3.local"}


def test_the_store_may_be_named_in_front() -> None:
    options = {"AWS_REGION": "1", "region": "2", "azure_storage_account_name": "3", "token": "4"}
    assert public_only(options, option_names("region, account_name")) == {
        key: value for key, value in options.items() if key != "token"
    }


# -- credentials -----------------------------------------------------------------------------------


SECRET = "own-secret"
POLICIES = """
@id("seeing") permit(principal, action in Action::"see", resource);
@id("all") permit(principal == User::"writer", action, resource);
@id("read") permit(principal == User::"reader", action == Action::"query_table", resource);
@id("other") permit(principal == User::"other", action == Action::"query_table", resource);
@id("declare") permit(principal == User::"reader", action in
    [Action::"declare_table", Action::"set_location"], resource);
@id("hidden") forbid(principal, action, resource) when
    { resource in Namespace::"pay" || resource in Namespace::"prod.pay" };
"""
DESCRIBE = "/v1/table/db$t/describe"


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.nodeid
    yield name
    ASKED.pop(name, None)


@pytest.fixture
def namespace(tmp_path: Path, log: str) -> MemoryNamespace:
    memory_namespace(tmp_path)
    own = {
        "storage.aws_secret_access_key": SECRET,
        "storage.aws_access_key_id": "own-key",
        "storage.aws_region": "eu-1",
        "credentials.public-options": "region",
    }
    made = MemoryNamespace(uri=str(tmp_path), **own, **vendor_properties(log))
    made.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    made.register_table(api.RegisterTableRequest(id=["db", "t"], location="s3://lake/tables/t"))
    return made


@pytest.fixture(params=["one catalog", "federation"])
def client_of(
    namespace: MemoryNamespace, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """A function that returns a principal's client, of a gateway over one catalog or several."""
    root: Any = namespace
    if request.param == "federation":
        root = FederatedNamespace({"prod": namespace})
    with clients(root, cedar(tmp_path, POLICIES)) as made:

        def client(name: str) -> Any:
            def send(path: str, **body: Any) -> Any:
                if request.param == "federation":
                    path = path.replace("/db$", "/prod$db$")
                return made(name)("POST", path, json=body)

            return send

        yield client


def key(response: Any) -> str | None:
    assert response.status_code == 200, response.text
    options = response.json().get("storage_options") or {}
    assert SECRET not in response.text
    found: str | None = options.get("aws_access_key_id")
    return found


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_the_right_of_the_principal_decides(client_of: Any, log: str) -> None:
    assert key(client_of("writer")(DESCRIBE)) == "1-writer-write"
    assert key(client_of("reader")(DESCRIBE)) == "2-reader-read"
    assert [(each.principal, each.write) for each in ASKED[log]] == [
        ("writer", True),
        ("reader", False),
    ]


def test_who_may_not_read_a_table_gets_none_and_none_are_made(client_of: Any, log: str) -> None:
    response = client_of("viewer")(DESCRIBE)
    assert key(response) is None
    assert "storage_options" not in response.json()
    assert ASKED[log] == []


def test_none_are_made_for_a_request_that_declines_them(client_of: Any, log: str) -> None:
    response = client_of("writer")(DESCRIBE, vend_credentials=False)
    assert key(response) is None
    assert response.json()["storage_options"] == {"aws_region": "eu-1"}
    assert ASKED[log] == []


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_principals_of_equal_rights_share_none(client_of: Any) -> None:
    keys = [key(client_of(name)(DESCRIBE)) for name in ("reader", "other", "reader", "other")]
    assert keys == ["1-reader-read", "2-other-read", "1-reader-read", "2-other-read"]


def test_who_declares_a_table_gets_those_that_write_or_none(client_of: Any, log: str) -> None:
    path = "/v1/table/db${}/declare"
    assert key(client_of("reader")(path.format("a"), location="s3://lake/tables/a")) is None
    assert ASKED[log] == []
    writing = client_of("writer")(path.format("b"), location="s3://lake/tables/b")
    assert key(writing) == "1-writer-write"


def test_credentials_are_kept_by_no_cache(client_of: Any) -> None:
    assert client_of("reader")(DESCRIBE).headers["cache-control"] == "no-store"
    declared = client_of("writer")("/v1/table/db$n/declare", location="s3://lake/tables/n")
    assert declared.headers["cache-control"] == "no-store"
    assert "cache-control" not in client_of("viewer")(DESCRIBE).headers


def test_a_location_of_the_callers_choice_is_checked_before_anything_is_vended(
    client_of: Any, log: str, namespace: MemoryNamespace
) -> None:
    path = "/v1/table/db$x/declare"
    outside = client_of("writer")(path, location="s3://lake/private/x")
    inside_another = client_of("writer")(path, location="s3://lake/tables/t/data")
    around = client_of("writer")("/v1/table/db$y/register", location="s3://lake/tables")
    assert [outside.status_code, inside_another.status_code] == [403, 409]
    assert around.status_code == 200
    assert client_of("writer")("/v1/table/db$y/describe").json()["code"] == 15
    assert ASKED[log] == []
    names = namespace.list_tables(api.ListTablesRequest(id=["db"])).tables
    assert "x" not in names


def salaries(server: MemoryServer, table: TableRecord | None) -> None:
    """Add a hidden namespace, with a table."""
    server.namespaces[("pay",)] = NamespaceRecord(("pay",))
    if table is None:
        server.closed.add(("pay",))
    else:
        server.tables[table.path] = table


PAID = ("pay", "salaries")
OTHERS = {
    "overlaps": (TableRecord(PAID, "s3://lake/tables/paid", {"table_type": "lance"}), 19),
    "unreadable": (TableRecord.unreadable(PAID), 19),
    "closed namespace": (None, 15),
}


@pytest.mark.spec("server.md#hidden-objects")
@pytest.mark.parametrize("other", OTHERS)
def test_errors_about_a_shared_location_do_not_name_hidden_tables(
    client_of: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    other: str,
) -> None:
    send, (table, code) = client_of("writer"), OTHERS[other]
    location = "s3://lake/tables/paid/x"
    assert send("/v1/table/db$y/register", location=location).status_code == 200
    salaries(SERVERS[str(tmp_path)], table)
    refused = {
        "describe": send("/v1/table/db$y/describe"),
        "declare": send("/v1/table/db$x/declare", location=location),
        "declare again": send("/v1/table/db$y/declare", location=location),
        "count": send("/v1/table/db$y/count_rows"),
        "drop": send("/v1/table/db$y/drop"),
    }
    codes = {name: response.json()["code"] for name, response in refused.items()}
    assert codes == {**dict.fromkeys(refused, code), "declare again": 5}
    for name, response in refused.items():
        assert "pay" not in response.text, name
        assert "db.y" in response.text or "db.x" in response.text, name
        assert "the server's log" in response.text, name
    assert "pay" in caplog.text
