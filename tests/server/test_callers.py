"""What a request gets by who calls: storage options, credentials, and a caller's connections."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import lance_namespace as api
import pytest
from core.memory_catalog import ASKED, SERVERS, MemoryNamespace, MemoryServer, vendor_properties
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError
from server.gateways import cedar, clients, done, memory_namespace, refused, serve_app
from servers.glue_server import ACCESS_KEY, ROLE, GlueServer
from servers.hive_entries import raw_client, raw_entry
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer
from starlette.requests import HTTPConnection

import lance_bridge_metastore.server
from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.storage_options import option_names, public_only
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.access.authentication import ANONYMOUS, Principal
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.gateway.callers import CallerNamespaces
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.run.catalogs import connect_callers, connect_catalogs, root_namespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "common.md#vending-rules",
        "server.md#authorization",
        "server.md#caller-identity",
        "server.md#storage-options-in-responses",
    ),
]

STORAGE = {
    "storage.aws_region": "eu-1",
    "storage.endpoint": "http://s3.local",
    "storage.aws_secret_access_key": "hidden-1",
    "storage.aws_access_key_id": "hidden-2",
    "storage.timeout": "5s",
}
USERS = ("ann", "bob")
THREADS, TABLES = 16, 6
_AUDIT = """
logger.audit.name = org.apache.hadoop.hive.metastore.HiveMetaStore.audit
logger.audit.level = info
"""


# -- public options --------------------------------------------------------------------------------


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


# -- catalogs that see who calls -------------------------------------------------------------------


class ByHeader:
    """Takes headers as the principal's name and token."""

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        name, token = connection.headers.get("x-name"), connection.headers.get("x-token")
        if name is None:
            return ANONYMOUS
        return Principal(name, frozenset({f"{name}s"}), "oidc", token=token)


def settings_of(catalog: dict[str, str], **identity: Any) -> ServerSettings:
    content = {"catalogs": {"c": catalog}, "caller_identity": {"catalogs": ["c"], **identity}}
    return ServerSettings.model_validate(content)


@contextmanager
def server(catalog: dict[str, str], **identity: Any) -> Iterator[str]:
    """Serve a catalog that sees who calls; yield the address."""
    settings = settings_of(catalog, **identity)
    catalogs = connect_catalogs(settings, {})
    gateway = Gateway(
        root_namespace(settings, catalogs),
        authenticator=ByHeader(),
        callers=connect_callers(settings, {}, catalogs),
    )
    with serve_app(create_app(gateway)) as url:
        yield url
    gateway.close()


def declare_tables(url: str, database: str, **tokens: str) -> None:
    """Have each user declare tables whose names begin with the user's, all at the same time."""
    barrier = threading.Barrier(THREADS)

    def work(number: int) -> None:
        user = USERS[number % len(USERS)]
        headers = {"x-name": user, "x-token": tokens.get(user, "")}
        with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
            barrier.wait(60)
            for each in range(TABLES):
                table = f"/v1/table/{database}${user}_{number}_{each}"
                body = {"location": f"/nowhere/{user}_{number}_{each}.lance"}
                done(client.post(f"{table}/declare", json=body))
                done(client.post(f"{table}/describe", json={}))
                assert client.get(f"/v1/namespace/{database}/table/list").status_code == 200

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))


@pytest.mark.servers
@pytest.mark.parametrize(
    ("release", "max_callers"),
    [
        ("2.3", 1),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("2.3", 100), ("3.1", 1), ("4.2", 1))
        ),
    ],
)
def test_hive_sees_the_user_of_each_request(
    metastores: Metastores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    max_callers: int,
) -> None:
    logging = lance_bridge_metastore.server._LOGGING + _AUDIT
    monkeypatch.setattr(lance_bridge_metastore.server, "_LOGGING", logging)
    conf = tmp_path / "metastore" / "conf"
    conf.mkdir(parents=True)
    (conf / "hive-log4j2.properties").write_text(logging)  # Hive 2 reads this one
    metastore = metastores.new(release, directory=tmp_path / "metastore")
    uri = f"thrift://127.0.0.1:{metastore.port}"
    catalog = {"impl": "hive", "uri": uri, "root": str(tmp_path / "root")}
    with server(catalog, max_callers=max_callers) as url:
        headers = {"x-name": "ann"}
        done(httpx.post(f"{url}/v1/namespace/c$db/create", json={}, headers=headers, timeout=60))
        declare_tables(url, "c$db")
    with raw_client(metastore.port) as raw:
        names = raw.get_all_tables("db")
    owners = {name: raw_entry(metastore.port, "db", name).owner for name in names}
    assert len(owners) == THREADS * TABLES
    assert all(owner == name.partition("_")[0] for name, owner in owners.items())
    log = metastore.log_path.read_text()
    created = re.findall(r"ugi=(\S+).*cmd=\S*\s*create_table\S* Table\(tableName:([a-z]+)_", log)
    assert len(created) == THREADS * TABLES
    assert all(user == prefix for user, prefix in created)
    metastore.close()


