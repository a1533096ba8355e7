"""The wheel, installed into an empty environment with one extra at a time, does that extra's job.

Slow: each case makes a virtual environment and installs into it, from the package index. Servers
run in the environment of the tests.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_command
from install.environments import INSTALL_SECONDS, Environment, build_wheel
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

pytestmark = pytest.mark.slow

TABLE = """
import sys
import lance_bridge
import pyarrow as pa
from lance_namespace import *

impl, root, *pairs = sys.argv[1:]
ns = lance_bridge.connect(impl, dict(pair.split("=", 1) for pair in pairs))
ns.create_namespace(CreateNamespaceRequest(id=["clean"], mode="ExistOk"))
request = DeclareTableRequest(id=["clean", "t"], location=f"{root}/t.lance")
ns.declare_table(request)
ns.insert_into_table(InsertIntoTableRequest(id=["clean", "t"]), pa.table({"id": [1, 2]}))
print(ns.count_table_rows(CountTableRowsRequest(id=["clean", "t"])).count)
ns.drop_namespace(DropNamespaceRequest(id=["clean"], behavior="Cascade"))
"""
"""Makes a table in a catalog, counts its rows, and drops it."""
SPARK = """
import sys
import lance_bridge_spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
lance_bridge_spark.register(spark)
place = sys.argv[1]
rows = spark.range(5).selectExpr("id", "cast(id AS STRING) AS s")
rows.write.format("lance").mode("append").save(place)
changes = spark.range(3).selectExpr("id", "'x' AS s")
lance_bridge_spark.merge_into(changes, place, on=["id"], when_matched_update="*")
lance_bridge_spark.compact(spark, place)
print(spark.read.format("lance").load(place).filter("s = 'x'").count())
"""
EMBEDDED = """
import lance_bridge
from lance_bridge_metastore import Metastore
from lance_namespace import ListNamespacesRequest

with Metastore("2.3") as metastore:
    ns = lance_bridge.connect("hive", {"uri": metastore.uri})
    print(ns.list_namespaces(ListNamespacesRequest()).namespaces)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[[str], Environment]:
    """Makes an environment with the wheel and these extras."""
    return lambda extras: Environment(tmp_path, wheel, extras)


Install = Callable[[str], Environment]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize(("extra", "sources"), [("hive", []), ("all", ["pyspark"])])
def test_an_extra_is_installed_from_wheels_alone(
    wheel: Path, python: str, extra: str, sources: list[str], tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"lance-bridge[{extra}] @ {wheel.as_uri()}\n")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--python-version", python, "--quiet"]
    command += ["--only-binary", ":all:", str(wanted), "--output-file", str(tmp_path / "found.txt")]
    for each in sources:
        command += ["--no-binary", each]
    run_command(*command, seconds=600)
    assert "pylance==" in (tmp_path / "found.txt").read_text()


def test_without_extras_each_catalog_says_what_to_install(install: Install) -> None:
    clean = install("")
    for impl in ("hive", "glue", "unity"):
        given = {
            "hive": "uri='thrift://h:1'",
            "glue": "region='us-east-1'",
            "unity": "host='http://h'",
        }
        script = f"import lance_bridge; lance_bridge.connect('{impl}', {given[impl]})"
        error = clean.run("python", "-c", script, code=1).stderr.splitlines()[-1]
        assert f"pip install 'lance-bridge[{impl}]'" in error
    error = clean.run("lance-bridge", code=1).stderr
    assert "pip install 'lance-bridge[cli]'" in error
    # The command of the message works without an index that has the package: it is installed.
    clean.run("pip", "install", "--quiet", "lance-bridge[cli]", seconds=INSTALL_SECONDS)
    assert "hive" in clean.run("lance-bridge", "catalogs", "list").stdout


@pytest.mark.parametrize("impl", ["hive", "glue", "unity"])
def test_the_extra_of_a_catalog_alone_makes_tables(
    install: Install, metastores: Metastores, tmp_path: Path, impl: str
) -> None:
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog("lake")
        properties = {
            "hive": {"uri": metastores.get("2.3").uri},
            "glue": glue.properties,
            "unity": {"host": unity.url, "catalog": "lake"},
        }
        pairs = [f"{key}={value}" for key, value in properties[impl].items()]
        assert install(impl).python(TABLE, impl, str(tmp_path), *pairs) == "2\n"


def test_the_extra_spark_alone_writes_merges_compacts_and_reads(
    install: Install, tmp_path: Path
) -> None:
    assert install("spark").python(SPARK, str(tmp_path / "t.lance")) == "3\n"


