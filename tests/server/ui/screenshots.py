"""Pictures of the catalog page for the documentation, of the data that its tests use.

Run it from `tests`: ``python -m server.ui.screenshots ../docs/how-to``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page
from server.ui.chromium import Tab, chromium, signed_in_pages

ARTICLES = "prod/sales/articles"
PAGES = {
    "catalogs": "/ui",
    "namespace": "/ui/namespace/prod/sales",
    "others": "/ui/others/prod/sales",
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


def main(directory: Path) -> None:
    """Write the pictures."""
    with TemporaryDirectory() as data, signed_in_pages(Path(data)) as served, chromium() as browser:
        size = {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, reduced_motion="reduce")  # type: ignore[arg-type]
        tab = Tab(context.new_page(), served.url)
        tab.open("/ui/login")
        _write(tab.page, directory, "login")
        tab.sign_in(served.key)
        for name, path in PAGES.items():
            tab.open(path)
            tab.page.wait_for_load_state("networkidle")  # images are loaded when they are seen
            _write(tab.page, directory, name)


def _write(page: Page, directory: Path, name: str) -> None:
    page.screenshot(path=directory / f"browse-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
