"""The published archive and wheel bring the jar of the SQL catalog to a machine without a JDK.

Slow: builds in isolation fetch PySpark, and an empty environment gets the wheel with Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_command
from install.environments import REPOSITORY, Environment
from servers.metastores import Metastores

from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(2400),
    pytest.mark.spec("spark.md#the-jar"),
]

BUILD_SECONDS = 1200.0
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
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for each in Path(directory).glob("*"):
            link = programs / each.name
            if not each.name.startswith("java") and not link.exists():
                link.symlink_to(each)
    monkeypatch.setenv("PATH", f"{runtime / 'bin'}{os.pathsep}{programs}")
    monkeypatch.setenv("JAVA_HOME", str(runtime))
    assert shutil.which("java") == str(runtime / "bin" / "java")
    assert shutil.which("javac") is None


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built in isolation with a JDK."""
    target = tmp_path_factory.mktemp("archive")
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", target, REPOSITORY]
    run_command(*command, seconds=BUILD_SECONDS)
    [built] = target.glob("*.tar.gz")
    return built


@pytest.mark.usefixtures("without_jdk")
def test_a_wheel_of_the_source_archive_runs_sql_without_a_jdk(
    archive: Path, metastore: Metastore, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, archive]
    run_command(*command, seconds=BUILD_SECONDS)
    [wheel] = wheels.glob("*.whl")
    clean = Environment(tmp_path, wheel, "spark,hive,cli")

    jar = Path(clean.run("lance-bridge", "spark", "jar").stdout.strip())
    assert jar.is_relative_to(clean.directory / "environment")
    uri, root = metastore.uri, str(tmp_path / "lake")
    assert clean.python(SQL, uri, root) == "[Row(id=1, s='a'), Row(id=2, s='B')]\n"
