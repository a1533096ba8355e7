"""Engines that query what a metastore has: Trino, and Hive's own command line.

``make test-clients`` fetches both. Trino, on 127.0.0.1 with its Hive and Iceberg connectors, needs
a Java of release 24 or later, beside Spark's; Hive's jars are those of PySpark and two more.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path

from lance_bridge.jvm import find_java
from lance_bridge_metastore.releases import pyspark_jars
from servers.processes import run_command

from .processes import HOST, ServerProcess, free_port

_HOME = Path(__file__).parents[2] / ".cache" / "trino"
_MINIMUM_JAVA = 24
_FLAGS = (
    *("-Xmx1500M", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"),
    *("--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED"),
)
_LOGGING = "io.airlift=WARN\nio.trino=WARN\n"


class Trino(ServerProcess):
    """One coordinator, which runs the queries itself.

    Args:
        catalogs: The properties of each catalog, by its name.
    """

    health = "/v1/info"
    start_seconds = 400.0

    def __init__(self, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self._catalogs = catalogs

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._port

    def _command(self, port_file: Path) -> list[str]:
        [server] = _HOME.glob("trino-server-core-*")
        settings, port = self.directory / "etc", free_port()
        catalogs, plugins = settings / "catalog", self.directory / "plugin"
        catalogs.mkdir(parents=True)
        plugins.mkdir()
        for connector in ("hive", "iceberg"):
            [place] = _HOME.glob(f"trino-{connector}-*")
            (plugins / connector).symlink_to(place)
        for name, properties in self._catalogs.items():
            _write(catalogs / f"{name}.properties", properties)
        _write(
            settings / "config.properties",
            {
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "node.bind-ip": HOST,
                "node.internal-address": HOST,
                "http-server.http.port": str(port),
                "http-server.log.enabled": "false",
                "discovery.uri": f"http://{HOST}:{port}",
                "plugin.dir": str(plugins),
            },
        )
        (settings / "log.properties").write_text(_LOGGING, encoding="utf-8")
        given = {
            "config": settings / "config.properties",
            "log.levels-file": settings / "log.properties",
            "catalog.config-dir": catalogs,
            "node.environment": "test",
            "node.data-dir": self.directory / "data",
        }
        port_file.write_text(str(port), encoding="utf-8")
        return [
            *(find_java(_MINIMUM_JAVA).path, *_FLAGS),
            *(f"-D{name}={value}" for name, value in given.items()),
            *("-cp", f"{server}/lib/*", "io.trino.server.TrinoServer"),
        ]

    def _answers(self) -> bool:
        """Return whether it takes queries; it answers before."""
        try:
            with urllib.request.urlopen(f"{self.endpoint}{self.health}", timeout=5) as answer:
                return not json.load(answer)["starting"]
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


def _write(file: Path, properties: Mapping[str, str]) -> None:
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    file.write_text("".join(lines), encoding="utf-8")


# -- Hive's command line ---------------------------------------------------------------------------


_HIVE_HOME = Path(__file__).parents[2] / ".cache" / "hive"
_HIVE_JAVA = 17
_OPENED = (
    *("lang", "net", "util", "util.concurrent", "util.concurrent.atomic", "util.regex"),
    *("io", "text", "time"),
)
"""Packages of ``java.base`` that this Hive, which is of Java 8, changes fields in."""
_HIVE_LOGGING = "status = off\nrootLogger.level = off\n"


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
        (self._directory / "hive-log4j2.properties").write_text(_HIVE_LOGGING, encoding="utf-8")
        script = self._directory / "statements.sql"
        lines = [f"{statement};\n!echo {mark};\n" for statement in statements]
        script.write_text(f"!echo {mark};\n{''.join(lines)}", encoding="utf-8")
        path = os.pathsep.join(map(str, [self._directory, _HIVE_HOME / "*", pyspark_jars() / "*"]))
        command = [
            *(find_java(_HIVE_JAVA).path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *(f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in _OPENED),
            *("-cp", path, "org.apache.hadoop.hive.cli.CliDriver", "-S", "-f", str(script)),
            *(word for item in self._settings.items() for word in ("-hiveconf", "=".join(item))),
        ]
        # Errors are printed to the other stream.
        done = run_command("sh", "-c", '"$@" 2>&1', "sh", *command, cwd=self._directory)
        _, *answers, _ = done.stdout.split(f"{mark}\n")
        return [answer.strip() for answer in answers]
