"""Sessions that know their catalogs by configuration alone: no program calls `register`."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from lance_namespace import CreateNamespaceRequest
from servers.processes import free_port, inherited_owners
from servers.sparks import LOCAL, ROOT, SHORT_JVM, LoggedProcess, Spark

import lance_bridge
from lance_bridge_spark.addresses import CATALOG_CLASS
from lance_bridge_spark.jvm import jar
from lance_bridge_spark.source.datasource import with_settings

EXAMPLE = ROOT / "examples" / "sqlite-catalog" / "src"
BIN = Path(pyspark.__file__).parent / "bin"
SECONDS = 900.0
"""Half a minute on a machine that does nothing else."""
THRIFT_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
STATEMENTS = (
    "INSERT INTO prod.db.t VALUES (1, 'lamp'), (2, 'shoe')",
    "SELECT concat('by sql ', name) FROM prod.db.t WHERE id = 2",
    "CREATE TEMPORARY VIEW v USING lance OPTIONS (path 'prod.db.t')",
    "SELECT concat('by name ', max(name)) FROM v",
)
PROGRAM = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).write.format("lance").mode("append").save("prod.db.numbers")
print("by name", spark.read.format("lance").load("prod.db.numbers").count())
print("by sql", spark.sql("SELECT sum(id) FROM prod.db.numbers").collect()[0][0])
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.spec(
        "docs/how-to/spark.md#what-was-run", "spark.md#configuration-without-register"
    ),
]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Properties of the catalog of `examples/`, a file, in which there is a namespace `db`."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    given = {"file": str(tmp_path / "catalog.db"), "root": str(tmp_path / "lake")}
    impl = "lance_catalog_sqlite.SqliteNamespace"
    lance_bridge.connect(impl, given).create_namespace(CreateNamespaceRequest(id=["db"]))
    return {"impl": impl, **given}


def configured(catalog: dict[str, str]) -> dict[str, str]:
    """Return the settings by which a session knows the catalog as `prod`."""
    return {
        "spark.jars": str(jar.path()),
        "spark.sql.extensions": "org.lancebridge.spark.LanceExtensions",
        "spark.sql.catalog.prod": CATALOG_CLASS,
        **{f"spark.sql.catalog.prod.{key}": value for key, value in catalog.items()},
    }


def arguments(catalog: dict[str, str], directory: Path) -> list[str]:
    """Return the same as arguments of Spark's commands, with what tests need."""
    settings = Spark(conf=configured(catalog)).settings(directory)
    settings["spark.sql.catalogImplementation"] = "in-memory"
    jars = settings.pop("spark.jars")
    pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    return ["--master", LOCAL, "--jars", jars, *pairs]


def environment() -> dict[str, str]:
    """Return an environment in which Python finds the packages of this clone."""
    inherited = {key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME") if key in os.environ}
    roots = [*(ROOT / name for name in ("core", "adapters", "apps", "tests")), EXAMPLE]
    return {
        **inherited,
        **inherited_owners(),
        **SHORT_JVM,
        "PYTHONPATH": os.pathsep.join(map(str, roots)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(command: str, *more: str, directory: Path, given: str = "") -> list[str]:
    """Run one of Spark's commands; return the lines that it has printed."""
    done = subprocess.run(
        [str(BIN / command), *more],
        input=given,
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_spark_sql(catalog: dict[str, str], tmp_path: Path) -> None:
    statements = ["CREATE TABLE prod.db.t (id BIGINT, name STRING)", *STATEMENTS]
    given = [*arguments(catalog, tmp_path), "-e", "; ".join(statements)]
    printed = run("spark-sql", *given, directory=tmp_path)
    assert [line for line in printed if line.startswith("by ")] == [
        "by sql shoe",
        "by name shoe",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["spark-submit", "pyspark"])
def test_a_program(command: str, catalog: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    given = arguments(catalog, tmp_path)
    if command == "spark-submit":
        printed = run(command, *given, str(program), directory=tmp_path)
    else:
        printed = run(command, *given, directory=tmp_path, given=PROGRAM)
    assert [line for line in printed if line.startswith("by ")] == ["by name 3", "by sql 3"]


@pytest.mark.slow
def test_a_thrift_server(catalog: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    address = {"hive.server2.thrift.port": port, "hive.server2.thrift.bind.host": "127.0.0.1"}
    server = [
        *(str(BIN / "spark-submit"), "--class", THRIFT_SERVER),
        *arguments(catalog, tmp_path),
        "spark-internal",
        *(part for key, value in address.items() for part in ("--hiveconf", f"{key}={value}")),
    ]
    statements = ["CREATE TABLE prod.db.t (id BIGINT, name STRING)", *STATEMENTS]
    with LoggedProcess(server, environment(), tmp_path, "thrift") as started:
        started.wait_for("HiveThriftServer2 started", SECONDS)
        url = f"jdbc:hive2://127.0.0.1:{port}/"
        given = ["-u", url, "-n", "tester", "--outputformat=tsv2", "--showHeader=false"]
        more = [part for each in statements for part in ("-e", each)]
        printed = run("beeline", *given, *more, directory=tmp_path)
    # The lines may begin with beeline's prompt.
    assert [line[line.index("by ") :] for line in printed if line.endswith(" shoe")] == [
        "by sql shoe",
        "by name shoe",
    ]


@pytest.mark.slow
def test_a_server_of_spark_connect(catalog: dict[str, str], tmp_path: Path) -> None:
    spark = Spark(conf=configured(catalog), environment=environment())
    with spark.connect(tmp_path, seconds=SECONDS) as remote:
        found = remote.run(
            "spark.registration_job:write_and_read",
            tmp_path,
            seconds=SECONDS,
            table="prod.db.n",
        )
    assert found == [3, 3]


@pytest.mark.servers
def test_the_extension_has_the_source_know_the_catalogs_of_the_settings(
    spark: Any, catalog: dict[str, str]
) -> None:
    """As Spark does: it calls the rule with each plan before it looks for a data source."""
    for key, value in catalog.items():
        spark.conf.set(f"spark.sql.catalog.by_setting.{key}", value)
    try:
        plan = spark.range(1)._jdf.queryExecution().analyzed()
        assert rule(spark).apply(plan) == plan
        names = spark._jsparkSession.sessionState().dataSourceManager()
        command = names.lookupDataSource("lance").dataSourceCls().command().mkString(",")
        source = pickle.loads(bytes(int(each) & 255 for each in command.split(",")))
        assert source.catalogs["by_setting"].properties == catalog
    finally:
        for key in catalog:
            spark.conf.unset(f"spark.sql.catalog.by_setting.{key}")


@pytest.mark.servers
def test_settings_of_other_catalogs_are_none_of_the_sources() -> None:
    settings = {
        "spark.sql.catalog.prod.impl": "hive",
        "spark.sql.catalog.prod.uri": "thrift://h:1",
        "spark.sql.catalog.ice": "org.example.Catalog",
        "spark.sql.catalog.ice.impl": "hive",
    }
    [(name, address)] = with_settings(json.dumps(settings)).catalogs.items()
    assert (name, address.properties) == ("prod", {"impl": "hive", "uri": "thrift://h:1"})


def rule(spark: Any) -> Any:
    """Return the rule that the extension adds to a session."""
    jvm, gateway = spark._jvm, spark._sc._gateway
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar.path())).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(
        urls, jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    made = loader.loadClass("org.lancebridge.spark.LanceExtensions")
    make = made.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    make.newInstance(gateway.new_array(jvm.java.lang.Object, 0)).apply(extensions)
    return extensions.buildHintResolutionRules(spark._jsparkSession).head()
