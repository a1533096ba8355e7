"""``docs/how-to/*.md``: configurations are read, and commands run, on the example's catalog.

That is a SQLite file, in place of the one that a page has: a page needs no server to be followed.
"""

from __future__ import annotations

import base64
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import typer
import yaml
from cli.running import pasted
from lance_namespace.errors import ErrorCode
from server.certificates import Authority

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.registry import implementation
from lance_bridge_cli.app import app
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.process.factory import login_from_settings
from lance_bridge_spark.addresses import CATALOG_CLASS, catalogs_in
from lance_bridge_spark.jvm.compiling import SOURCES

from .gateway_pages import REPOSITORY, Block, Reader, blocks

pytestmark = pytest.mark.checks

PAGES = {path.stem: path for path in sorted((REPOSITORY / "docs" / "how-to").glob("*.md"))}
EXAMPLE = REPOSITORY / "examples" / "sqlite-catalog" / "src"
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
CONFIGURATIONS = [each for each in _YAML if not each[1].startswith((OF_SERVER, MANIFEST))]
NOT_RUN = ("pip install ", "apt install ", "kinit ", "python -m venv ", "environment/", "PYSPARK_")
"""How commands begin that install packages, or belong to a cluster; their pages say so."""
NOT_EXECUTED = {path for path in PAGES if path.startswith("spark")} | {"migrate"}
"""They have tests of their own: `tests/spark`, the last ones here and `test_readme_in_order`."""
FINDS = ("lance-bridge doctor prod --idle 0m", "lance-bridge managed check ")
"""Commands whose exit code is 3, as there is something to find."""
MIGRATION = re.compile(r"\d{8}-\d{6}-[a-z-]+-[0-9a-f]{6}")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A user who has a catalog `prod`, with tables in it and beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
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
    source = (REPOSITORY / "apps" / "lance_bridge_server" / "monitoring" / "metrics.py").read_text(
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
    [address] = catalogs_in(settings).values()
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
