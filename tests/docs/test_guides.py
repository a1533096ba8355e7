"""``docs/how-to`` and ``docs/write-a-catalog.md``: what they show runs on the example's catalog."""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any

import kubernetes_validate
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import typer
import yaml
from cli.program import pasted
from copier import run_copy
from lance_namespace.errors import ErrorCode
from server.certificates import Authority
from servers.processes import run_command

import lance_bridge
from lance_bridge import Catalog, LanceBridgeNamespace, registry
from lance_bridge.registry import implementation
from lance_bridge_cli.app import app
from lance_bridge_server.config import ServerSettings
from lance_bridge_server.run.server import login_from_settings
from lance_bridge_spark.addresses import (
    CATALOG_CLASS,
    SESSION_CATALOG,
    SESSION_CATALOG_CLASS,
    catalogs_in,
)
from lance_bridge_spark.jar import SOURCES

from .gateway_pages import Block, Reader, blocks
from .specs import REPOSITORY, Spec

pytestmark = pytest.mark.checks

PAGES = {path.stem: path for path in sorted((REPOSITORY / "docs" / "how-to").glob("*.md"))}
EXAMPLE = REPOSITORY / "examples" / "sqlite-catalog"
_YAML = [
    (name, block.text)
    for name, path in PAGES.items()
    for block in blocks(path)
    if block.language == "yaml"
]
OF_SERVER = "authentication:"
"""How the configuration of a server begins; others are those of catalogs."""
MANIFEST = "apiVersion:"
"""How a manifest of Kubernetes begins, whose form is checked."""
CONFIGURATIONS = [
    (name, text)
    for name, text in _YAML
    if name != "dbt" and not text.startswith((OF_SERVER, MANIFEST))
]
NOT_RUN = ("pip install ", "apt install ", "kinit ", "python -m venv ", "environment/", "PYSPARK_")
"""How commands begin that install packages, or belong to a cluster; their pages say so."""
NOT_EXECUTED = {path for path in PAGES if path.startswith("spark")} | {"dbt", "migrate"}
"""They have tests of their own: `tests/spark`, `tests/clients/test_dbt.py`, the last ones here and
`test_readme_in_order`."""
FINDS = ("lance-bridge doctor prod --idle 0m", "lance-bridge managed check ")
"""Commands whose exit code is 3, as there is something to find."""
MIGRATION = re.compile(r"\d{8}-\d{6}-[a-z-]+-[0-9a-f]{6}")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A user who has a catalog `prod`, with tables in it and beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    prod = {
        "impl": "lance_catalog_sqlite.SqliteNamespace",
        "file": str(tmp_path / "catalog.db"),
        "root": str(tmp_path / "lake"),
        "declare.grace": "0.001",
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"catalogs": {"prod": prod}}))
    fill(lance_bridge.connect("prod"), tmp_path)
    return Reader(tmp_path, {"/data/": f"{tmp_path}/"})


def fill(ns: api.LanceNamespace, directory: Path) -> None:
    """Add what pages take for granted: a table, two that were never written, and data."""
    rows = pa.table({"id": [1, 2, 3]})
    ns.create_namespace(api.CreateNamespaceRequest(id=["sales"]))
    lance.write_dataset(rows, namespace_client=ns, table_id=["sales", "articles"])
    for name in ("half", "other"):
        ns.declare_table(api.DeclareTableRequest(id=["sales", name]))
    for name in ("lake/found.lance", "tables/first.lance", "tables/second.lance"):
        lance.write_dataset(rows, str(directory / name))


def lose(directory: Path) -> None:
    """Add a table, and delete its files."""
    ns = lance_bridge.connect("prod")
    lance.write_dataset(pa.table({"id": [1]}), namespace_client=ns, table_id=["sales", "lost"])
    shutil.rmtree(directory / "lake" / "sales.db" / "lost.lance")


