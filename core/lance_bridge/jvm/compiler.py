"""Compiles Java, with the compiler of an installed JDK, or without one with that of Eclipse.

The Eclipse compiler is a jar that a Java runtime runs. It is fetched once per user.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import cache_directory
from .ivy import HOW_TO_USE_A_MIRROR, run_ivy
from .java import Java, JavaNotFoundError, find_compiler, find_java

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
