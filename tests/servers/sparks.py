"""Spark in processes of its own: releases 4.1, 4.2 and 4.3, on threads, on a cluster, or remote.

`Spark` says which; `Spark.run` calls a function ``f(spark, **arguments)`` of an importable module
there and returns what it returned, by JSON. Release 4.3 is the one installed with this project;
``make sparks`` fetches the others, and the environment variable ``LANCE_BRIDGE_TEST_SPARKS`` may
name another directory that has them.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
INSTALLED = "4.3"
"""The release in the virtual environment."""
LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"
"""Two executors in processes of their own, with one core and 1024 MB each."""
SHORT_JVM = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""The environment of drivers: a session of minutes is over before the second compiler is of use."""
_SPARKS = Path(os.environ.get("LANCE_BRIDGE_TEST_SPARKS", ROOT / ".cache" / "pyspark"))
_END_SECONDS = 10.0
_TAIL = 6000
RELEASE = "4.1"
"""The latest release of Spark that both Delta and Iceberg are made for."""
ICE = "ice"
"""The session's catalog of Iceberg's tables."""
_PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.apache.spark:spark-avro_2.13:4.1.1",
)
_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


class SparkFailedError(AssertionError):
    """What ran on Spark raised, died or took too long; the message ends with its output."""


def home_of(release: str) -> Path | None:
    """Return the directory to import a release from, or None for what is installed.

    Raises:
        RuntimeError: It was not fetched.
    """
    if release == INSTALLED:
        return None
    home = _SPARKS / release
    if not (home / "pyspark").is_dir():
        raise RuntimeError(f"There is no PySpark {release} in {_SPARKS}: run 'make sparks'")
    return home


@dataclass(frozen=True)
class Spark:
    """One way to run Spark. ``conf`` are settings of the session, which may hold secrets."""

    release: str = INSTALLED
    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def run(
        self, function: str, directory: Path, /, *, seconds: float = 120.0, **arguments: Any
    ) -> Any:
        """Call ``module:function`` with a session, and return its answer.

        Args:
            function: ``f(spark, **arguments)`` of a module below ``tests``.
            directory: For the files of Spark, and the working directory.
            seconds: How long it may take, the start of Spark included.

        Raises:
            SparkFailedError: It raised, or did not end in time.
        """
        with self.start(function, directory, **arguments) as running:
            return running.result(seconds)

    def start(self, function: str, directory: Path, /, **arguments: Any) -> Running:
        """Begin what `run` does, to be ended by `Running.result` or at the end of a ``with``."""
        task = {"master": self.master, "conf": self.settings(directory), "function": function}
        return self._start({**task, "arguments": arguments}, directory)

    @contextmanager
    def connect(self, directory: Path, *, seconds: float = 60.0) -> Iterator[Remote]:
        """Run a Spark Connect server on 127.0.0.1, with the settings of this."""
        package = home_of(self.release)
        settings = json.dumps(self.settings(directory))
        command = [sys.executable, "-m", "servers.sparks", "--connect", settings, self.master]
        with LoggedProcess(command, self._environment(package), directory, "connect") as server:
            found = server.wait_for("Spark Connect server started at:", seconds)
            yield Remote(self.release, f"sc://127.0.0.1:{found.rsplit(':', 1)[1].strip(' .')}")

    def settings(self, directory: Path) -> dict[str, str]:
        """Return all settings of a session whose files are in a directory."""
        return {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory),
            **self.conf,
        }

    def _start(self, task: dict[str, Any], directory: Path) -> Running:
        directory.mkdir(parents=True, exist_ok=True)
        answer = Path(tempfile.mkdtemp(dir=directory, prefix="answer-")) / "answer.json"
        command = [sys.executable, "-m", "servers.sparks", str(answer)]
        process = LoggedProcess(
            command, self._environment(home_of(self.release)), directory, "session"
        )
        process.start(json.dumps(task))
        return Running(process, answer)

    def _environment(self, package: Path | None) -> dict[str, str]:
        unwanted = ("SPARK_", "PYSPARK_", "HADOOP_", "HIVE_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        places = [package, ROOT / "core", ROOT / "adapters", ROOT / "apps", ROOT / "tests"]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(str(place) for place in places if place),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **SHORT_JVM,
            **self.environment,
        }