class Follower:
    """Follows a page; ``printed`` is what its commands printed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.printed = ""

    def follow(self, block: Block) -> None:
        """Run a block."""
        if block.language == "python":
            self._reader.follow(block)
        elif block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                if not line.strip().startswith(NOT_RUN):
                    self._command(line)

    def _command(self, line: str) -> None:
        known = MIGRATION.findall(self.printed)
        text = MIGRATION.sub(lambda _: known[0], self._reader.here(line))
        done = pasted(text)
        expected = 3 if line.startswith(FINDS) else 0
        assert done.exit_code == expected, f"{text}\n{done.output}\n{done.exception!r}"
        self.printed += done.output


@pytest.mark.parametrize("name", [name for name in PAGES if name not in NOT_EXECUTED])
def test_a_page_runs_from_top_to_bottom(name: str, reader: Reader, tmp_path: Path) -> None:
    follower = Follower(reader)
    if name == "recover":
        lose(tmp_path)
    for block in blocks(PAGES[name]):
        follower.follow(block)
    assert (SAID.get(name) or "") in follower.printed


SAID = {
    "govern-commits": "version 3",
    "connect": "staging",
    "monitor": '"tables": 3',
    "recover": "declared-only",
    "several-catalogs": "prod.sales.articles",
    "tables": '"title": "Metropolis"',
}
"""What the commands of a page must have printed."""


@pytest.mark.parametrize(
    ("page", "text"),
    CONFIGURATIONS,
    ids=[f"{name}-{n}" for n, (name, _) in enumerate(CONFIGURATIONS)],
)
def test_each_configuration_is_read(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("storage.aws_access_key_id: AKIA\nstorage.aws_secret_access_key: hidden\n")
    authority = Authority(tmp_path, "metastore-ca")
    certificate, key = authority.issue("client")
    config = tmp_path / "config.yaml"
    text = text.replace("/etc/lance-bridge", str(tmp_path))
    text = text.replace("/etc/ssl/client.pem", str(certificate))
    text = text.replace("/etc/ssl/client.key", str(key))
    config.write_text(text.replace("/etc/ssl", str(tmp_path)))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(config))
    connected = lance_bridge.connect("prod")
    assert isinstance(connected, LanceBridgeNamespace)
    assert connected.impl == dict.fromkeys(("connect", "credentials", "s3"), "hive").get(page, page)
    connected.close()


def test_users_sign_in_as_the_page_configures_it(tmp_path: Path) -> None:
    [text] = [text for _, text in _YAML if text.startswith(OF_SERVER)]
    (tmp_path / "client-secret").write_text("hidden")
    (tmp_path / "session.keys").write_bytes(base64.b64encode(bytes(32)))
    content = yaml.safe_load(text.replace("/etc/lance-bridge", str(tmp_path)))
    login = login_from_settings(ServerSettings.model_validate({"catalogs": ["prod"], **content}))
    [provider] = login.providers
    assert (provider.client.secret, login.keys) == ("hidden", [bytes(32)])


def test_the_metrics_that_are_watched_exist() -> None:
    text = PAGES["monitor"].read_text(encoding="utf-8")
    source = (REPOSITORY / "apps" / "lance_bridge_server" / "monitoring.py").read_text(
        encoding="utf-8"
    )
    watched = set(re.findall(r"(lance_bridge_\w+?)(?:_total|_bucket)\{?", text))
    assert len(watched) == 2
    assert [name for name in watched if f'"{name}"' not in source] == []
    codes = {code for each in re.findall(r'code=~?"([^"]+)"', text) for code in each.split("|")}
    assert len(codes) == 3
    assert codes <= {code.name for code in ErrorCode}


COMMAND = re.compile(r"`(?:lance-bridge )?((?:catalogs|doctor|managed|migrate|ns|table) [^`]+)`")


def mistake_in(command: str) -> str:
    """Return what is wrong with a command: a name or an option that does not exist; else empty."""
    group: Any = typer.main.get_command(app)
    words = shlex.split(command.replace("…", ""))
    while words and hasattr(group, "commands"):
        name = words.pop(0)
        group = group.get_command(typer.Context(group), name)
        if group is None:
            return f"there is no command {name}: {command}"
    known = {option for each in group.params for option in each.opts}
    unknown = [word for word in words if word.startswith("--") and word not in known]
    return f"there are no options {unknown}: {command}" if unknown else ""


def test_commands_in_texts_exist() -> None:
    pages = sorted((REPOSITORY / "docs").rglob("*.md"))
    named = [each for page in pages for each in COMMAND.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 20
    assert [mistake_in(each) for each in named if mistake_in(each)] == []


@pytest.mark.parametrize("command", ["migrate conver prod", "ns create prod x --property a=b --no"])
def test_a_command_that_does_not_exist_is_a_mistake(command: str) -> None:
    assert mistake_in(command)


# -- Spark on platforms that are not run here ------------------------------------------------------


SPARK_PAGES = [name for name in PAGES if name.startswith("spark")]
RELEASES = ("1.30", "1.37")
_SETTING = re.compile(
    r"(?<![\w.])(spark\.(?:sql|emr|yarn|kubernetes|executor|master|jars)[\w.-]*)[=\s]+(\S+)"
)


def settings_of(page: Path) -> dict[str, str]:
    """Return the settings that a page's snippets give, by name."""
    text = "\n".join(block.text for block in blocks(page) if block.language != "python")
    return dict(_SETTING.findall(text))


