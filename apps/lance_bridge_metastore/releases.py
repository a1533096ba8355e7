"""The releases of Hive Metastore that can be started, their exact artifacts, and the jars of each.

The jars are those of PySpark, or are fetched once per user with the Ivy in PySpark. Fetched jars
are kept in ``$LANCE_BRIDGE_CACHE`` or ``~/.cache/lance-bridge``, in a directory named after the
release and a digest of its artifacts. A directory is created there atomically, and two processes
that need it at the same time fetch it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from lance_bridge.jvm import (
    CACHE_VARIABLE,
    HOW_TO_USE_A_MIRROR,
    Java,
    JavaNotFoundError,
    cache_directory,
    find_java,
    run_ivy,
)

_HIVE = "org.apache.hive"
_HADOOP = "org.apache.hadoop"
_HADOOP_REVISION = "3.5.0"
_NOT_NEEDED = ("jdk.tools", _HADOOP, "org.apache.hbase", "sqlline")


@dataclass(frozen=True)
class Artifact:
    """One artifact of the public Maven repository, at an exact revision.

    ``transitive`` includes its dependencies, except those of the organisations in ``excluded``;
    ``itself`` is False if only those dependencies are needed.
    """

    organisation: str
    name: str
    revision: str
    transitive: bool = True
    itself: bool = True
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """One release: ``version`` is what users type, ``full_version`` the exact release.

    A release without artifacts runs from the jars inside PySpark. ``minimum_java`` is a feature
    release number; 25 was tested with all, and 17 with all but 4.2; older ones can run neither
    PySpark's jars nor its Ivy.
    """

    version: str
    full_version: str
    minimum_java: int
    artifacts: tuple[Artifact, ...] = ()

    @property
    def is_hive_4(self) -> bool:
        """True from 4.0 on, where for example external tables have a separate warehouse."""
        return self.version >= "4.0"

    @property
    def from_pyspark(self) -> bool:
        """True if nothing has to be fetched, because PySpark's jars contain the server."""
        return not self.artifacts


_HADOOP_CLIENT = (
    Artifact(_HADOOP, "hadoop-client-api", _HADOOP_REVISION),
    Artifact(_HADOOP, "hadoop-client-runtime", _HADOOP_REVISION),
    Artifact("commons-cli", "commons-cli", "1.5.0"),
)
"""One Hadoop for all releases: with an earlier one, none runs on Java 24."""
_HDFS = Artifact(_HADOOP, "hadoop-hdfs", _HADOOP_REVISION, transitive=False)
"""Hive 4 refers to a few of its classes by name, on any file system."""


def _derby(revision: str, *names: str) -> tuple[Artifact, ...]:
    return tuple(Artifact("org.apache.derby", name, revision) for name in names)


def _log4j_api(revision: str) -> Artifact:
    """Return what log4j-core needs, but lists twice, once for tests: Ivy keeps the second."""
    return Artifact("org.apache.logging.log4j", "log4j-api", revision)


def _server_in_hive_exec(revision: str) -> tuple[Artifact, ...]:
    """Return the server from 4.1 on: hive-exec, which is shaded and does not list what it needs.

    Its dependencies are listed here. hive-standalone-metastore-common adds its dependencies, but
    not itself, because hive-exec contains its own copy of those classes.
    """
    return (
        Artifact(_HIVE, "hive-exec", revision, transitive=False),
        Artifact(
            _HIVE, "hive-standalone-metastore-common", revision, itself=False, excluded=_NOT_NEEDED
        ),
        Artifact("com.zaxxer", "HikariCP", "4.0.3"),
        Artifact("org.datanucleus", "datanucleus-api-jdo", "6.0.3"),
        Artifact("org.datanucleus", "datanucleus-core", "6.0.10"),
        Artifact("org.datanucleus", "datanucleus-rdbms", "6.0.10"),
        Artifact("org.datanucleus", "javax.jdo", "3.2.0-release"),
        Artifact("org.springframework", "spring-jdbc", "5.3.39"),
        Artifact("org.antlr", "antlr4-runtime", "4.9.3"),
        Artifact("commons-collections", "commons-collections", "3.2.2"),
        Artifact("org.apache.commons", "commons-dbcp2", "2.12.0"),
        Artifact("org.eclipse.jetty", "jetty-server", "9.4.57.v20241219"),
        Artifact("org.eclipse.jetty", "jetty-servlet", "9.4.57.v20241219"),
        Artifact("com.nimbusds", "nimbus-jose-jwt", "9.37.3"),
        Artifact("org.codehaus.jettison", "jettison", "1.5.4"),
        Artifact("org.pac4j", "pac4j-core", "4.5.8"),
        Artifact("com.cronutils", "cron-utils", "9.2.1"),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        # A dependency requires slf4j 2, which does not find this log4j and would log nothing.
        Artifact("org.slf4j", "slf4j-api", "1.7.36"),
        _log4j_api("2.24.3"),
        Artifact("org.apache.logging.log4j", "log4j-core", "2.24.3"),
        Artifact("org.apache.logging.log4j", "log4j-1.2-api", "2.24.3"),
    )


