"""Sessions in processes of their own, set up as pages say: what they know, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyspark
import pytest
from docs.gateway_pages import Block, blocks
from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import UnsupportedOperationError
from pyspark.errors import AnalysisException
from servers.metastores import Metastores
from servers.processes import free_port, inherited_owners
from servers.sparks import LOCAL, ROOT, SHORT_JVM, LoggedProcess, Spark
from servers.unity import UnityServer

import lance_bridge
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.ui.table_page import snippets_for
from lance_bridge_spark import jar
from lance_bridge_spark.addresses import CATALOG_CLASS
from lance_bridge_spark.registration import register, settings

from .processes import await_end, is_running, the_pid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spec(
        "docs/how-to/spark.md#what-was-run",
        "spark.md#configuration-without-register",
        "docs/how-to/spark-standalone.md#a-job",
        "spark.md#register",
        "server.md#the-catalog-page",
    ),
]

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
PAGE = ROOT / "docs" / "how-to" / "spark-standalone.md"
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
PATH = ["page", "connect_page", "articles"]


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
    assert [line for line in printed if line.startswith("by ")] == ["by sql shoe", "by name shoe"]


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
    statements = ["CREATE TABLE prod.db.t (id BIGINT, name STRING)", *STATEMENTS]
    printed = through_thrift(arguments(catalog, tmp_path), statements, tmp_path)
    # The lines may begin with beeline's prompt.
    assert [line[line.index("by ") :] for line in printed if line.endswith(" shoe")] == [
        "by sql shoe",
        "by name shoe",
    ]


def through_thrift(given: list[str], statements: list[str], directory: Path) -> list[str]:
    """Run statements in beeline, on a Thrift server with arguments; return the printed lines."""
    port = free_port()
    address = {"hive.server2.thrift.port": port, "hive.server2.thrift.bind.host": "127.0.0.1"}
    server = [
        *(str(BIN / "spark-submit"), "--class", THRIFT_SERVER),
        *given,
        "spark-internal",
        *(part for key, value in address.items() for part in ("--hiveconf", f"{key}={value}")),
    ]
    with LoggedProcess(server, environment(), directory, "thrift") as started:
        started.wait_for("HiveThriftServer2 started", SECONDS)
        url = f"jdbc:hive2://127.0.0.1:{port}/"
        options = ["-u", url, "-n", "tester", "--outputformat=tsv2", "--showHeader=false"]
        more = [part for each in statements for part in ("-e", each)]
        return run("beeline", *options, *more, directory=directory)


def test_a_server_of_spark_connect(catalog: dict[str, str], tmp_path: Path) -> None:
    spark = Spark(conf=configured(catalog), environment=environment())
    with spark.connect(tmp_path, seconds=SECONDS) as remote:
        found = remote.run(
            "spark.test_configuration:write_and_read", tmp_path, seconds=SECONDS, table="prod.db.n"
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


def environment_of_page(**more: str) -> dict[str, str]:
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
    given = environment_of_page(SPARK_WORKER_DIR=str(directory / "work"))
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
    line = refused_registration(cluster, PYSPARK_PYTHON="./here/python")
    assert "./here/python, which does not exist or cannot be run, on executors such as " in line


def test_a_python_of_executors_without_the_packages_is_named_at_registration(
    cluster: Cluster,
) -> None:
    """The driver and the executors find different ones on their paths."""
    place_python(cluster.directory / "driver" / _NAME)
    path = os.pathsep.join([str(cluster.directory / "driver"), cluster.environment["PATH"]])
    line = refused_registration(cluster, PYSPARK_PYTHON=_NAME, PATH=path)
    assert f"{_NAME}, which lacks lance, pyarrow, on executors such as " in line


def place_python(path: Path) -> None:
    """Make a program that runs this Python, with its packages."""
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)


def refused_registration(cluster: Cluster, **environment: str) -> str:
    """Register a catalog in a session; return the one line that says why it is refused."""
    program = cluster.directory / "registers.py"
    program.write_text(_REGISTERS)
    command = f"spark-submit --properties-file lance.conf {program}"
    done = cluster.run(command, PYSPARK_DRIVER_PYTHON=sys.executable, **environment)
    [line] = done.stdout.splitlines() or [done.stderr]
    assert line.startswith("UnsupportedOperationError Spark's Python workers would run"), line
    return line


def _lines(location: str, *, has_catalog: bool) -> str:
    found = snippets_for(
        "http://h", PATH, location, "api_key", database=None, has_catalog=has_catalog
    )
    return next(each.text for each in found if each.title == "Spark")


def test_the_lines_load_by_location_and_by_name(
    spark: Any, metastores: Metastores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri, root=str(tmp_path)) as hive:
        hive.create_namespace(api.CreateNamespaceRequest(id=PATH[1:2]))
        client: dict[str, Any] = {"namespace_client": hive, "table_id": PATH[1:]}
        location = lance.write_dataset(pa.table({"title": ["Black clock 5"]}), **client).uri
        try:
            for has_catalog in (False, True):
                exec(_lines(location, has_catalog=has_catalog), {"spark": spark})
                assert "Black clock 5" in capsys.readouterr().out
            spark.conf.set("spark.sql.catalog.page.impl", "hive")
            spark.conf.set("spark.sql.catalog.page.uri", uri)
            exec(_lines(str(tmp_path / "absent"), has_catalog=True), {"spark": spark})
            assert "Black clock 5" in capsys.readouterr().out
        finally:
            request = api.DropNamespaceRequest(id=PATH[1:2], behavior="Cascade")
            hive.drop_namespace(request)
