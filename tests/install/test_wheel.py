"""The wheel, installed into an empty environment: each extra does its job, catalogs have names.

Slow: environments are made, and packages installed from the package index. Names of catalogs are
found each way that users install the wheel, with the dependencies of the tests' environment.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import uuid
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from install.environments import INSTALL_SECONDS, REPOSITORY, Environment, build_wheel
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.processes import run_command
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
HOOK = "lance_bridge_names.pth"
CONNECT = """
import sys
from lance_namespace import connect
assert "lance_bridge" not in sys.modules
for name, properties in {
    "hive": {"uri": "thrift://127.0.0.1:9"},
    "glue": {"region": "eu-central-1"},
    "unity": {"host": "http://127.0.0.1:9"},
}.items():
    print(type(connect(name, properties)).__name__)
print(sys.modules["lance_bridge"].__file__)
"""
IMPORTED = """
import lance_bridge
from lance_namespace import connect
print(type(connect("hive", {"uri": "thrift://127.0.0.1:9"})).__name__)
"""
CLASS_PATH = """
from lance_namespace import connect
uri = {"uri": "thrift://127.0.0.1:9"}
print(type(connect("lance_bridge_hive.HiveNamespace", uri)).__name__)
"""
UNKNOWN = """
from lance_namespace import connect
try:
    connect("hive", {"uri": "thrift://127.0.0.1:9"})
except ValueError as error:
    print("unknown")
"""
NAMES = ["HiveNamespace", "GlueNamespace", "UnityNamespace"]


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


# -- names of catalogs -----------------------------------------------------------------------------


class Place:
    """A virtual environment with the tests' dependencies, and without lance-bridge."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, symlinks=True)
        self.python = directory / "bin" / "python"
        [self.packages] = directory.glob("lib/python*/site-packages")
        # A path in a .pth file is added without the .pth files that it holds.
        (self.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, *arguments: str | Path) -> None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", self.python]
        run_command(*pip, *arguments, env=_environment())

    def run(self, script: str, *options: str, **variables: str | Path) -> list[str]:
        """Run a script, which must print no error, and return the words that it prints."""
        given = _environment(**{name: str(value) for name, value in variables.items()})
        command = [self.python, *options, "-c", dedent(script)]
        done = run_command(*command, env=given, cwd=self.packages.parent)
        assert done.stderr == ""
        return done.stdout.split()


def _environment(**variables: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    return {**inherited, **variables}


@pytest.fixture
def environment(tmp_path: Path) -> Place:
    return Place(tmp_path / "venv")


@pytest.fixture
def installed(environment: Place, wheel: Path) -> Place:
    environment.pip("install", "--no-deps", "--no-index", wheel)
    return environment


@pytest.mark.parametrize("option", ["-B", "-E", "-I"])
def test_an_installed_wheel_gives_names(installed: Place, option: str) -> None:
    *names, file = installed.run(CONNECT, option)
    assert names == NAMES
    assert Path(file).is_relative_to(installed.packages)


def test_names_are_known_to_processes_and_interpreters_that_python_starts(
    installed: Place, tmp_path: Path
) -> None:
    script = tmp_path / "started.py"
    script.write_text(
        dedent(
            """
            import multiprocessing

            def connect(name):
                import lance_namespace
                return type(lance_namespace.connect(name, {"uri": "thrift://127.0.0.1:9"})).__name__

            if __name__ == "__main__":
                for method in "spawn", "forkserver", "fork":
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(*pool.map(connect, ["hive"]))
            """
        )
    )
    assert installed.run(f"import runpy; runpy.run_path({str(script)!r})") == []
    done = run_command(installed.python, script, env=_environment())
    assert done.stdout.split() == 3 * ["HiveNamespace"]


def test_another_interpreter_of_the_process_has_the_hook(installed: Place) -> None:
    script = """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        made = interpreters.create()
        code = "import sys; print([type(f).__module__ for f in sys.meta_path][0], flush=True)"
        assert interpreters.run_string(made, code) is None
    """
    assert installed.run(script) == ["_lance_bridge_names"]


def test_without_site_nothing_is_hooked(installed: Place) -> None:
    script = "import sys; print([f for f in sys.meta_path if 'lance' in type(f).__module__])"
    assert installed.run(script, "-S") == ["[]"]


def test_an_uninstall_leaves_nothing_and_half_of_one_breaks_nothing(installed: Place) -> None:
    hook = installed.packages / HOOK
    content = hook.read_text()
    installed.pip("uninstall", "--yes", "lance-bridge")
    assert not [path.name for path in installed.packages.iterdir() if "lance" in path.name]
    hook.write_text(content)
    assert installed.run("print('started')") == ["started"]


# -- editable --------------------------------------------------------------------------------------


def test_an_editable_install_gives_names(environment: Place) -> None:
    environment.pip(
        "install", "--no-deps", "--no-index", "--no-build-isolation", "--editable", REPOSITORY
    )
    *names, file = environment.run(CONNECT)
    assert names == NAMES
    assert Path(file).is_relative_to(REPOSITORY / "core")
    environment.pip("uninstall", "--yes", "lance-bridge")
    assert not (environment.packages / HOOK).exists()


# -- where Python reads no .pth file ---------------------------------------------------------------


@pytest.fixture(params=["--target", "zip"])
def elsewhere(
    environment: Place, wheel: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Path]:
    if request.param == "zip":
        yield wheel
        return
    target = tmp_path / "target"
    environment.pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    yield target


def test_on_a_path_alone_the_class_path_works_and_names_after_an_import(
    environment: Place, elsewhere: Path
) -> None:
    assert environment.run(CLASS_PATH, PYTHONPATH=elsewhere) == ["HiveNamespace"]
    assert environment.run(UNKNOWN, PYTHONPATH=elsewhere) == ["unknown"]
    assert environment.run(IMPORTED, PYTHONPATH=elsewhere) == ["HiveNamespace"]


def test_a_target_that_is_added_as_a_site_directory_gives_names(
    environment: Place, wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    environment.pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    added = f"import site; site.addsitedir({str(target)!r})"
    assert environment.run(f"{added}\n{CONNECT}")[:3] == NAMES
