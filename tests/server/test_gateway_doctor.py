"""The doctor of a gateway: the catalogs that do not respond to it, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from server.authenticated import one_api_key
from server.gateways import serve_app
from servers.processes import free_port
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from typer.testing import CliRunner

from lance_bridge_cli.app import app
from lance_bridge_doctor import Finding, Kind, diagnose
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.breakers import ReadinessSettings
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#doctor", "cli.md#findings")]


class Answering(LanceNamespace):
    """A catalog that answers, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def namespace_id(self) -> str:
        return "answering"

    def list_namespaces(self, request: Any) -> Any:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        return api.ListNamespacesResponse(namespaces=[])


Serve = Callable[..., dict[str, str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve catalogs below a base path; return the properties of a client with credentials."""
    authenticator, key = one_api_key(tmp_path / "keys.json")
    contexts = []

    def start(**catalogs: LanceNamespace) -> dict[str, str]:
        gateway = Gateway(
            FederatedNamespace(catalogs),
            authenticator=authenticator,
            catalogs=catalogs,
            readiness=ReadinessSettings(keep=0.001),
        )
        context = serve_app(Starlette(routes=[Mount("/lake", create_app(gateway))]))
        contexts.append((context, gateway))
        return {"uri": f"{context.__enter__()}/lake/", "header.x-api-key": key}

    yield start
    for context, gateway in contexts:
        context.__exit__(None, None, None)
        gateway.health.close()


def only(properties: dict[str, str]) -> Finding:
    [found] = diagnose("rest", properties).findings
    return found


def test_a_gateway_whose_catalogs_respond_has_no_findings(serve: Serve) -> None:
    found = diagnose("rest", serve(one=Answering(), two=Answering()))
    assert (found.findings, found.catalogs) == ((), 2)


def test_a_catalog_that_is_down_is_found_with_the_time_and_the_reason(serve: Serve) -> None:
    down = Answering(ServiceUnavailableError("The metastore did not respond: connection refused."))
    properties = serve(one=Answering(), two=down)
    found = only(properties)
    assert (found.kind, found.subject) == (Kind.UNREACHABLE, "two")
    assert found.message.startswith("It has not responded to the gateway since 20")
    assert ": The metastore did not respond: connection refused. Start the" in found.message
    assert "lance-bridge doctor rest -p uri=" in found.command
    assert properties["header.x-api-key"] not in found.command
    down.error = None
    while diagnose("rest", properties).findings:
        pass


def test_without_credentials_the_finding_says_how_to_learn_more(serve: Serve) -> None:
    properties = serve(one=Answering(), two=Answering(ServiceUnavailableError("secret")))
    found = only({"uri": properties["uri"]})
    assert (found.kind, found.subject) == (Kind.UNREACHABLE, "two")
    assert "SERVICE_UNAVAILABLE" in found.message
    assert "-p header.x-api-key" in found.message
    assert "secret" not in found.message


def test_a_catalog_that_refuses_the_gateway_is_no_outage(serve: Serve) -> None:
    found = only(serve(two=Answering(UnauthenticatedError("the ticket has expired"))))
    assert (found.kind, found.subject) == (Kind.REFUSED, "two")
    assert "the ticket has expired. Correct the catalog's credentials" in found.message


def test_a_gateway_that_is_down_is_found() -> None:
    uri = f"http://user:password@127.0.0.1:{free_port()}"
    found = only({"uri": uri})
    assert found.kind is Kind.UNREACHABLE
    assert "does not respond: Connection refused. Start it, or correct uri" in found.message
    assert "password" not in found.message
    assert only({}).kind is Kind.CONFIGURATION


@pytest.mark.parametrize("content", [{"status": "up"}, ["catalogs"]])
def test_another_server_is_refused(content: Any) -> None:
    async def ready(_: Any) -> JSONResponse:
        return JSONResponse(content)

    with (
        serve_app(Starlette(routes=[Route("/readyz", ready)])) as url,
        pytest.raises(InvalidInputError, match="'rest' is no gateway of lance-bridge"),
    ):
        diagnose("rest", {"uri": url})


def test_the_command_takes_a_gateway_of_the_configuration(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = serve(one=Answering(), two=Answering(ServiceUnavailableError("no answer")))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"catalogs": {"gateway": {"impl": "rest", **properties}}}))
    path.chmod(0o600)
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    done = CliRunner().invoke(app, ["doctor", "gateway"])
    assert done.exit_code == 3, done.output
    assert "unreachable: two" in done.output
    assert "lance-bridge doctor gateway" in done.output
    assert "checked 2 catalogs of the gateway" in done.output
    assert properties["header.x-api-key"] not in done.output
    done = CliRunner().invoke(app, ["doctor", "gateway", "-o", "json"])
    answer = json.loads(done.stdout)
    assert [each["subject"] for each in answer["findings"]] == ["two"]
    assert answer["catalogs"] == 2
