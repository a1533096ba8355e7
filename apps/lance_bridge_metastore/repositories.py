"""Where Ivy fetches from: the user's own settings, mirror and proxy, else Ivy's defaults."""

from __future__ import annotations

import urllib.parse
import urllib.request
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

_IVY_SETTINGS = (".ivy2/ivysettings.xml", ".ivy2.5.2/ivysettings.xml")
_MAVEN_SETTINGS = ".m2/settings.xml"
_MIRRORS_OF_EVERYTHING = {"*", "central", "external:*"}


def ivy_settings(scratch: Path, home: Path | None = None) -> list[str]:
    """Return Ivy's ``-settings`` argument, or nothing where its defaults apply.

    Looks under ``home`` (the user's home directory) for Ivy settings, then for a mirror in Maven's
    settings, for which it writes Ivy settings into ``scratch``. A mirror that asks for a password
    has to be given as Ivy settings.
    """
    home = home or Path.home()
    for name in _IVY_SETTINGS:
        if (home / name).is_file():
            return ["-settings", str(home / name)]
    mirror = _maven_mirror(home / _MAVEN_SETTINGS)
    if mirror is None:
        return []
    settings = scratch / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root={quoteattr(mirror)}/>'
        "</resolvers></ivysettings>",
        encoding="utf-8",
    )
    return ["-settings", str(settings)]


def _maven_mirror(settings: Path) -> str | None:
    """Return the address of the first mirror in Maven's settings that stands for its repository."""
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iterfind(".//{*}mirror"):
        of = {part.strip() for part in mirror.findtext("{*}mirrorOf", "").split(",")}
        address = mirror.findtext("{*}url", "").strip()
        if address and of & _MIRRORS_OF_EVERYTHING and "!central" not in of:
            return address
    return None


def proxy_flags() -> list[str]:
    """Return the proxies of the environment (``https_proxy``, ``no_proxy``) as Java takes them."""
    proxies = urllib.request.getproxies()
    flags = []
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            flags.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            flags.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = [name.strip() for name in proxies.get("no", "").split(",") if name.strip()]
    if flags and direct:
        patterns = "|".join(f"*{name}" if name.startswith(".") else name for name in direct)
        flags.append(f"-Dhttp.nonProxyHosts={patterns}")
    return flags
