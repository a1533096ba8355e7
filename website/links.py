"""Checks the links of a built site: each must lead to a file, and a fragment to an element.

Pages must not load anything from other sites: no script, style, font or picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"img", "iframe", "link", "script", "source"}
_NOT_LOADED = {"alternate", "canonical", "next", "prev"}
"""The types (`rel`) of a `link` that browsers do not load."""


class _Page(HTMLParser):
    """The links and identifiers of a page, and the files that a browser loads with it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.identifiers: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.identifiers |= {given.get("id", ""), given.get("name", "") if tag == "a" else ""}
        links = [given[name] for name in ("href", "src") if name in given]
        self.links += links
        if tag in _LOADED and given.get("rel") not in _NOT_LOADED:
            self.loaded += links


@cache
def _page(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(site: Path) -> Iterator[str]:
    """Yield the broken links and the files loaded from other sites, with their pages."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its links are relative to the root of the server
            continue
        for link in dict.fromkeys(_page(path).links):
            if not _leads_somewhere(path, link):
                yield f"{path.relative_to(site)}: a link leads nowhere: {link}"
        for link in _page(path).loaded:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(site)}: it is loaded from another site: {link}"


def _leads_somewhere(page: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return target.suffix != ".html" or unquote(parts.fragment) in _page(target).identifiers
