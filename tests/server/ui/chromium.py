"""Debian's Chromium, driven by Playwright, which downloads no browser of its own here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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
_SERIOUS = ("serious", "critical")


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

    def serious_findings(self, **options: Any) -> list[str]:
        """Return what axe finds that is serious or critical. Options are those of ``axe.run``."""
        if not AXE.exists():
            _skip("axe is not fetched")
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text())
        found: Any = self.page.evaluate("options => axe.run(options)", options)
        return [
            f"{each['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for each in found["violations"]
            if each["impact"] in _SERIOUS
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