@pytest.mark.parametrize("name", SPARK_PAGES)
def test_settings_of_the_pages_name_what_exists(name: str) -> None:
    settings = settings_of(PAGES[name])
    found = catalogs_in(settings)
    if found.pop(SESSION_CATALOG, None) is not None:
        assert settings[f"spark.sql.catalog.{SESSION_CATALOG}"] == SESSION_CATALOG_CLASS
    [address] = found.values()
    assert settings[f"spark.sql.catalog.{address.name}"] == CATALOG_CLASS
    extension = settings["spark.sql.extensions"].replace(".", "/")
    assert (SOURCES / f"{extension}.java").is_file()
    kind = implementation(address.properties["impl"])
    assert issubclass(kind, LanceBridgeNamespace)
    known = {each.key for each in kind.config_type.declared()}
    assert {*address.properties} - {"impl"} <= known


def manifests() -> list[dict[str, object]]:
    """Return what the page about Kubernetes has the reader apply."""
    texts = [text for name, text in _YAML if name == "spark-kubernetes"]
    return [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_what_kubernetes_knows(release: str) -> None:
    kinds = {each["kind"] for each in manifests()}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "Secret", "Pod"}
    for each in manifests():
        kubernetes_validate.validate(each, release, strict=True)


# -- docs/write-a-catalog.md shows parts of the example, which is used, and passes the kit ---------


EXAMPLE_SOURCES = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLE.rglob("*.py"))]
GUIDE = Spec(REPOSITORY / "docs" / "write-a-catalog.md")
TEXT = GUIDE.path.read_text(encoding="utf-8")
PARTS = [each for each in GUIDE.snippets("python") if not each.startswith("import ")]
[USE] = [each for each in GUIDE.snippets("python") if each.startswith("import ")]
COMMANDS = [line for block in GUIDE.snippets("sh") for line in block.splitlines()]
[KIT] = [each for each in GUIDE.snippets("sh") if "lance_bridge.testing" in each]


def run(
    directory: Path, *arguments: str, code: int = 0, seconds: float = 200, **variables: str
) -> str:
    """Run Python where the example can be imported, and a package here; return what it printed."""
    places = [directory, directory / "src", EXAMPLE / "src", *sys.path]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), **variables}
    words = [sys.executable, *arguments]
    return run_command(*words, code=code, seconds=seconds, cwd=directory, env=given).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of packages in which the example is installed."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", target]
    run_command(*command, EXAMPLE)
    return target


def test_every_part_that_is_shown_is_the_examples_own() -> None:
    assert len(PARTS) > 5
    assert [part for part in PARTS if not any(part in source for source in EXAMPLE_SOURCES)] == []


def test_every_file_that_is_named_exists() -> None:
    [tree] = GUIDE.snippets("text")
    top, *rows = tree.splitlines()
    named = [row.split()[0] for row in rows]
    assert top == f"{EXAMPLE.name}/"
    assert len(named) == 4
    assert [path for path in named if not (EXAMPLE / path).is_file()] == []


@pytest.mark.spec("docs/write-a-catalog.md#use-it")
def test_the_example_is_used_as_it_is_written(installed: Path, tmp_path: Path) -> None:
    printed = run(installed, "-c", USE.replace("/tmp/", f"{tmp_path}/"))
    assert re.findall(r"^print\(.*\)  # (.*)$", USE, re.MULTILINE) == printed.splitlines()


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
def test_the_example_passes_the_kit(tmp_path: Path) -> None:
    options = ("-c", str(EXAMPLE / "pyproject.toml"), "-p", "no:cacheprovider", "-q")
    printed = run(tmp_path, "-m", "pytest", *options, str(EXAMPLE / "tests"), seconds=800)
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 260


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
def test_the_installed_example_passes_groups_of_the_kit(installed: Path, tmp_path: Path) -> None:
    command = shlex.split(KIT.replace("/tmp/", f"{tmp_path}/"))[1:]
    assert " 0 failed" in run(installed, *command, "-k", "rename or managed", seconds=800)


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
def test_the_entry_point_is_of_the_group_that_is_read() -> None:
    [shown] = GUIDE.snippets("toml")
    assert shown in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    parser = ConfigParser()
    parser.read_string(shown)
    [section] = parser.sections()
    assert section == f'project.entry-points."{registry.GROUP}"'


