"""Web pages of other origins: closed unless configured."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from server.http_requests import done, refused
from server.serving import serving

from lance_bridge_server.app import create_app
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#web-pages")]

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
    gateway = Gateway(namespace, cors=settings.cors)
    with serving(create_app(gateway)) as url, httpx.Client(base_url=url) as client:
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


@pytest.mark.parametrize("origins", [[], ["app.example.com"], ["https://a.com/path"], "*"])
def test_origins_are_checked(origins: Any) -> None:
    with pytest.raises(ValueError, match="cors"):
        ServerSettings.model_validate({"catalogs": {"c": {}}, "cors": {"origins": origins}})
