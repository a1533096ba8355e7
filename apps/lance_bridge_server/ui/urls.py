"""Addresses of pages: the page's name, and the percent-encoded names of the object it shows."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlencode

from lance_bridge.errors import invalid

ROOT = "/ui"


def address(page: str, names: Sequence[str] = (), /, **query: object) -> str:
    """Return the address of a page.

    Args:
        page: Such as ``table``; empty for the first page.
        names: The names of the namespace or table that it shows.
        query: Parameters; empty strings, False and None are left out.
    """
    parts = [ROOT, *([page] if page else []), *(quote(each, safe="") for each in names)]
    given = {key: value for key, value in query.items() if value not in (None, "", False)}
    return "/".join(parts) + (f"?{urlencode(given, doseq=True)}" if given else "")


def names_in(path: str) -> list[str]:
    """Return the names in the undecoded path of a request.

    Raises:
        InvalidInputError: (13) it is not UTF-8.
    """
    try:
        return [unquote(each, errors="strict") for each in path.split("/")] if path else []
    except UnicodeDecodeError:
        raise invalid("The names in the path are not UTF-8") from None
