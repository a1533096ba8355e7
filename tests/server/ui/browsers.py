"""A browser's part in signing in, over plain HTTP: cookies, forms, and where links lead."""

from __future__ import annotations

from urllib.parse import urljoin

import httpx
from server.ui.html_pages import HtmlPage


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
