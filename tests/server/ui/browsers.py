"""A browser's part over plain HTTP: pages as tests read them, cookies, forms, redirects."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx

_VOID = {"meta", "link", "img", "input", "br", "hr", "rect", "polyline", "path"}


@dataclass
class HtmlPage(HTMLParser):
    """A page that was parsed. Tags that are not closed in order are an error."""

    text: str = ""
    links: dict[str, str] = field(default_factory=dict)
    """Addresses by the text of their links."""
    cells: list[str] = field(default_factory=list)
    """The texts of all cells of tables, headings of lines among them."""
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """All tags, with their attributes."""
    scripts: str = ""
    """The text in elements `script` and `style`, of which pages have none."""
    code: list[str] = field(default_factory=list)
    """The texts of elements `pre`."""
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, text: str) -> HtmlPage:
        """Return a parsed page."""
        page = cls()
        page.feed(text)
        page.close()
        assert page._open == [], f"not closed: {page._open}"
        page.text = " ".join(page.text.split())
        return page

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))
        if tag in _VOID:
            return
        self._open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "pre":
            self.code.append("")
        if tag == "a":
            self._link, self._link_text = dict(attributes).get("href") or "", ""

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> without its start"
        assert self._open[-1] == tag, f"</{tag}> in {self._open}"
        self._open.pop()
        if tag == "a":
            self.links[" ".join(self._link_text.split())] = self._link

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            self.scripts += data
            return
        self.text += f" {data}"
        if "a" in self._open:
            self._link_text += data
        if "pre" in self._open:
            self.code[-1] += data
        if "td" in self._open or "th" in self._open:
            self.cells[-1] = f"{self.cells[-1]} {data}".strip()


class Browser:
    """Keeps cookies, follows redirects, and sends forms as browsers do."""

    def __init__(self, url: str, user: str = "") -> None:
        self.url = url
        self.http = httpx.Client(headers={"x-user": user} if user else {}, timeout=120)

    def get(self, path: str) -> httpx.Response:
        """Return a page, after all redirects."""
        return self.http.get(urljoin(self.url, path), follow_redirects=True)

    def submit(self, page: httpx.Response, path: str, **fields: str) -> httpx.Response:
        """Send the form of a page."""
        tags = HtmlPage.of(page.text).tags
        hidden = {
            each["name"]: each["value"]
            for tag, each in tags
            if tag == "input" and each.get("type") == "hidden"
        }
        headers = {"origin": self.url, "sec-fetch-site": "same-origin"}
        url = urljoin(self.url, path)
        data = {**hidden, **fields}
        return self.http.post(url, data=data, headers=headers, follow_redirects=True)

    def sign_in(self, key: str, next_: str = "/ui") -> httpx.Response:
        """Sign in by an API key, on the page that asks for it."""
        return self.submit(self.get(next_), "/ui/login", key=key)

    def sign_out(self) -> httpx.Response:
        """Sign out on the page of the account."""
        return self.submit(self.get("/ui/account"), "/ui/logout")

    def cookie(self, name: str) -> str:
        """Return the value of a cookie."""
        [found] = [each.value for each in self.http.cookies.jar if each.name.endswith(name)]
        return found or ""