RELEASES: dict[str, Release] = {
    release.version: release
    for release in (
        Release("2.3", "2.3.10", 17),
        Release(
            "3.1",
            "3.1.3",
            17,
            (
                Artifact(_HIVE, "hive-standalone-metastore", "3.1.3", excluded=_NOT_NEEDED),
                *_HADOOP_CLIENT,
                _log4j_api("2.17.1"),
                Artifact("commons-collections", "commons-collections", "3.2.2"),
                Artifact("org.codehaus.jackson", "jackson-mapper-asl", "1.9.13"),
                *_derby("10.10.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.0",
            "4.0.1",
            17,
            (
                Artifact(_HIVE, "hive-standalone-metastore-server", "4.0.1", excluded=_NOT_NEEDED),
                *_HADOOP_CLIENT,
                _HDFS,
                _log4j_api("2.18.0"),
                *_derby("10.14.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.1",
            "4.1.0",
            17,
            (
                *_server_in_hive_exec("4.1.0"),
                *_HADOOP_CLIENT,
                _HDFS,
                *_derby("10.14.2.0", "derby", "derbytools"),
            ),
        ),
        Release(
            "4.2",
            "4.2.0",
            21,
            (
                *_server_in_hive_exec("4.2.0"),
                *_HADOOP_CLIENT,
                _HDFS,
                *_derby("10.17.1.0", "derby", "derbyshared", "derbytools"),
            ),
        ),
    )
}


def release(version: str) -> Release:
    """Return the release with this version (``"4.0"``) or full version (``"4.0.1"``).

    Raises ValueError if there is none.
    """
    for known in RELEASES.values():
        if version in (known.version, known.full_version):
            return known
    raise ValueError(
        f"No embedded Hive Metastore {version!r}: choose from {', '.join(sorted(RELEASES))}"
    )


# -- jars ------------------------------------------------------------------------------------------


_MARKER = "complete.json"
_IVY_MINIMUM_JAVA = 17
"""PySpark 4 requires this release, and its jars are on the class path."""
_LOOPBACK = Path(__file__).with_name("loopback_src")
_LOOPBACK_SOURCE = _LOOPBACK / "TServerSocketKeepAlive.java"
_COMPILER = _LOOPBACK / "CompileClasses.java"
_COMPILE_SECONDS = 120.0
_TAIL_LINES = 30
"""Ivy prints what failed in its last lines."""


class EmbeddedError(RuntimeError):
    """An embedded metastore could not be started, or a part of it could not be fetched."""


class ArtifactsUnavailableError(EmbeddedError):
    """The jars of a release are missing and could not be fetched."""


class MetastoreStartError(EmbeddedError):
    """The server ended, or did not respond in time; the message ends with the tail of its log."""


@contextmanager
def _cache_errors() -> Iterator[None]:
    """Turn errors of the file system into ArtifactsUnavailableError, which names the cache."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArtifactsUnavailableError(
            f"The cache {cache_directory()} cannot be used: {reason}. Set "
            f"${CACHE_VARIABLE} to another directory"
        ) from error


def pyspark_jars() -> Path:
    """Return the directory of jars inside the installed PySpark.

    Raises ArtifactsUnavailableError if PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ArtifactsUnavailableError(
            "The embedded metastore takes its jars from PySpark, which is not installed: "
            "pip install 'lance-bridge[hive-embedded]'"
        )
    jars = Path(spec.origin).parent / "jars"
    if not jars.is_dir():
        raise ArtifactsUnavailableError(
            f"This PySpark has no jars ({jars} is missing): it is the connect-only package. "
            "Install the full one: pip install 'lance-bridge[hive-embedded]'"
        )
    return jars


@_cache_errors()
def jars_of(release: Release, *, java: str | None = None) -> Path:
    """Return the directory with the jars of ``release``, fetching them the first time.

    ``java`` is used to fetch them if it is new enough; by default one is found.

    Raises ArtifactsUnavailableError, JavaNotFoundError.
    """
    if release.from_pyspark:
        return pyspark_jars()
    home = cache_directory() / "metastore"
    target = home / f"{release.full_version}-{_digest(_ivy_module(release).encode())}"
    if _is_complete(target):
        return target
    home.mkdir(parents=True, exist_ok=True)
    with _lock_file(home / f"{target.name}.lock"):
        if not _is_complete(target):
            _fetch(release, target, java)
    return target


def _fetch(release: Release, target: Path, java: str | None) -> None:
    """Fill ``target``. Ivy's own cache keeps its downloads if this is interrupted."""
    ivy_cache = target.with_name(f"{target.name}.ivy")
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".part", dir=target.parent))
    try:
        _retrieve(release, staging, ivy_cache, java)
        sizes = {jar.name: jar.stat().st_size for jar in sorted(staging.glob("*.jar"))}
        (staging / _MARKER).write_text(json.dumps(sizes, indent=0), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _retrieve(release: Release, destination: Path, ivy_cache: Path, java: str | None) -> None:
    executable = _java_for_ivy(java)
    with tempfile.TemporaryDirectory(prefix="lance-bridge-ivy-") as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_ivy_module(release), encoding="utf-8")
        result = run_ivy(
            *(executable, pyspark_jars()),
            *("-ivy", str(module), "-cache", str(ivy_cache), "-confs", "default"),
            *("-types", "jar", "bundle", "-retrieve"),
            f"{destination}/[artifact]-[revision](-[classifier]).[ext]",
        )
    if result.returncode != 0 or not any(destination.glob("*.jar")):
        last = (result.stdout + result.stderr).strip().splitlines()[-_TAIL_LINES:]
        raise ArtifactsUnavailableError(
            f"Could not fetch the jars of Hive Metastore {release.full_version} with Ivy "
            f"(exit code {result.returncode}). {HOW_TO_USE_A_MIRROR}. Ivy said:\n" + "\n".join(last)
        )


def _java_for_ivy(java: str | None) -> Java:
    """Return the given Java, or another one if it is too old for Ivy."""
    try:
        return find_java(_IVY_MINIMUM_JAVA, java)
    except JavaNotFoundError:
        return find_java(_IVY_MINIMUM_JAVA)


def _ivy_module(release: Release) -> str:
    dependencies = "\n".join(_ivy_dependency(artifact) for artifact in release.artifacts)
    return (
        '<ivy-module version="2.0">\n'
        '<info organisation="lance-bridge" module="metastore" revision="1"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{dependencies}\n</dependencies>\n</ivy-module>\n"
    )


def _ivy_dependency(artifact: Artifact) -> str:
    # Ivy maps a pom to configurations: "master" is only the artifact, "runtime" its dependencies.
    needed = "default" if artifact.itself else "runtime"
    wanted = needed if artifact.transitive else "master"
    excludes = "".join(f"<exclude org={quoteattr(org)}/>" for org in artifact.excluded)
    return (
        f"<dependency org={quoteattr(artifact.organisation)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.revision)} force="true" conf="default->{wanted}">'
        f"{excludes}</dependency>"
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _is_complete(directory: Path) -> bool:
    """Return whether every fetched jar still exists with its original size."""
    try:
        sizes = json.loads((directory / _MARKER).read_text(encoding="utf-8"))
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Hold a lock between processes, which the system releases if its holder dies."""
    with path.open("a", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# -- the loopback class ----------------------------------------------------------------------------


@_cache_errors()
def loopback_classes(java: str, jars: Path) -> Path:
    """Return the directory with a class that keeps a metastore 2.3 or 3.1 on the loopback address.

    These releases have no setting for that. The class precedes Hive's own one on the class path. It
    is compiled once per user and version of Thrift, with the compiler in PySpark's jars, so no JDK
    is needed.

    Raises MetastoreStartError, ArtifactsUnavailableError.
    """
    thrift = ",".join(sorted(jar.name for jar in jars.glob("libthrift-*.jar")))
    content = _LOOPBACK_SOURCE.read_bytes() + _COMPILER.read_bytes() + thrift.encode()
    target = cache_directory() / "metastore" / f"loopback-{_digest(content)}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="loopback-") as directory:
            classes = Path(directory) / "classes"
            classes.mkdir()
            _compile(java, jars, classes)
            try:
                os.rename(classes, target)
            except OSError:
                if not target.is_dir():  # otherwise another process was first
                    raise
    return target


def _compile(java: str, jars: Path, target: Path) -> None:
    class_path = os.pathsep.join([f"{jars}/*", f"{pyspark_jars()}/*"])
    command = [
        *(java, "-cp", class_path, "org.codehaus.janino.SimpleCompiler"),
        *(str(_COMPILER), "CompileClasses", str(_LOOPBACK_SOURCE), str(target)),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ArtifactsUnavailableError(
            f"A class for the cache {cache_directory()} could not be compiled within "
            f"{_COMPILE_SECONDS:g} seconds"
        ) from error
    if done.returncode != 0 or not any(target.rglob("*.class")):
        raise MetastoreStartError(
            "The class that keeps the metastore on the loopback address could not be compiled: "
            f"{done.stderr.strip()[-2000:]}"
        )
