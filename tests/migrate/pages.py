"""Reading a page of HTML strictly: what is in it, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from lance_bridge_migrate.report import Report
from lance_bridge_migrate.report.page import page_of, plots_of

_VOID = {"meta", "br", "link", "img", "input", "hr", "base", "source", "embed", "track", "wbr"}
_LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "formaction", "poster",
            "background", "ping", "manifest"}  # fmt: skip
_ACTIVE = {"script", "link", "iframe", "object", "embed", "img", "base", "form", "video", "audio",
           "use", "image", "foreignobject", "template"}  # fmt: skip
_CSS_LOADS = re.compile(r"url\(|@import|image-set\(|expression\(", re.IGNORECASE)


@dataclass
class Element:
    """One element: its name in lower case, its attributes, and what is in it."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, as it is written."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    @property
    def words(self) -> str:
        """All text in it, as a browser shows it: one space for any number."""
        return " ".join(self.text.split())

    def all(self, tag: str = "") -> Iterator[Element]:
        """Yield it and all elements in it, or those of one name."""
        if tag in ("", self.tag):
            yield self
        for each in self.children:
            if isinstance(each, Element):
                yield from each.all(tag)

    def texts(self, tag: str) -> list[str]:
        """Return what a browser shows of each element of a name."""
        return [each.words for each in self.all(tag)]

    def one(self, tag: str) -> Element:
        [found] = self.all(tag)
        return found

    def with_id(self, name: str) -> Element:
        [found] = [each for each in self.all() if each.attributes.get("id") == name]
        return found

    def rows(self) -> list[list[str]]:
        """Return the cells of all rows of tables in it, without those of heads."""
        return [
            [each.words for each in row.children if isinstance(each, Element)]
            for body in self.all("tbody")
            for row in body.all("tr")
        ]

    def pairs(self) -> dict[str, str]:
        """Return rows of two cells as a mapping."""
        return {row[0]: row[1] for row in self.rows()}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        assert len(element.attributes) == len(attrs), f"an attribute of {tag} is set twice"
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(each.tag == "svg" for each in self.open), f"{tag} is closed at once"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"{tag} ends, and {self.open[-1].tag} is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:60]}")


def read(text: str) -> Element:
    """Return a page. Raises AssertionError where an element is not closed, or closed wrongly."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], [each.tag for each in reader.open]
    return reader.root.one("html")


def require_self_contained(page: Element) -> None:
    """Raise AssertionError where a page loads or runs anything, or uses an identifier twice."""
    for element in page.all():
        assert element.tag not in _ACTIVE, element
        names = set(element.attributes)
        assert not names & _LOADING, element
        assert not [name for name in names if name.startswith("on")], element
        style = element.text if element.tag == "style" else element.attributes.get("style", "")
        assert not _CSS_LOADS.search(style), style[:200]
    known = [each.attributes["id"] for each in page.all() if "id" in each.attributes]
    assert len(known) == len(set(known)) > 0
    [policy] = [each.attributes["content"] for each in page.all("meta")
                if each.attributes.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert policy.startswith("default-src 'none'")


def plots_on(page: Element) -> list[Element]:
    """Return the plots of a page. Raises AssertionError for a bar that has no width or colour."""
    found = list(page.all("figure"))
    for bar in (bar for each in found for bar in each.all("i")):
        assert re.fullmatch(r"width: [\d.]+%; background: #\w{6}", bar.attributes["style"]), bar
    return found


def page_of_report(report: Report) -> Element:
    """Return the page of a report, having checked what holds for all of them."""
    found = read(page_of(report, "report.json"))
    require_self_contained(found)
    assert len(plots_on(found)) == len(plots_of(report))
    return found
