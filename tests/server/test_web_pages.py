"""Web pages of other origins, and the names that a server without authentication answers for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from server.http_requests import done, refused
from server.serving import serving, serving_namespace
from starlette.types import Scope

from lance_bridge_server.access.origins import LocalHosts
from lance_bridge_server.app import create_app
from lance_bridge_server.config.settings import ServerSettings
from lance_bridge_server.config.source import SettingsSource
from lance_bridge_server.run.factory import gateway_from_source

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#serve", "server.md#web-pages")]

# -- other origins ---------------------------------------------------------------------------------


LIST = "/v1/namespace/$/list"
PAGE = "https://app.example.com"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "GET",
    "access-control-request-headers": "x-api-key",
}


def of_cors(answer: httpx.Response) -> dict[str, str]:
    return {key: text for key, text in answer.headers.items() if key.startswith("access-control")}


def test_browsers_are_allowed_nothing_by_default(http: httpx.Client) -> None:
    answer = http.get(LIST, headers={"origin": PAGE})
    done(answer)
    preflight = http.request("OPTIONS", LIST, headers=PREFLIGHT)
    refused(preflight, 405, 13)
    assert of_cors(answer) == of_cors(preflight) == {}


def test_configured_origins_are_allowed(namespace: Any) -> None:
    content = {"catalogs": {"c": {}}, "cors": {"origins": [PAGE]}}
    settings = ServerSettings.model_validate(content)
    with (
        serving_namespace(namespace, cors=settings.cors) as url,
        httpx.Client(base_url=url) as client,
    ):
        preflight = client.request("OPTIONS", LIST, headers=PREFLIGHT)
        assert preflight.status_code == 200
        assert of_cors(preflight)["access-control-allow-origin"] == PAGE
        done(client.post("/v1/namespace/new/create", json={}, headers={"origin": PAGE}))
        answer = client.get(LIST, headers={"origin": PAGE})
        assert of_cors(answer)["access-control-allow-origin"] == PAGE
        assert "x-request-id" in of_cors(answer)["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in of_cors(answer)
        other = {**PREFLIGHT, "origin": "https://evil.example.com"}
        assert client.request("OPTIONS", LIST, headers=other).status_code == 400
        found = of_cors(client.get(LIST, headers={"origin": "https://evil.example.com"}))
        assert "access-control-allow-origin" not in found


# -- names of the server ---------------------------------------------------------------------------


KEYS = {"authentication": [{"method": "proxy", "networks": ["127.0.0.1"], "header": "host"}]}


@contextmanager
def served(directory: Path, **settings: Any) -> Iterator[str]:
    """Serve a directory; yield the address."""
    catalogs = {"lake": {"impl": "dir", "root": str(directory)}}
    gateway = gateway_from_source(SettingsSource(overrides={"catalogs": catalogs, **settings}))
    with serving(create_app(gateway)) as url:
        yield url


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("lake")) as url:
        yield url


def answer(url: str, host: str, path: str = LIST) -> httpx.Response:
    """Return the answer of a server for a host."""
    port = url.rpartition(":")[2]
    headers = {"host": host.replace("PORT", port), "origin": f"http://{host}"}
    return httpx.get(f"{url}{path}", headers=headers, timeout=30)


@pytest.mark.parametrize("host", ["evil.example:PORT", "evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("path", [LIST, "/ui", "/metrics"])
def test_a_page_whose_name_resolves_to_this_machine_is_refused(
    url: str, host: str, path: str
) -> None:
    assert "Host" in refused(answer(url, host, path), 403, 15)


@pytest.mark.parametrize(
    "host", ["localhost:PORT", "LOCALHOST", "127.0.0.1:PORT", "127.0.0.1", "[::1]:PORT", "[::1]"]
)
def test_this_machine_is_answered(url: str, host: str) -> None:
    done(answer(url, host))


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("lake.example.com:8443", {"login": {"address": "https://lake.example.com:8443"}}),
        ("lake.example.com", {"allow_anonymous": True}),
        ("lake.example.com", KEYS),
    ],
    ids=["the address in browsers", "for other machines", "with authentication"],
)
def test_servers_with_other_names_answer_for_them(
    tmp_path: Path, host: str, settings: dict[str, Any]
) -> None:
    with served(tmp_path, **settings) as url:
        done(answer(url, host))


@pytest.mark.parametrize("client", [None, ("", 0)])
def test_requests_by_a_unix_socket_may_have_any_host(client: Any) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, *_: object) -> None:
        seen.append(scope)

    scope = {"type": "http", "client": client, "headers": [(b"host", b"lake")]}
    hosts = LocalHosts(app, (), lambda *_: pytest.fail("it is refused"))
    unused: Any = None
    anyio.run(hosts.__call__, scope, unused, unused)
    assert seen == [scope]
