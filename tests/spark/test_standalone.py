"""The page about standalone clusters, followed: its master, its two workers, its job.

All run on this machine, at addresses that are free here, with the packages of this clone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from docs.gateway_pages import Block, blocks
from servers.metastores import Metastores
from servers.processes import free_port, inherited_owners
from servers.sparks import ROOT, SHORT_JVM, LoggedProcess

PAGE = ROOT / "docs" / "how-to" / "spark-standalone.md"
SECONDS = 900.0
"""A minute on a machine that does nothing else."""

_NAME = "python-of-spark"
"""On the path of executors, this is a Python without packages."""
_REGISTERS = """
import lance_bridge_spark
from pyspark.sql import SparkSession

try:
    lance_bridge_spark.register(SparkSession.builder.getOrCreate())
except Exception as error:
    print(type(error).__name__, error)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spec("docs/how-to/spark-standalone.md#a-job", "spark.md#register"),
]


@dataclass(frozen=True)
class Cluster:
    """A directory in which the page is followed, and what its names are here."""

    directory: Path
    replaced: Mapping[str, str]
    environment: Mapping[str, str]

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses and paths that there are here."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def run(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page."""
        return subprocess.run(
            ["bash", "-c", self.here(command)],
            cwd=self.directory,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )


def snippets(section: str) -> list[Block]:
    """Return the snippets below a heading of the page."""
    return [block for block in blocks(PAGE) if block.section == section]


def environment(**more: str) -> dict[str, str]:
    """Return what the page's first lines set, and where the packages of this clone are."""
    inherited = {key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME") if key in os.environ}
    python, spark = Path(sys.executable).parent, Path(pyspark.__file__).parent / "bin"
    inherited["PATH"] = os.pathsep.join([str(python), str(spark), inherited["PATH"]])
    roots = (str(ROOT / name) for name in ("core", "adapters", "apps"))
    return {
        **inherited,
        **inherited_owners(),
        **SHORT_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(roots),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


@pytest.fixture(scope="module")
def cluster(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Master and workers by the page's commands, and what its job needs beside them."""
    directory = tmp_path_factory.mktemp("standalone")
    port, page = free_port(), free_port()
    replaced = {
        "spark-master": "127.0.0.1",
        "--port 7077": f"--port {port}",
        ":7077": f":{port}",
        "8080": str(page),
        "thrift://metastore:9083": metastores.get("2.3").uri,
        "/data/tables": str(directory / "tables"),
    }
    given = environment(SPARK_WORKER_DIR=str(directory / "work"))
    cluster = Cluster(directory, replaced, given)
    [master], [worker] = snippets("The master"), snippets("Each worker")
    (directory / "executors").mkdir()
    (directory / "executors" / _NAME).symlink_to(sys._base_executable)  # type: ignore[attr-defined] # of a venv
    of_workers = {**given, "PATH": f"{directory / 'executors'}{os.pathsep}{given['PATH']}"}
    with ExitStack() as stack:
        command = ["bash", "-c", cluster.here(master.text)]
        started = stack.enter_context(LoggedProcess(command, given, directory, "master"))
        started.wait_for("I have been elected leader", SECONDS)
        for _ in range(2):
            command = ["bash", "-c", cluster.here(worker.text)]
            each = stack.enter_context(LoggedProcess(command, of_workers, directory, "worker"))
            each.wait_for("Successfully registered with master", SECONDS)
        [settings] = snippets("The catalog")
        (directory / "lance.conf").write_text(cluster.here(settings.text))
        yield cluster


def test_the_page_is_followed(cluster: Cluster) -> None:
    program, command = snippets("A job")
    (cluster.directory / "job.py").write_text(cluster.here(program.text))
    done = cluster.run(command.text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert program.printed == done.stdout.splitlines()


def test_a_python_that_executors_lack_is_named_at_registration(cluster: Cluster) -> None:
    """It is found by a relative path, which is another one in the directory of an executor."""
    place_python(cluster.directory / "here" / "python")
    line = refusal(cluster, PYSPARK_PYTHON="./here/python")
    assert "./here/python, which does not exist or cannot be run, on executors such as " in line


def test_a_python_of_executors_without_the_packages_is_named_at_registration(
    cluster: Cluster,
) -> None:
    """The driver and the executors find different ones on their paths."""
    place_python(cluster.directory / "driver" / _NAME)
    path = os.pathsep.join([str(cluster.directory / "driver"), cluster.environment["PATH"]])
    line = refusal(cluster, PYSPARK_PYTHON=_NAME, PATH=path)
    assert f"{_NAME}, which lacks lance, pyarrow, on executors such as " in line


def place_python(path: Path) -> None:
    """Make a program that runs this Python, with its packages."""
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)


def refusal(cluster: Cluster, **environment: str) -> str:
    """Register a catalog in a session; return the one line that says why it is refused."""
    program = cluster.directory / "registers.py"
    program.write_text(_REGISTERS)
    command = f"spark-submit --properties-file lance.conf {program}"
    done = cluster.run(command, PYSPARK_DRIVER_PYTHON=sys.executable, **environment)
    [line] = done.stdout.splitlines() or [done.stderr]
    assert line.startswith("UnsupportedOperationError Spark's Python workers would run"), line
    return line
