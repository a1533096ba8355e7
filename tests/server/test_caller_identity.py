"""Catalogs that see who calls: every request with the connections of its own caller."""

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
import pytest
from lance_namespace.errors import InvalidInputError
from server.http_requests import done, refused
from server.serving import serving
from servers.glue_server import ACCESS_KEY, ROLE, GlueServer
from servers.hive_entries import raw_entry
from servers.hive_raw import raw_client
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer
from starlette.requests import HTTPConnection

import lance_bridge_metastore.server
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.callers import CallerNamespaces
from lance_bridge_server.catalogs import connect_callers, connect_catalogs, root_namespace
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.principals import ANONYMOUS, Principal

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#caller-identity")]


USERS = ("ann", "bob")
THREADS, TABLES = 16, 6
_AUDIT = """
logger.audit.name = org.apache.hadoop.hive.metastore.HiveMetaStore.audit
logger.audit.level = info
"""


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
    with serving(create_app(gateway)) as url:
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
            "does not support caller identity; only glue, hive, unity do",
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
