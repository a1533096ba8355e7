"""The jars of each release: PySpark's own, or fetched once per user with the Ivy inside PySpark.

Fetched jars are kept in ``$LANCE_BRIDGE_CACHE`` or ``~/.cache/lance-bridge``, in a directory named
after the release and a digest of its artifacts. A directory appears there complete or not at all,
and two processes that want the same one at the same time fetch it once.
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
from pathlib import Path
from xml.sax.saxutils import quoteattr

from .errors import ArtifactsUnavailableError
from .java import find_java
from .releases import Artifact, Release
from .repositories import ivy_settings, proxy_flags

CACHE_VARIABLE = "LANCE_BRIDGE_CACHE"
_MARKER = "complete.json"
_IVY_MINIMUM_JAVA = 17
"""PySpark 4 needs this much, and its jars are on the class path."""


def cache_directory() -> Path:
    """Return where fetched jars are kept; it need not exist."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lance-bridge"


def pyspark_jars() -> Path:
    """Return the directory of jars inside the installed PySpark.

    Raises ArtifactsUnavailableError when PySpark is not installed.
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


def jars_of(release: Release, *, java: str | None = None) -> Path:
    """Return the directory with the jars of ``release``, fetching them the first time.

    Raises ArtifactsUnavailableError, JavaNotFoundError.
    """
    if release.from_pyspark:
        return pyspark_jars()
    home = cache_directory() / "metastore"
    target = home / f"{release.full_version}-{_digest(release)}"
    if _is_complete(target):
        return target
    home.mkdir(parents=True, exist_ok=True)
    with _exclusive(home / f"{target.name}.lock"):
        if not _is_complete(target):
            _fetch(release, target, java)
    return target


def _fetch(release: Release, target: Path, java: str | None) -> None:
    """Fill ``target``. What Ivy has downloaded survives an interruption, in its own cache."""
    ivy_cache = target.with_name(f"{target.name}.ivy")
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".part", dir=target.parent))
    try:
        _retrieve(release, staging, ivy_cache, java)
        _mark_complete(staging)
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _retrieve(release: Release, destination: Path, ivy_cache: Path, java: str | None) -> None:
    executable = find_java(_IVY_MINIMUM_JAVA, java)
    with tempfile.TemporaryDirectory(prefix="lance-bridge-ivy-") as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_ivy_module(release), encoding="utf-8")
        command = [
            *(executable.path, "-Xmx512m", *proxy_flags()),
            *("-cp", f"{pyspark_jars()}/*", "org.apache.ivy.Main"),
            *ivy_settings(Path(scratch)),
            *("-ivy", str(module), "-cache", str(ivy_cache), "-confs", "default"),
            *("-types", "jar", "bundle", "-retrieve"),
            f"{destination}/[artifact]-[revision](-[classifier]).[ext]",
        ]
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    if result.returncode != 0 or not any(destination.glob("*.jar")):
        raise ArtifactsUnavailableError(
            f"Could not fetch the jars of Hive Metastore {release.full_version} with Ivy "
            f"(exit code {result.returncode}). A mirror is taken from ~/.ivy2/ivysettings.xml or "
            f"~/.m2/settings.xml. Ivy said:\n{_complaints(result.stdout + result.stderr)}"
        )


def _complaints(output: str, limit: int = 30) -> str:
    """Return the lines that say what failed, which Ivy puts last."""
    return "\n".join(output.strip().splitlines()[-limit:])


def _ivy_module(release: Release) -> str:
    dependencies = "\n".join(_ivy_dependency(artifact) for artifact in release.artifacts)
    return (
        '<ivy-module version="2.0">\n'
        '<info organisation="lance-bridge" module="metastore" revision="1"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{dependencies}\n</dependencies>\n</ivy-module>\n"
    )


def _ivy_dependency(artifact: Artifact) -> str:
    # Ivy reads a pom as configurations: "master" is the artifact alone, "runtime" what it needs.
    needed = "default" if artifact.itself else "runtime"
    wanted = needed if artifact.transitive else "master"
    excludes = "".join(f"<exclude org={quoteattr(org)}/>" for org in artifact.excluded)
    return (
        f"<dependency org={quoteattr(artifact.organisation)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.revision)} force="true" conf="default->{wanted}">'
        f"{excludes}</dependency>"
    )


def _digest(release: Release) -> str:
    return hashlib.sha256(_ivy_module(release).encode()).hexdigest()[:12]


def _mark_complete(directory: Path) -> None:
    sizes = {jar.name: jar.stat().st_size for jar in sorted(directory.glob("*.jar"))}
    (directory / _MARKER).write_text(json.dumps(sizes, indent=0), encoding="utf-8")


def _is_complete(directory: Path) -> bool:
    """Say whether every jar that was fetched is still there and whole."""
    try:
        sizes = json.loads((directory / _MARKER).read_text(encoding="utf-8"))
        return all((directory / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system lets go of it when its holder dies."""
    with path.open("a", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
