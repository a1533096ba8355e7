"""Several methods of authentication at once, anonymous requests, and trusted proxies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from lance_bridge_server.authentication.key_file import ApiKeyFile

from .authenticated import LIST, Served, serving_settings
from .certificates import Authority, loopback, tls_client
from .identity_provider import AUDIENCE, identity_provider
from .sockets import dial, head

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("server.md#a-trusted-proxy", "server.md#authentication"),
]

LOCAL, OTHER = "127.0.0.0/8", "10.0.0.0/8"


def proxy(*networks: str, **options: Any) -> dict[str, Any]:
    return {"method": "proxy", "networks": list(networks), **options}


def ask(served: Served, *headers: tuple[str, str]) -> tuple[int, str]:
    """Return the status, and the name of the principal or the text of the error."""
    answer = httpx.get(f"{served.url}{LIST}", headers=list(headers))
    if answer.status_code != 200:
        assert answer.json()["code"] == 16
        return answer.status_code, answer.json()["error"]
    return 200, served.last.name


def test_a_proxy_names_the_user_and_the_groups(tmp_path: Path) -> None:
    method = proxy(LOCAL, groups_header="x-forwarded-groups")
    with serving_settings(tmp_path, authentication=[method]) as served:
        user, groups = ("X-Forwarded-User", "ann"), ("X-Forwarded-Groups", "x, y,,")
        assert ask(served, user, groups) == (200, "ann")
        assert served.last.groups == {"x", "y"}
        assert served.last.method == "proxy"
        assert ask(served)[0] == 401
        assert "several times" in ask(served, user, ("x-forwarded-user", "root"))[1]
        assert "several times" in ask(served, user, groups, groups)[1]
        for wrong in ("", "a" * 300, "a\tb"):
            assert ask(served, ("x-forwarded-user", wrong))[0] == 401


def test_no_header_names_groups_by_default(tmp_path: Path) -> None:
    with serving_settings(tmp_path, authentication=[proxy(LOCAL)]) as served:
        groups = ("X-Forwarded-Groups", "admins")
        assert ask(served, ("X-Forwarded-User", "ann"), groups) == (200, "ann")
        assert served.last.groups == frozenset()


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_the_header_means_nothing_from_other_addresses(tmp_path: Path) -> None:
    with serving_settings(tmp_path, authentication=[proxy(OTHER, "unix")]) as served:
        user = ("x-forwarded-user", "ann")
        assert ask(served, user)[0] == 401
        # What a client says of its own address does not make it a proxy.
        for header in ("x-forwarded-for", "x-real-ip", "forwarded"):
            assert ask(served, user, (header, "10.0.0.1"))[0] == 401
    settings: dict[str, Any] = {"authentication": [proxy(OTHER)], "allow_anonymous": True}
    with serving_settings(tmp_path, **settings) as served:
        assert ask(served, user) == (200, "anonymous")


@pytest.mark.spec("server.md#requests")
def test_trailers_are_no_headers(tmp_path: Path) -> None:
    """A proxy that removes a client's own headers may pass on its trailers."""
    method = proxy(LOCAL, groups_header="x-forwarded-groups")
    trailers = b"X-Forwarded-User: root\r\nX-Forwarded-Groups: admins\r\n"

    def send(served: Served, *headers: str) -> bytes:
        chunked = ("Transfer-Encoding: chunked", "Connection: close", *headers)
        with dial(served.url) as connection:
            connection.sendall(head(LIST, *chunked, method="GET") + b"0\r\n" + trailers + b"\r\n")
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))[:12]

    with serving_settings(tmp_path, authentication=[method]) as served:
        assert send(served) == b"HTTP/1.1 401"
        assert send(served, "X-Forwarded-User: ann") == b"HTTP/1.1 200"
        assert (served.last.name, served.last.groups) == ("ann", frozenset())


