"""Debian's Chromium, driven by Playwright, and a gateway with all that it shows, to sign in to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import SERVERS
from playwright.sync_api import Browser, Page, sync_playwright
from server.authenticated import AUDIENCE, identity_provider
from server.gateways import cedar, serve_app

from lance_bridge.catalog import TableRecord
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.access.audit import open_audit_log
from lance_bridge_server.access.authentication import ApiKeyFile
from lance_bridge_server.app import create_app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.run.server import authenticator_from_settings, login_from_settings

from .conftest import POLICIES, make_catalogs

PROGRAM = Path("/usr/bin/chromium")
AXE = Path(__file__).parents[3] / ".cache/axe/node_modules/axe-core/axe.min.js"
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


def _skip(reason: str) -> NoReturn:
    """Skip the test, or fail it where the browser was installed for it, as in CI."""
    if os.environ.get("LANCE_BRIDGE_TEST_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser; skip the test where it is not installed."""
    if not PROGRAM.exists():
        _skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of the browser, and what went wrong on it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    """Errors of the console, of scripts and of requests; dialogs that were opened."""

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("requestfailed", self._on_failed)
        self.page.on("dialog", self._on_dialog)

    def open(self, path: str) -> int:
        """Open a page of the server; return the status."""
        response = self.page.goto(f"{self.url}{path}")
        assert response is not None
        return response.status

    def sign_in(self, key: str) -> None:
        """Sign in by an API key."""
        self.open("/ui/login")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/ui")

    def findings(self, **options: Any) -> list[str]:
        """Return what axe finds. Options are those of ``axe.run``."""
        if not AXE.exists():
            _skip("axe is not fetched")
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text())
        found: Any = self.page.evaluate("options => axe.run(options)", options)
        return [
            f"{each['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def _on_console(self, message: Any) -> None:
        # The browser itself says there that a page has the status of an error.
        is_status = message.text.startswith("Failed to load resource: the server responded with")
        if message.type in ("error", "warning") and not is_status:
            self.problems.append(message.text)

    def _on_failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the next page was opened meanwhile
            self.problems.append(f"{request.url}: {request.failure}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()


# -- the gateway -----------------------------------------------------------------------------------


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
CLIENT = "catalog-page"


@dataclass
class SignedInPages:
    """The gateway, and the API key of who may do everything."""

    url: str
    key: str


@contextmanager
def signed_in_pages(directory: Path) -> Iterator[SignedInPages]:
    """Serve the catalogs, with API keys and an identity provider."""
    with ExitStack() as stack:
        provider = stack.enter_context(identity_provider("keycloak"))
        provider.add_client(CLIENT)
        file = ApiKeyFile(directory / "keys.json")
        key, _ = file.add("ann")
        login = {"client_id": CLIENT, "label": "the company account"}
        known = ServerSettings.model_validate(
            {
                "catalogs": {"prod": {}},
                "authentication": [
                    {"method": "api_keys", "file": str(file.path)},
                    {
                        "method": "oidc",
                        "issuer": provider.issuer,
                        "audiences": [AUDIENCE],
                        "login": login,
                    },
                ],
            }
        )
        catalogs = _catalogs(directory)
        gateway = Gateway(
            FederatedNamespace(catalogs),
            authenticator=authenticator_from_settings(known),
            login=login_from_settings(known),
            authorizer=cedar(directory, POLICIES),
            audit=open_audit_log(directory / "audit.log"),
            catalogs=catalogs,
        )
        url = stack.enter_context(serve_app(create_app(gateway)))
        yield SignedInPages(url, key)


def _catalogs(directory: Path) -> dict[str, Any]:
    catalogs = make_catalogs(directory)
    prod = catalogs["prod"]
    properties = {HOSTILE: HOSTILE}
    prod.create_namespace(api.CreateNamespaceRequest(id=["hostile"], properties=properties))
    rows = pa.table({HOSTILE: [HOSTILE], "nested": [{HOSTILE: [HOSTILE]}]})
    lance.write_dataset(rows, namespace_client=prod, table_id=["hostile", "t"])
    server = SERVERS[str(directory / "prod")]
    for path, names, owner in (
        (("sales", "invoices"), ("number", "customer"), {"team": "finance"}),
        (("hostile", "other"), (HOSTILE, "id"), properties),
    ):
        fields = [{"name": name, "type": "string"} for name in names]
        schema = {
            "spark.sql.sources.schema": json.dumps({"fields": fields}),
            "spark.sql.sources.provider": "parquet",
        }
        server.tables[path] = TableRecord(
            path, f"s3://lake/{path[1]}", {**schema, **owner}, "EXTERNAL_TABLE"
        )
    return catalogs