def test_the_extra_server_alone_serves(install: Install, tmp_path: Path) -> None:
    clean = install("server")
    key = clean.run("lance-bridge", "keys", "add", "ann", "--file", "keys.json").stdout
    assert key.startswith("lbk_")
    options = ["-c", f"files=dir:root={tmp_path}/lake", "--api-keys", "keys.json", "--check"]
    assert "authentication: api_keys" in clean.run("lance-bridge", "serve", *options).stdout


def test_the_extras_of_a_migration_convert_tables(
    install: Install, metastores: Metastores, tmp_path: Path
) -> None:
    clean = install("cli,hive,spark")
    files = tmp_path / "files"
    files.mkdir()
    clean.python(
        "import sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "pq.write_table(pa.table({'id': [1, 2, 3], 'name': list('abc')}), sys.argv[1])",
        str(files / "part-0.parquet"),
    )
    namespace = f"clean_{uuid.uuid4().hex[:8]}"
    catalog = ["-p", f"uri={metastores.get('2.3').uri}", "-p", f"root={tmp_path / 'lance'}"]
    words = ["migrate", "convert", "hive", "--path", str(files), "--table", "t", "-n", namespace]
    how = ["--execute", "--verify", "checksums", "--spark-conf", "spark.master=local[1]"]
    done = json.loads(clean.run("lance-bridge", *words, *how, *catalog, "-o", "json").stdout)
    assert (done["state"], done["counts"]) == ("done", {"done": 2})
    shown = clean.run("lance-bridge", "table", "count", "hive", f"{namespace}.t", *catalog).stdout
    assert shown.strip() == "3"
    found = clean.run("lance-bridge", "doctor", "hive", *catalog[:2], "-o", "json", code=None)
    assert json.loads(found.stdout) is not None
    assert "missing-extra" not in found.stdout
    undone = clean.run("lance-bridge", "migrate", "undo", done["plan"]["id"], "-o", "json").stdout
    assert json.loads(undone)["state"] == "undone"


def test_without_the_extra_spark_nothing_is_planned(
    install: Install, metastores: Metastores, tmp_path: Path
) -> None:
    clean = install("cli,hive-embedded")  # it has PySpark, and not what that needs for Python
    uri = f"uri={metastores.get('2.3').uri}"
    words = ["migrate", "convert", "hive", "--path", str(tmp_path), "--table", "t", "-n", "x"]
    refused = clean.run("lance-bridge", *words, "-p", uri, code=1)
    assert "pip install 'lance-bridge[spark]'" in refused.stderr
    assert clean.run("lance-bridge", "migrate", "list", "-o", "json").stdout.strip() == "[]"


def test_the_extra_cli_alone_is_the_command(install: Install) -> None:
    clean = install("cli")
    listed = clean.run("lance-bridge", "catalogs", "list")
    assert "unity" in listed.stdout
    assert listed.stderr == ""
    refused = clean.run("lance-bridge", "metastore", "start", "--port", "0", code=1)
    assert "pip install 'lance-bridge[hive-embedded]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_extras_of_the_readmes_first_command_are_enough_for_its_first_table(
    install: Install, metastores: Metastores, tmp_path: Path
) -> None:
    clean = install("cli,hive-embedded")
    assert clean.python(EMBEDDED) == "['default']\n"
    uri = f"uri={metastores.get('2.3').uri}"
    clean.python(TABLE, "hive", str(tmp_path), uri)
    assert "default" in clean.run("lance-bridge", "ns", "list", "hive", "-p", uri).stdout


def test_the_extra_report_writes_a_page(
    install: Install, metastores: Metastores, tmp_path: Path
) -> None:
    clean = install("cli,hive,report")
    (tmp_path / "lake").mkdir()
    clean.python(
        "import lance, pyarrow as pa, sys; lance.write_dataset(pa.table({'a': [1]}), sys.argv[1])",
        str(tmp_path / "lake" / "t.lance"),
    )
    uri = f"uri={metastores.get('2.3').uri}"
    into = ["hive", "--namespace", "reported", "-p", uri, "--output", "json"]
    clean.run("lance-bridge", "migrate", "register", str(tmp_path / "lake"), *into)
    listed = clean.run("lance-bridge", "migrate", "list", "--output", "json").stdout
    [identifier] = {word for word in listed.split('"') if "-register-" in word}
    page = clean.run("lance-bridge", "migrate", "report", identifier).stdout
    assert ".html" in page


def test_the_extra_testing_runs_the_kit_on_a_catalog(
    install: Install, metastores: Metastores
) -> None:
    uri = f"uri={metastores.get('2.3').uri}"
    kit = ["-m", "lance_bridge.testing", "hive", "-p", uri, "-k", "rename"]
    assert "passed" in install("hive,testing").run("python", *kit).stdout
