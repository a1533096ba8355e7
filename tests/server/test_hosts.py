"""The names that a server without authentication answers for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from server.http_requests import done, refused
from server.serving import serving
from starlette.types import Scope

from lance_bridge_server.app import create_app
from lance_bridge_server.configuration.source import SettingsSource
from lance_bridge_server.hosts import LocalHosts
from lance_bridge_server.process.factory import gateway_from_source

LIST = "/v1/namespace/$/list"
KEYS = {"authentication": [{"method": "proxy", "networks": ["127.0.0.1"], "header": "host"}]}


def answer(tmp_path: Path, host: str, path: str = LIST, **settings: Any) -> httpx.Response:
    """Return the answer of a server for a host."""
    catalogs = {"lake": {"impl": "dir", "root": str(tmp_path)}}
    gateway = gateway_from_source(SettingsSource(overrides={"catalogs": catalogs, **settings}))
    with serving(create_app(gateway)) as url:
        port = url.rpartition(":")[2]
        headers = {"host": host.replace("PORT", port), "origin": f"http://{host}"}
        return httpx.get(f"{url}{path}", headers=headers, timeout=30)


@pytest.mark.parametrize("host", ["evil.example:PORT", "evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("path", [LIST, "/ui", "/metrics"])
def test_a_page_whose_name_resolves_to_this_machine_is_refused(
    tmp_path: Path, host: str, path: str
) -> None:
    assert "Host" in refused(answer(tmp_path, host, path), 403, 15)


@pytest.mark.parametrize(
    "host", ["localhost:PORT", "LOCALHOST", "127.0.0.1:PORT", "127.0.0.1", "[::1]:PORT", "[::1]"]
)
def test_this_machine_is_answered(tmp_path: Path, host: str) -> None:
    done(answer(tmp_path, host))


def test_the_address_in_browsers_is_answered(tmp_path: Path) -> None:
    login = {"address": "https://lake.example.com:8443"}
    done(answer(tmp_path, "lake.example.com:8443", login=login))


@pytest.mark.parametrize("settings", [{"allow_anonymous": True}, KEYS])
def test_servers_for_other_machines_answer_for_every_name(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    done(answer(tmp_path, "lake.example.com", **settings))


@pytest.mark.parametrize("client", [None, ("", 0)])
def test_requests_by_a_unix_socket_may_have_any_host(client: Any) -> None:
    served: list[Scope] = []

    async def app(scope: Scope, *_: object) -> None:
        served.append(scope)

    scope = {"type": "http", "client": client, "headers": [(b"host", b"lake")]}
    hosts = LocalHosts(app, (), lambda *_: pytest.fail("it is refused"))
    unused: Any = None
    anyio.run(hosts.__call__, scope, unused, unused)
    assert served == [scope]
