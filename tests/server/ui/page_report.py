"""What the documentation has of the catalog page: its weight and times, and pictures of it.

Run it from `tests`: ``python -m server.ui.page_report figures`` prints the weight of each page, its
requests, and the time until a browser shows something. ``pictures ../docs/how-to`` writes
pictures of the data that its tests use.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page
from server.ui.chromium import DESKTOP, Tab, chromium, signed_in_pages

_ROUNDS = 5
ARTICLES = "prod/sales/articles"
MEASURED = {
    "catalogs": "/ui",
    "namespace": "/ui/namespace/many/db",
    "table": f"/ui/table/{ARTICLES}",
    "rows": f"/ui/rows/{ARTICLES}",
    "100 rows": f"/ui/rows/{ARTICLES}?size=100",
    "versions": f"/ui/versions/{ARTICLES}",
    "connect": f"/ui/connect/{ARTICLES}",
    "search": "/ui/search?q=articles&in=name",
    "health": "/ui/health",
}
PICTURED = {
    "catalogs": "/ui",
    "namespace": "/ui/namespace/prod/sales",
    "foreign": "/ui/other/prod/sales/invoices",
    "connect": f"/ui/connect/{ARTICLES}",
    "doctor": "/ui/doctor",
    "account": "/ui/account",
    "missing": "/ui/table/prod/sales/article",
    "table": f"/ui/table/{ARTICLES}",
    "rows": f"/ui/rows/{ARTICLES}?near=row:7&column=embedding&size=10",
    "search": "/ui/search?q=articles&in=name",
    "versions": f"/ui/versions/{ARTICLES}",
    "tag": f"/ui/tag/{ARTICLES}?name=good&version=2",
    "health": "/ui/health",
}
_FIGURES = """
async () => {
  await new Promise(shown => new PerformanceObserver((entries, observer) => {
    if (entries.getEntriesByName("first-contentful-paint").length) shown(observer.disconnect());
  }).observe({type: "paint", buffered: true}));
  const own = performance.getEntriesByType("navigation")[0];
  const all = [own, ...performance.getEntriesByType("resource")];
  return {
    bytes: all.reduce((sum, each) => sum + each.encodedBodySize, 0),
    requests: all.length,
    first: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    answered: own.responseEnd,
  };
}
"""


def print_figures() -> None:
    """Print a line for each page, with the medians of some rounds with an empty cache."""
    with TemporaryDirectory() as data, signed_in_pages(Path(data)) as served, chromium() as browser:
        with browser.new_context() as context:
            Tab(context.new_page(), served.url).sign_in(served.key)
            session = context.storage_state()
        print("| page | kB | requests | answered, ms | first content, ms |\n|---|---|---|---|---|")
        for name, path in MEASURED.items():
            rounds = [_measure(browser, session, f"{served.url}{path}") for _ in range(_ROUNDS)]
            figures = {key: median(each[key] for each in rounds) for key in rounds[0]}
            kilobytes = figures["bytes"] / 1000
            times = f"{figures['answered']:.0f} | {figures['first']:.0f}"
            print(f"| {name} | {kilobytes:.0f} | {figures['requests']:.0f} | {times} |", flush=True)


def _measure(browser: Browser, session: Any, url: str) -> dict[str, float]:
    size: Any = {"width": DESKTOP[0], "height": DESKTOP[1]}
    with browser.new_context(storage_state=session, viewport=size) as context:
        page = context.new_page()
        page.goto(url, wait_until="networkidle")
        figures: dict[str, float] = page.evaluate(_FIGURES)
        return figures


def write_pictures(directory: Path) -> None:
    """Write a picture of each page into a directory."""
    with TemporaryDirectory() as data, signed_in_pages(Path(data)) as served, chromium() as browser:
        size = {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, reduced_motion="reduce")  # type: ignore[arg-type]
        tab = Tab(context.new_page(), served.url)
        tab.open("/ui/login")
        _write(tab.page, directory, "login")
        tab.sign_in(served.key)
        for name, path in PICTURED.items():
            tab.open(path)
            tab.page.wait_for_load_state("networkidle")  # images are loaded when they are seen
            _write(tab.page, directory, name)


def _write(page: Page, directory: Path, name: str) -> None:
    page.screenshot(path=directory / f"browse-{name}.png")


if __name__ == "__main__":
    if sys.argv[1] == "figures":
        print_figures()
    else:
        write_pictures(Path(sys.argv[2]).resolve())
