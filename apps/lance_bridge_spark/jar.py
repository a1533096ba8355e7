"""The jar of the SQL catalog: in the wheel, or compiled once on this machine.

The build of the wheel runs this file by its path. So it imports only what needs no other package:
lance-bridge is not installed when a wheel is built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from lance_bridge import jvm
from lance_bridge.jvm import (
    MINIMUM_JAVA,
    CannotCompileError,
    JavaNotFoundError,
    compile_classes,
    find_java,
)

FOLDER = Path(__file__).parent / "jvm"
"""The folder of the Java sources, and of the jar in a wheel."""
SOURCES = FOLDER / "src"
JAR_NAME = "lance-bridge-spark.jar"
_CHECKOUT = Path(__file__).parents[2]
"""The root of the repository, if this file is in a checkout."""
_MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of a jar's entries, fixed so that equal sources give equal jars."""


def path() -> Path:
    """Return the jar of the wheel; in a checkout, compile it once and cache it.

    Raises:
        UnsupportedOperationError: (0) it must be compiled, and a compiler or PySpark's jars are
            missing. Everything but the SQL catalog works without the jar.
    """
    packaged = FOLDER / JAR_NAME
    if packaged.is_file():
        return packaged
    cached = cache_directory() / f"lance-bridge-spark-{digest()}.jar"
    if not cached.is_file():
        try:
            compile_jar(cached)
        except (CannotCompileError, OSError) as error:
            from lance_bridge.errors import unsupported  # noqa: PLC0415 - see the top of this file

            raise unsupported(
                f"The SQL catalog needs its jar, which could not be compiled: {error}. A "
                "release has it, and lance_bridge_spark.register(spark, sql=False) works without"
            ) from error
    return cached


def cache_directory() -> Path:
    """Return the directory of compiled jars: ``.cache`` of a checkout, or the user's cache.

    ``LANCE_BRIDGE_CACHE`` overrides it.
    """
    if not os.environ.get(jvm.CACHE_VARIABLE) and (_CHECKOUT / "pyproject.toml").is_file():
        return _CHECKOUT / ".cache" / "spark"
    return jvm.cache_directory() / "spark"


# -- compiling -------------------------------------------------------------------------------------


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
