"""Sessions in processes of their own: what they know by their settings, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import UnsupportedOperationError
from pyspark.errors import AnalysisException
from servers.processes import free_port, inherited_owners
from servers.sparks import LOCAL, ROOT, SHORT_JVM, LoggedProcess, Spark
from servers.unity import UnityServer
from spark.python_processes import await_end, is_running, the_pid

import lance_bridge
from lance_bridge_spark.addresses import CATALOG_CLASS
from lance_bridge_spark.jvm import jar
from lance_bridge_spark.registration import register, settings

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
    pytest.mark.slow,
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
    given = Spark(conf=configured(catalog)).settings(directory)
    given["spark.sql.catalogImplementation"] = "in-memory"
    jars = given.pop("spark.jars")
    pairs = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
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


def test_spark_sql(catalog: dict[str, str], tmp_path: Path) -> None:
    statements = ["CREATE TABLE prod.db.t (id BIGINT, name STRING)", *STATEMENTS]
    given = [*arguments(catalog, tmp_path), "-e", "; ".join(statements)]
    printed = run("spark-sql", *given, directory=tmp_path)
    assert [line for line in printed if line.startswith("by ")] == [
        "by sql shoe",
        "by name shoe",
    ]


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


def test_a_server_of_spark_connect(catalog: dict[str, str], tmp_path: Path) -> None:
    spark = Spark(conf=configured(catalog), environment=environment())
    with spark.connect(tmp_path, seconds=SECONDS) as remote:
        found = remote.run(
            "spark.test_configuration:write_and_read",
            tmp_path,
            seconds=SECONDS,
            table="prod.db.n",
        )
    assert found == [3, 3]


def write_and_read(spark: Any, table: str) -> list[int]:
    """Append three rows to a table by its name; return how many there are, and their sum."""
    spark.range(3).write.format("lance").mode("append").save(table)
    rows = spark.read.format("lance").load(table).count()
    return [rows, spark.sql(f"SELECT sum(id) FROM {table}").collect()[0][0]]


# -- sessions that programs start ------------------------------------------------------------------


@pytest.mark.spec("spark.md#register")
def test_a_session_that_was_started_with_another_python_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "python3")
    started = Spark(environment={"PYSPARK_PYTHON": missing})
    message = started.run("spark.test_configuration:refusal", tmp_path)
    assert f"{missing}, which does not exist" in message
    assert "(PYSPARK_PYTHON): set PYSPARK_PYTHON to" in message


def refusal(spark: Any) -> str:
    """Register a catalog; return why that is refused."""
    try:
        register(spark, {"prod": {"impl": "hive", "uri": "thrift://localhost:1"}})
    except UnsupportedOperationError as error:
        return str(error)
    return ""


@pytest.mark.spec("spark.md#searches-in-sql")
def test_every_session_knows_the_search_function(tmp_path: Path) -> None:
    spark = Spark(conf=settings())
    started = spark.run("spark.test_configuration:failure_of_search", tmp_path, seconds=600)
    assert "lance_search needs the name" in started


def failure_of_search(spark: Any) -> str:
    """Return what a session says of a search without arguments."""
    try:
        spark.sql("SELECT * FROM lance_search()")
    except AnalysisException as error:
        return str(error)
    return ""


@pytest.mark.spec("spark.md#the-python-process-of-the-driver")
def test_the_process_ends_with_the_application(tmp_path: Path) -> None:
    with UnityServer() as server:
        server.add_catalog("main")
        properties = {"impl": "unity", "host": server.url, "catalog": "main"}
        conf = {f"spark.sql.catalog.ended.{key}": value for key, value in properties.items()}
        Spark(conf=conf).run("spark.test_configuration:end_application", tmp_path, catalog="ended")


def end_application(spark: Any, catalog: str) -> None:
    """Stop a session while its JVM goes on."""
    register(spark)
    spark.sql(f"SHOW NAMESPACES IN {catalog}").collect()
    pid = the_pid(spark)
    spark.stop()
    await_end(pid)
    assert not is_running(pid)
