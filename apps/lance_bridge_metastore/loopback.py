"""Keeps metastores 2.3 and 3.1, which have no setting for that, on the loopback address.

A class of ours comes before one of Hive's on the class path. It is compiled once per user, with the
compiler among PySpark's jars, so that a Java without a JDK will do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from .artifacts import cache_directory, pyspark_jars
from .errors import MetastoreStartError

_SOURCES = Path(__file__).with_name("loopback_src")
_SOURCE = _SOURCES / "TServerSocketKeepAlive.java"
_COMPILER = _SOURCES / "CompileClasses.java"
_SECONDS = 120.0


def loopback_classes(java: str, jars: Path) -> Path:
    """Return the directory with the class, compiled against the server's jars the first time.

    It cannot be one class for all: Thrift's are not compatible from release to release.

    Raises MetastoreStartError, ArtifactsUnavailableError.
    """
    thrift = ",".join(sorted(jar.name for jar in jars.glob("libthrift-*.jar")))
    content = _SOURCE.read_bytes() + _COMPILER.read_bytes() + thrift.encode()
    digest = hashlib.sha256(content).hexdigest()[:12]
    target = cache_directory() / "metastore" / f"loopback-{digest}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="loopback-") as directory:
            classes = Path(directory) / "classes"
            classes.mkdir()
            _compile(java, jars, classes)
            try:
                os.rename(classes, target)
            except OSError:
                if not target.is_dir():  # another process was first otherwise
                    raise
    return target


def _compile(java: str, jars: Path, target: Path) -> None:
    class_path = os.pathsep.join([f"{jars}/*", f"{pyspark_jars()}/*"])
    command = [
        *(java, "-cp", class_path, "org.codehaus.janino.SimpleCompiler"),
        *(str(_COMPILER), "CompileClasses", str(_SOURCE), str(target)),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_SECONDS,
    )
    if done.returncode != 0 or not any(target.rglob("*.class")):
        raise MetastoreStartError(
            "The class that keeps the metastore on the loopback address could not be compiled: "
            f"{done.stderr.strip()[-2000:]}"
        )