@dataclass(frozen=True)
class Remote(Spark):
    """A client of a Spark Connect server, in a process without a JVM."""

    master: str = ""
    """The server's address, ``sc://127.0.0.1:PORT``."""

    def __init__(self, release: str, url: str) -> None:
        super().__init__(release, url)

    def settings(self, directory: Path) -> dict[str, str]:  # noqa: ARG002 - they are the server's
        """Return none: they are the server's."""
        return {}


class Running:
    """A function that runs on Spark."""

    def __init__(self, process: LoggedProcess, answer: Path) -> None:
        self._process = process
        self._answer = answer

    def result(self, seconds: float = 120.0) -> Any:
        """Wait for the answer.

        Raises:
            SparkFailedError: It raised, or did not end in time.
        """
        code = self._process.wait(seconds)
        if code is None:
            raise SparkFailedError(f"not ended after {seconds:g} s:\n{self.output()}")
        if code != 0 or not self._answer.exists():
            raise SparkFailedError(f"exit code {code}:\n{self.output()}")
        return json.loads(self._answer.read_text(encoding="utf-8"))

    def output(self) -> str:
        """Return the end of what it has printed."""
        return self._process.output()[-_TAIL:]

    def kill(self) -> None:
        """End it at once, as by a machine that loses power."""
        self._process.kill()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()


class LoggedProcess:
    """A process, and all that it starts, in a process group; output goes to a file."""

    def __init__(
        self, command: list[str], environment: dict[str, str], directory: Path, name: str
    ) -> None:
        self._command = command
        self._environment = environment
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        number, path = tempfile.mkstemp(dir=directory, prefix=f"{name}-", suffix=".log")
        os.close(number)
        self._log = Path(path)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, given: str = "") -> None:
        """Start it, with a text on its standard input."""
        with self._log.open("wb") as output, tempfile.TemporaryFile() as source:
            source.write(given.encode())
            source.seek(0)
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=source,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def wait_for(self, text: str, seconds: float) -> str:
        """Return the line of its output with a text, once there is one."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self.output().splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line.rstrip()
            time.sleep(0.05)
        raise SparkFailedError(f"it never said '{text}':\n{self.output()[-_TAIL:]}")

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it and what it started; safe to repeat."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(_END_SECONDS)
        # The leader may be gone while a JVM of its group is not.
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def __enter__(self) -> LoggedProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


# -- lakes -----------------------------------------------------------------------------------------


def conf_of(uri: str) -> dict[str, str]:
    """Return the settings with which a session has tables of Delta, and a catalog of Iceberg's."""
    ice = f"spark.sql.catalog.{ICE}"
    return {
        "spark.jars.packages": ",".join(_PACKAGES),
        "spark.jars.ivy": str(ROOT / ".cache" / "ivy"),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ice: "org.apache.iceberg.spark.SparkCatalog",
        f"{ice}.type": "hive",
        f"{ice}.uri": uri,
        # This metastore has no tables for locks, and there is one writer.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        # As many tasks list the files for a VACUUM; by default 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }


# -- the program -----------------------------------------------------------------------------------
#
# ``python -m servers.sparks ANSWER`` takes the task as JSON on standard input. ``--connect SETTINGS
# MASTER``, with settings in JSON, becomes ``spark-submit`` of the PySpark that this Python imports,
# so that ending the process ends the server.


_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def session(master: str, conf: Mapping[str, str]) -> SparkSession:
    """Return a session on a master, or of a server where it is an address ``sc://…``."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

    builder = SparkSession.builder
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run_task(answer: Path, task: Mapping[str, Any]) -> None:
    """Do a task and write what came of it."""
    module, _, name = task["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    spark = session(task["master"], task["conf"])
    try:
        result = function(spark, **task["arguments"])
    finally:
        spark.stop()
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(result), encoding="utf-8")
    os.replace(part, answer)


def serve(settings: dict[str, str], master: str) -> None:
    """Become a Spark Connect server on a free port of 127.0.0.1."""
    import pyspark  # noqa: PLC0415 - the same

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    pairs = [f"{key}={value}" for key, value in {**settings, **own}.items()]
    given = [part for pair in pairs for part in ("--conf", pair)]
    line = [str(submit), "--master", master, "--class", _CONNECT_SERVER, *given, "spark-internal"]
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.execv(line[0], line)


if __name__ == "__main__":
    if sys.argv[1] == "--connect":
        serve(json.loads(sys.argv[2]), sys.argv[3])
    run_task(Path(sys.argv[1]), json.load(sys.stdin))