@pytest.mark.servers
def test_unity_gets_the_callers_own_token() -> None:
    tokens = {user: f"token-of-{user}" for user in USERS}
    with UnityServer(OPEN_SOURCE_0_6) as unity, HttpProxy(unity.url) as proxy:
        unity.add_catalog("main")
        catalog = {"impl": "unity", "host": proxy.endpoint, "token": "of-the-server"}
        with server({**catalog, "catalog": "main"}) as url:
            headers = {"x-name": "ann", "x-token": tokens["ann"]}
            done(httpx.post(f"{url}/v1/namespace/c$db/create", json={}, headers=headers))
            declare_tables(url, "c$db", **tokens)
            answer = httpx.get(f"{url}/v1/namespace/c/list", headers={"x-name": "key"})
            assert "authenticate with a bearer token" in refused(answer, 401, 16)
        seen = defaultdict(set)
        for request in proxy.requests:
            text = f"{request.path} {request.body.decode()}"
            for user in set(re.findall(rf"\b({'|'.join(USERS)})_\d", text)):
                seen[user].add(request.headers["authorization"])
        assert "Bearer of-the-server" not in {r.headers["authorization"] for r in proxy.requests}
    assert seen == {user: {f"Bearer {token}"} for user, token in tokens.items()}


@pytest.mark.servers
def test_glue_has_a_session_of_each_caller() -> None:
    with ExitStack() as stack:
        aws = stack.enter_context(GlueServer())
        glue, sts = (stack.enter_context(HttpProxy(aws.endpoint)) for _ in range(2))
        catalog = {
            **aws.properties,
            "impl": "glue",
            "endpoint": glue.endpoint,
            "assume_role_arn": ROLE,
            "assume_role_endpoint": sts.endpoint,
        }
        url = stack.enter_context(server(catalog))
        done(
            httpx.post(
                f"{url}/v1/namespace/c$db/create", json={}, headers={"x-name": "ann"}, timeout=60
            )
        )
        declare_tables(url, "c$db")
        asked = [parse_qs(each.body.decode()) for each in sts.requests]
        signed = defaultdict(set)
        for request in glue.requests:
            key = re.findall(r"Credential=([^/]+)/", request.headers["authorization"])
            for user in set(re.findall(rf"({'|'.join(USERS)})_\d+_\d", request.body.decode())):
                signed[user].update(key)
    assert sorted(each["SourceIdentity"][0] for each in asked) == list(USERS)
    assert all(each["RoleSessionName"] == each["SourceIdentity"] for each in asked)
    assert {user: len(keys) for user, keys in signed.items()} == {"ann": 1, "bob": 1}
    assert signed["ann"].isdisjoint(signed["bob"] | {ACCESS_KEY})


# -- callers that a catalog cannot see -------------------------------------------------------------


@pytest.mark.parametrize(
    ("catalog", "text"),
    [
        (
            {"impl": "dir", "root": "/tmp"},
            "does not support caller identity",
        ),
        ({"impl": "glue", "region": "eu-1"}, "needs 'assume_role_arn'"),
        (
            {"impl": "hive", "uri": "http://h:1/m", "http.token": "t"},
            "already sets its user with 'http.token'",
        ),
        (
            {"impl": "unity", "host": "http://h", "client_id": "c", "client_secret": "s"},
            "already sets its user with 'client_id'",
        ),
    ],
)
def test_what_a_catalog_needs_is_checked_at_the_start(catalog: dict[str, str], text: str) -> None:
    settings = settings_of(catalog)
    with pytest.raises(InvalidInputError, match=re.escape(text)):
        connect_callers(settings, {}, connect_catalogs(settings, {}))


def test_an_unknown_catalog_is_refused() -> None:
    content = {"catalogs": {"c": {"impl": "dir"}}, "caller_identity": {"catalogs": ["x"]}}
    with pytest.raises(InvalidInputError, match="there is no catalog 'x'"):
        connect_callers(ServerSettings.model_validate(content), {}, {})


def test_nobody_is_taken_for_the_server() -> None:
    with server({"impl": "hive", "uri": "thrift://127.0.0.1:1"}) as url:
        assert httpx.get(f"{url}/v1/namespace/$/list").json()["namespaces"] == ["c"]
        refused(httpx.get(f"{url}/v1/namespace/c/list"), 401, 16)
        for name in ("ann:admins", "ann,bob"):
            answer = httpx.get(f"{url}/v1/namespace/c/list", headers={"x-name": name})
            assert "does not accept the user name" in refused(answer, 403, 15)


class Kept(HiveNamespace):
    """A namespace that knows whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def callers(most: int) -> CallerNamespaces:
    uri = {"uri": "thrift://127.0.0.1:1"}
    return CallerNamespaces("c", Kept(**uri), lambda more: Kept(**uri, **more), most)


def user(name: str, *groups: str) -> Principal:
    return Principal(name, frozenset(groups), "api_key")


def test_groups_are_part_of_who_calls() -> None:
    known = callers(10)
    found: list[Any] = [known.of(user("ann", *groups)) for groups in ((), ("x",), ("y", "x"))]
    configs = [each.connection.config.user for each in found]
    assert configs == [("ann", []), ("ann", ["x"]), ("ann", ["x", "y"])]
    assert known.of(user("ann", "x", "y")) is found[2]


def test_those_used_least_recently_are_closed() -> None:
    known = callers(2)
    ann: Any = known.of(user("ann"))
    bob: Any = known.of(user("bob"))
    assert id(known.of(user("ann"))) == id(ann)
    known.of(user("eve"))
    assert (ann.is_closed, bob.is_closed) == (False, True)
    assert known.of(user("bob")) is not bob
    known.close()
    assert known.of(user("ann")) is not ann