@pytest.mark.spec("docs/write-a-catalog.md#what-is-public")
def test_public_modules_have_the_names_of_the_table() -> None:
    rows = GUIDE.rows("What is public", "module")
    assert len(rows) == 9
    for module, names, *_ in rows:
        exported = vars(import_module(module.strip("`")))
        shown = [name for name in re.findall(r"`(\w+)`", names) if name != "__all__"]
        assert [name for name in shown if name not in exported.get("__all__", exported)] == []


def test_every_method_of_the_port_says_what_it_guarantees() -> None:
    """Errors are named, each with its code."""
    methods = [each for name, each in vars(Catalog).items() if callable(each) and name[0] != "_"]
    documented = [each.__doc__ or "" for each in methods]
    assert len(documented) > 15
    assert all(documented)
    raised = [part for text in documented for part in text.partition("Raises:")[2].splitlines()]
    named = [line for line in raised if re.match(r" {12}\w", line)]
    assert len(named) > 30
    assert [line for line in named if not re.match(r" {12}\w+Error: \(\d+\)", line)] == []


# -- the template ----------------------------------------------------------------------------------


TEMPLATE = REPOSITORY / "examples" / "catalog-template"
WRITTEN = '''"""The methods of the example."""

from lance_catalog_sqlite import SqliteCatalog
from lance_catalog_sqlite.database import Database


class DemoCatalog(SqliteCatalog):
    def __init__(self, uri: str, timeout: float) -> None:
        super().__init__(Database(uri, timeout))
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command of the guide makes."""
    [command] = [line for line in COMMANDS if line.startswith("copier copy")]
    _, _, defaults, _, data, template, name = shlex.split(command)
    assert (defaults, data) == ("--defaults", "catalog=demo")
    target = tmp_path_factory.mktemp("template") / name
    run_copy(str(REPOSITORY / template), target, {"catalog": "demo"}, quiet=True, defaults=True)
    return target


def test_nothing_of_the_template_is_left(package: Path) -> None:
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len(files) == 7
    texts = "".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in files)
    assert not re.search(r"\{\{|\{%|\.jinja", texts)


def test_every_method_of_the_port_without_a_default_is_to_be_written(package: Path) -> None:
    source = (package / "src" / "lance_catalog_demo" / "catalog.py").read_text(encoding="utf-8")
    unwritten = set(re.findall(r'raise _unwritten\("(\w+)"\)', source))
    written = {"capabilities", "describe_connection"}
    promised = {"commit_guard", "rename_table"}
    assert unwritten == Catalog.__abstractmethods__ - written | promised
    assert [name for name in written if f"def {name}(" not in source] == []


def test_it_passes_its_own_checks(package: Path) -> None:
    run(package, "-m", "ruff", "check", "--no-cache", ".")
    run(package, "-m", "ruff", "format", "--no-cache", "--check", ".")
    run(package, "-m", "mypy", "--cache-dir", os.devnull, "src", "tests")


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
def test_the_first_failure_names_the_method_to_write(package: Path) -> None:
    assert "pytest -x" in COMMANDS
    printed = run(package, "-m", "pytest", "-x", "-p", "no:cacheprovider", code=1)
    assert (
        "NotImplementedError: Write DemoCatalog.create_namespace: lance_bridge.Catalog" in printed
    )


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
@pytest.mark.documents
def test_with_its_methods_written_the_package_passes_its_own_tests(
    package: Path, tmp_path: Path
) -> None:
    catalog = package / "src" / "lance_catalog_demo" / "catalog.py"
    empty = catalog.read_text(encoding="utf-8")
    catalog.write_text(WRITTEN, encoding="utf-8")
    options = ("-m", "pytest", "-p", "no:cacheprovider")
    printed = run(package, *options, seconds=800, DEMO_URI=f"{tmp_path}/catalog.db")
    catalog.write_text(empty, encoding="utf-8")
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 100


@pytest.mark.parametrize("name", ["Demo", "1st", "a-b", ""])
def test_a_name_that_cannot_be_a_package_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="catalog"):
        run_copy(str(TEMPLATE), tmp_path / "x", {"catalog": name}, quiet=True, defaults=True)
    assert not (tmp_path / "x" / "pyproject.toml").exists()
