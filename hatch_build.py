"""Puts the jar of Spark's SQL catalog into the source archive and into the wheel.

The archive's jar is the wheel's: from the archive, a wheel is built without a JDK. In a clone the
jar is compiled, with a JDK and against PySpark's jars, which builds in isolation fetch.
"""

from __future__ import annotations

import os
import runpy
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
        """Return PySpark as the extra `spark` requires it, unless nothing is compiled."""
        if os.environ.get(WITHOUT_JAR) or self._packaged_jar().is_file():
            return []
        spark = self.metadata.core.optional_dependencies["spark"]
        return [each for each in spark if each.startswith("pyspark")]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the archive or the wheel are collected."""
        if version == "editable" or os.environ.get(WITHOUT_JAR):
            return
        compiling = runpy.run_path(str(self._sources() / "compiling.py"))
        packaged = self._packaged_jar()
        if packaged.is_file():
            if not compiling["is_current"](packaged):
                raise RuntimeError(f"{packaged} was compiled of other sources: delete it")
            return
        self._directory = TemporaryDirectory(prefix="lance-bridge-jar-")
        jar = Path(self._directory.name, packaged.name)
        try:
            compiling["compile_jar"](jar)
        except compiling["CannotCompileError"] as error:
            raise RuntimeError(
                f"The jar of Spark's SQL catalog cannot be built: {error}. "
                f"{WITHOUT_JAR}=1 builds without it, and then SQL by name needs a JDK on first use"
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

    def _sources(self) -> Path:
        return Path(self.root, "apps", _PACKAGE)

    def _packaged_jar(self) -> Path:
        """Return where a source archive has the jar, and a clone has none."""
        return self._sources() / "lance-bridge-spark.jar"
