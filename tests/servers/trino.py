"""Trino with catalogs of its Hive and Iceberg connectors, on 127.0.0.1.

``make test-clients`` fetches it. It needs a Java of release 24 or later, beside the one of Spark.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from lance_bridge.jvm import find_java
from servers.processes import HOST, ServerProcess, free_port

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
