"""The weight of each page, its requests, and the time until a browser shows something of it.

Run it from `tests`: ``python -m server.ui.page_figures``.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser
from server.ui.chromium import DESKTOP, Tab, chromium, signed_in_pages

_ROUNDS = 5
_ARTICLES = "prod/sales/articles"
PAGES = {
    "catalogs": "/ui",
    "namespace": "/ui/namespace/many/db",
    "table": f"/ui/table/{_ARTICLES}",
    "rows": f"/ui/rows/{_ARTICLES}",
    "100 rows": f"/ui/rows/{_ARTICLES}?size=100",
    "versions": f"/ui/versions/{_ARTICLES}",
    "connect": f"/ui/connect/{_ARTICLES}",
    "search": "/ui/search?q=articles&in=name",
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


def main() -> None:
    """Print a line for each page, with the medians of some rounds with an empty cache."""
    with TemporaryDirectory() as data, signed_in_pages(Path(data)) as served, chromium() as browser:
        with browser.new_context() as context:
            Tab(context.new_page(), served.url).sign_in(served.key)
            session = context.storage_state()
        print("| page | kB | requests | answered, ms | first content, ms |\n|---|---|---|---|---|")
        for name, path in PAGES.items():
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


if __name__ == "__main__":
    main()
