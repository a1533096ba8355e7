"""Hive's own command line, with the jars of PySpark and two that ``make test-clients`` fetches."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from commands import run_command

from lance_bridge.jvm import find_java
from lance_bridge_metastore.artifacts import pyspark_jars

_HOME = Path(__file__).parents[2] / ".cache" / "hive"
_MINIMUM_JAVA = 17
_OPENED = (
    *("lang", "net", "util", "util.concurrent", "util.concurrent.atomic", "util.regex"),
    *("io", "text", "time"),
)
"""Packages of ``java.base`` that this Hive, which is of Java 8, changes fields in."""
_LOGGING = "status = off\nrootLogger.level = off\n"


class HiveCommandLine:
    """Hive's command line on a metastore; queries run in its own process."""

    def __init__(self, uri: str, directory: Path) -> None:
        self._directory = directory
        self._settings = {
            "hive.metastore.uris": uri,
            "hive.cli.errors.ignore": "true",
            "hive.async.log.enabled": "false",
            # Its planner needs Calcite, which PySpark does not have.
            "hive.cbo.enable": "false",
            # Small tables would be joined by the command ``hadoop``.
            "hive.auto.convert.join": "false",
            "mapreduce.framework.name": "local",
            "hadoop.tmp.dir": str(directory / "hadoop"),
            "hive.exec.scratchdir": str(directory / "scratch"),
            "hive.exec.local.scratchdir": str(directory / "local"),
        }

    def run(self, *statements: str) -> list[str]:
        """Return what it prints for each statement: rows, or an error."""
        mark = uuid.uuid4().hex
        self._directory.mkdir(exist_ok=True)
        (self._directory / "hive-log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        script = self._directory / "statements.sql"
        lines = [f"{statement};\n!echo {mark};\n" for statement in statements]
        script.write_text(f"!echo {mark};\n{''.join(lines)}", encoding="utf-8")
        path = os.pathsep.join(map(str, [self._directory, _HOME / "*", pyspark_jars() / "*"]))
        command = [
            *(find_java(_MINIMUM_JAVA).path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *(f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in _OPENED),
            *("-cp", path, "org.apache.hadoop.hive.cli.CliDriver", "-S", "-f", str(script)),
            *(word for item in self._settings.items() for word in ("-hiveconf", "=".join(item))),
        ]
        # Errors are printed to the other stream.
        done = run_command("sh", "-c", '"$@" 2>&1', "sh", *command, cwd=self._directory)
        _, *answers, _ = done.stdout.split(f"{mark}\n")
        return [answer.strip() for answer in answers]