def test_headers_of_other_names_are_configured(tmp_path: Path) -> None:
    method = proxy(LOCAL, header="remote-user")
    with serving_settings(tmp_path, authentication=[method]) as served:
        groups = ("x-forwarded-groups", "x")
        assert ask(served, ("remote-user", "ann"), groups) == (200, "ann")
        assert served.last.groups == frozenset()
        assert ask(served, ("x-forwarded-user", "ann"))[0] == 401


def test_a_proxy_reaches_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listeners = [{"socket": str(path), "mode": "0660"}]
    with serving_settings(tmp_path, authentication=[proxy("unix")], listeners=listeners) as served:
        assert served.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o660
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, headers={"x-forwarded-user": "ann"}) as client:
            assert client.get(f"http://local{LIST}").status_code == 200
        assert served.last.name == "ann"


def test_all_methods_at_once(tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.json")
    key, _ = file.add("of-the-key")
    authority = Authority(tmp_path)
    certificate, private = authority.issue("server", names=loopback())
    tls = {"certificate": certificate, "key": private, "client_ca": authority.path}
    with identity_provider("okta") as provider:
        methods = [
            {"method": "client_certificates"},
            {"method": "api_keys", "file": str(file.path)},
            {"method": "oidc", "issuer": provider.issuer, "audiences": [AUDIENCE]},
            proxy(LOCAL),
        ]
        bearer = {"authorization": f"Bearer {provider.token(sub='of-the-token')}"}
        with serving_settings(tmp_path / "lake", tls=tls, authentication=methods) as served:
            pair = authority.issue("of-the-certificate")
            cases: list[tuple[dict[str, str], Any, str]] = [
                ({}, pair, "of-the-certificate"),
                ({"x-api-key": key}, None, "of-the-key"),
                (bearer, None, "of-the-token"),
                ({"x-forwarded-user": "of-the-proxy"}, None, "of-the-proxy"),
                ({"x-api-key": key, **bearer}, pair, "of-the-certificate"),
                ({"x-api-key": key, **bearer}, None, "of-the-key"),
                ({**bearer, "x-forwarded-user": "x"}, None, "of-the-token"),
            ]
            for headers, cert, name in cases:
                with tls_client(authority, cert) as client:
                    answer = client.get(f"{served.url}{LIST}", headers=headers)
                assert (answer.status_code, served.last.name) == (200, name)
            wrong = [
                ({"x-api-key": key[:-1]}, pair),
                ({"x-api-key": "none"}, pair),
                ({"x-api-key": key, "authorization": "Bearer x"}, None),
                ({"x-api-key": key, "authorization": f"{bearer['authorization']}x"}, None),
                ({**bearer, "x-forwarded-user": ""}, None),
            ]
            for headers, cert in wrong:
                with tls_client(authority, cert) as client:
                    answer = client.get(f"{served.url}{LIST}", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, 16), headers


def test_a_wrong_credential_is_refused_where_none_is_needed(tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.json")
    key, _ = file.add("ann")
    methods = [{"method": "api_keys", "file": str(file.path)}]
    settings: dict[str, Any] = {"authentication": methods, "allow_anonymous": True}
    with serving_settings(tmp_path / "lake", **settings) as served:
        assert ask(served) == (200, "anonymous")
        assert ask(served, ("x-api-key", key)) == (200, "ann")
        for wrong in (key[:-1], "none", "a.b.c"):
            assert ask(served, ("x-api-key", wrong))[0] == 401
            assert ask(served, ("authorization", f"Bearer {wrong}"))[0] == 401


def test_a_server_that_reads_no_keys_takes_the_one_that_lancedb_must_send(tmp_path: Path) -> None:
    with serving_settings(tmp_path) as served:
        assert ask(served, ("x-api-key", "none")) == (200, "anonymous")
    with serving_settings(tmp_path, authentication=[proxy(LOCAL)]) as served:
        headers = ("x-api-key", "none"), ("x-forwarded-user", "ann")
        assert ask(served, *headers) == (200, "ann")
        assert ask(served, headers[0])[0] == 401
