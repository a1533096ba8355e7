"""Addresses of pages: the page's name, and the percent-encoded names of the object it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from lance_bridge.errors import invalid

# -- addresses -------------------------------------------------------------------------------------


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


# -- templates -------------------------------------------------------------------------------------


SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer", browsers would send forms with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_DASH = "\N{EN DASH}"
PRIVATE_HEADERS: Final[Mapping[str, str]] = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
"""The headers of responses for one principal."""
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}

_MEDIA_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


@dataclass(frozen=True)
class NavigationEntry:
    """A link at the top of each page."""

    label: str
    page: str


NAVIGATION = (
    NavigationEntry("Catalogs", ""),
    NavigationEntry("Search", "search"),
    NavigationEntry("Health", "health"),
)


def html_page(
    template: str, *, status: int = 200, section: str = "Catalogs", **context: Any
) -> Response:
    """Render a page. All values of the context are escaped.

    Args:
        section: The entry of `NAVIGATION` that it belongs to.
    """
    text = _TEMPLATES.get_template(template).render(context, section=section)
    return HTMLResponse(text, status, PRIVATE_HEADERS)


def static_file(name: str) -> Response | None:
    """Return one of the files that pages load, or None if there is no such file."""
    if name not in _FILES:
        return None
    headers = {**SECURITY_HEADERS, **_KEPT}
    return Response(_FILES[name], headers=headers, media_type=_MEDIA_TYPES[name])


def format_bytes(count: float) -> str:
    """Return a size in decimal units: ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:,.0f} PB"


def format_seconds(seconds: float | None) -> str:
    """Return a time in milliseconds or seconds; a dash for None."""
    if seconds is None:
        return _DASH
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def format_count(count: int | None) -> str:
    """Return a number with thousands separators; a dash for None."""
    return _DASH if count is None else f"{count:,}"


def format_time(millis: int | None) -> str:
    """Return a time in UTC; a dash for None."""
    if millis is None:
        return _DASH
    try:
        moment = datetime.fromtimestamp(millis / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return _DASH
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _read_files() -> dict[str, bytes]:
    folder = files(__package__) / "static"
    return {name: (folder / name).read_bytes() for name in _MEDIA_TYPES}


def _static_address(name: str) -> str:
    digest = hashlib.sha256(_FILES[name]).hexdigest()[:12]
    return address("static", [name], v=digest)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(address=address, static=_static_address, navigation=NAVIGATION)
    made.filters.update(
        bytes=format_bytes, count=format_count, seconds=format_seconds, time=format_time
    )
    return made


_FILES = _read_files()
_TEMPLATES = _environment()
