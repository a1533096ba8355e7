"""Puts the jar of Spark's SQL catalog into the wheel, where a JDK and PySpark's jars are at hand.

Without them the wheel has the Java sources alone, and compiles them on first use.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "lance_bridge_spark/jvm"


class JarHook(BuildHookInterface[Any]):
    """Compiles the jar beside the build, and includes it."""

    _directory: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        if version == "editable":
            return
        compiling = runpy.run_path(str(Path(self.root, "apps", _PACKAGE, "compiling.py")))
        self._directory = TemporaryDirectory(prefix="lance-bridge-jar-")
        jar = Path(self._directory.name, compiling["JAR_NAME"])
        try:
            compiling["compile_jar"](jar)
        except compiling["CannotCompileError"] as error:
            self.app.display_warning(
                f"No jar for Spark's SQL catalog in the wheel, which compiles it on use: {error}"
            )
        else:
            build_data["force_include"][str(jar)] = f"{_PACKAGE}/{jar.name}"

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling passes it
        build_data: dict[str, Any],  # noqa: ARG002 - hatchling passes it
        artifact_path: str,  # noqa: ARG002 - hatchling passes it
    ) -> None:
        """Remove the jar: the wheel has it."""
        if self._directory is not None:
            self._directory.cleanup()
