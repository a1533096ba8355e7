"""Compiles the Java sources here into a jar. The build of the wheel runs this file by its path.

It imports only what needs no other package, because lance-bridge is not installed when a wheel is
built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from lance_bridge.jvm import (
    MINIMUM_JAVA,
    CannotCompileError,
    JavaNotFoundError,
    compile_classes,
    find_java,
)

SOURCES = Path(__file__).parent / "src"
JAR_NAME = "lance-bridge-spark.jar"
_MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of a jar's entries, fixed so that equal sources give equal jars."""


def digest() -> str:
    """Return a digest of the sources."""
    content = hashlib.sha256()
    for source in _sources():
        content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def compile_jar(target: Path) -> None:
    """Compile the jar and write it to a path atomically.

    Raises:
        CannotCompileError: No Java compiler or no PySpark was found, or the compiler failed.
    """
    jars = pyspark_jars()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".jar-", dir=target.parent) as directory:
        classes = Path(directory, "classes")
        compile_classes(_sources(), jars, classes)
        packed = Path(directory, JAR_NAME)
        _pack(classes, packed)
        packed.replace(target)


def has_java() -> bool:
    """Return whether a Java is installed that compiles, or runs a compiler."""
    try:
        find_java(MINIMUM_JAVA)
    except JavaNotFoundError:
        return False
    return True


def is_current(jar: Path) -> bool:
    """Return whether a jar was compiled from the current sources."""
    with ZipFile(jar) as archive:
        return archive.read(_MANIFEST).decode() == _manifest()


def pyspark_jars() -> Path:
    """Return the directory of Spark's jars.

    Raises:
        CannotCompileError: PySpark is not installed, or only its client is.
    """
    spec = importlib.util.find_spec("pyspark")
    jars = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    if jars is None or not jars.is_dir():
        raise CannotCompileError(
            "there are no jars of Spark to compile against: install the full package, "
            "pip install 'lance-bridge[spark]'"
        )
    return jars


def _sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def _manifest() -> str:
    return f"Manifest-Version: 1.0\r\nLance-Bridge-Sources: {digest()}\r\n\r\n"


def _pack(classes: Path, target: Path) -> None:
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        archive.writestr(ZipInfo(_MANIFEST, _EPOCH), _manifest())
        for file in sorted(classes.rglob("*.class")):
            entry = ZipInfo(file.relative_to(classes).as_posix(), _EPOCH)
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
