"""A figure of matplotlib's as part of a page: it has the page's font and colours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from xml.etree import ElementTree

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.figure import Figure

FOREGROUND = "#010203"
"""Becomes the colour of the page's text, whichever that is."""
BACKGROUND = "#fefdfc"
"""Becomes the colour behind it."""

_COLOURS = {FOREGROUND: "currentColor", BACKGROUND: "var(--page)"}
_FONT = re.compile(r"font-family: [^;]*;?\s*")
_NOTHING_ELSE = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def svg_of(draw: Callable[[], Figure], title: str, text: str) -> str:
    """Return a figure as an element ``svg``, without identifiers, styles and links.

    Args:
        title: Names it for those who do not see it.
        text: Says to them what it shows.
    """
    drawn = StringIO()
    with _settings():
        figure = draw()
        figure.patch.set_visible(False)
        for axes in figure.axes:
            axes.patch.set_visible(False)
        figure.savefig(drawn, format="svg", metadata=_NOTHING_ELSE)
    root = ElementTree.fromstring(drawn.getvalue())
    for each in list(root.iter()):
        _adopt(each)
    _name(root, title, text)
    return ElementTree.tostring(root, encoding="unicode")


@contextmanager
def _settings() -> Iterator[None]:
    """Draw as matplotlib does by default, whatever the user has set; texts stay texts."""
    with rc_context(), warnings.catch_warnings():
        rcdefaults()
        rcParams["svg.fonttype"] = "none"
        # Names in scripts that matplotlib has no font for: the page's has the letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _adopt(element: ElementTree.Element) -> None:
    """Make an element one of the page: several figures must not share names."""
    element.tag = element.tag.rpartition("}")[2]
    element.attrib.pop("id", None)
    for child in [each for each in element if each.tag.endswith(("metadata", "defs"))]:
        element.remove(child)
    style = element.attrib.get("style")
    if style is None:
        return
    style = _FONT.sub("", style)
    for colour, own in _COLOURS.items():
        style = style.replace(colour, own)
    element.set("style", style)


def _name(root: ElementTree.Element, title: str, text: str) -> None:
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "role": "img", "aria-label": title})
    for tag, content in (("desc", text), ("title", title)):
        element = ElementTree.Element(tag)
        element.text = content
        root.insert(0, element)
