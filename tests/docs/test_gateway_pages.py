"""``docs/gateway.md``, from its first command to its last: TLS, tokens, keys, policies, audit.

Also the lines to paste of ``docs/gateway-clients.md``, for clients that npm and Maven fetch too;
`tests/clients/engines/test_engines.py` has those for engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import lance_namespace as api
import pytest
from clients.fetched import java_client, node_packages
from lance_namespace.errors import PermissionDeniedError
from server.authenticated import IdentityProvider, Program, connect, identity_provider, serve
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace

from .gateway_pages import (
    CLIENTS_PAGE,
    PAGE,
    REPOSITORY,
    Block,
    Reader,
    blocks,
    reader_after_python,
    reader_of_clients_page,
    section,
)

RUN = ["Try it", "TLS", "Authentication", "Authorization", "The configuration", "Connect a client"]
OTHERS = ["On Kubernetes", "Under systemd"]
"""Whose blocks are read by tests of `tests/deploy`."""
NOT_RUN = ("pip install ", "lance-bridge metastore start ")
SERVE = "lance-bridge serve "
ENDS = ("--check", "--explain")
ISSUER = "https://login.example.com/realms/lake"
SERVED = "https://lance.example.com:2333"
TRIED = "http://localhost:2333"
POLICIES = "/etc/lance-bridge/policies/lake.cedar"
CONFIGURATION = "/etc/lance-bridge/server.yaml"

SECTIONS = {
    "curl": ["sh"],
    "pylance": ["python"] * 2,
    "Python without pylance": ["python"],
    "LanceDB for Python": ["python"] * 5,
    "Spark": ["python"],
}
"""The languages of the blocks that are run here, by section."""
ELSEWHERE = {"LanceDB for Node.js", "Java", "DuckDB", "lance-ray", "daft-lance"}
NOT_TESTED = {"Not tested"}
"""The section that says what could not be run, and with which settings it would be."""
POM = REPOSITORY / "tests" / "clients" / "java" / "pom.xml"


class Newcomer:
    """Follows the page: starts what it starts, and writes the files that it shows."""

    def __init__(self, reader: Reader, provider: IdentityProvider, running: ExitStack) -> None:
        self.reader, self.provider, self._running = reader, provider, running
        self.printed: list[str] = []
        self.server: Program | None = None

    def follow(self, block: Block) -> None:
        """Do what a block shows."""
        text = block.text
        if text.startswith(SERVE) and not any(each in text for each in ENDS):
            self._serve(text)
        elif block.language in ("cedar", "yaml"):
            path = Path(self.reader.here(POLICIES if block.language == "cedar" else CONFIGURATION))
            path.write_text(self.reader.here(text), encoding="utf-8")
        elif not text.startswith(NOT_RUN):
            if "TOKEN" in text:
                token = self.provider.token(sub="ann", groups=["analysts"])
                self.reader.environment["TOKEN"] = token
            self.printed.append(self.reader.follow(block))

    def _serve(self, text: str) -> None:
        """Start a server, in place of the one before; it takes a free port."""
        self._running.close()
        words = self.reader.here(text).split()[2:]
        tries = "--catalog" in words
        self.server = self._running.enter_context(serve(*words, *(["--port=0"] * tries)))
        # Not killed: its workers would stay.
        self._running.callback(self.server.process.wait, 60)
        self._running.callback(self.server.process.terminate)
        url = self.server.url.replace("127.0.0.1", "localhost")
        address = TRIED if tries else SERVED
        others = {each: text for each, text in self.reader.replaced.items() if each != address}
        self.reader.replaced = {address: url, **others}


@pytest.fixture
def newcomer(tmp_path: Path, metastores: Metastores) -> Iterator[Newcomer]:
    metastore = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    replaced = {
        "thrift://localhost:9083": metastore,
        "/etc/lance-bridge": f"{tmp_path}/etc",
        "/var/log/lance-bridge": f"{tmp_path}/log",
        "/data/lake": f"{tmp_path}/lake",
        "=./lake": f"={tmp_path}/files",
        "0.0.0.0": "127.0.0.1",
        "port: 2333": "port: 0",
    }
    with identity_provider("keycloak") as provider, ExitStack() as running:
        reader = Reader(tmp_path, {ISSUER: provider.issuer, **replaced})
        yield Newcomer(reader, provider, running)
    with HiveNamespace(uri=metastore) as namespace:
        request = api.DropNamespaceRequest(id=["sales"], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


@pytest.mark.documents
def test_the_page_runs_from_top_to_bottom(newcomer: Newcomer, tmp_path: Path) -> None:
    for block in blocks(PAGE):
        if block.section in RUN:
            newcomer.follow(block)
    printed = "".join(newcomer.printed)
    assert "authentication: oidc, api_keys" in printed
    assert "policy: analysts-read" in printed
    assert '"tables":["orders"]' in printed.replace(" ", "")
    _check_rights_of_loaders(newcomer)
    _check_stop(newcomer)
    _check_audit(tmp_path / "log" / "audit.jsonl")


def _check_rights_of_loaders(newcomer: Newcomer) -> None:
    """Loaders may not do what is `manage`."""
    reader, server = newcomer.reader, newcomer.server
    assert server is not None
    key = (reader.directory / "nightly-job.key").read_text(encoding="utf-8").strip()
    url = server.url.replace("127.0.0.1", "localhost")
    properties = {"tls.ssl_ca_cert": f"{reader.directory}/etc/ca.pem", "header.x-api-key": key}
    ns = connect(url, **properties)
    orders = ["prod", "sales", "orders"]
    with pytest.raises(PermissionDeniedError):
        ns.drop_table(api.DropTableRequest(id=orders))
    with pytest.raises(PermissionDeniedError):
        ns.rename_table(api.RenameTableRequest(id=orders, new_table_name="others"))
    with pytest.raises(PermissionDeniedError):
        ns.declare_table(
            api.DeclareTableRequest(id=[*orders[:2], "chosen"], location=f"{reader.directory}/x")
        )


def _check_stop(newcomer: Newcomer) -> None:
    assert newcomer.server is not None
    code, _, error = newcomer.server.stop()
    assert code == 0, error


def _check_audit(file: Path) -> None:
    """A server that has stopped has written the lines of all requests."""
    found = {
        (each["principal"], each["operation"], each.get("decision"))
        for each in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    }
    assert ("nightly-job", "declare_table", "allow") in found
    assert ("ann", "query_table", "allow") in found
    assert ("ann", "delete_from_table", "deny") in found


@pytest.mark.servers
def test_every_section_is_run_or_read_somewhere() -> None:
    sections = [each.section for each in blocks(PAGE)]
    assert list(dict.fromkeys(sections)) == [*RUN, *OTHERS]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("language", "text"),
    [("python", "print(1)  # 2"), ("python", "print(1)"), ("sh", "false"), ("sh", "echo $NOTHING")],
)
def test_a_block_that_does_something_else_fails(language: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Reader(tmp_path, {}).follow(Block("", language, text))


# -- the page of clients ---------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path, metastores: Metastores) -> Iterator[Reader]:
    with reader_of_clients_page(tmp_path, metastores) as found:
        yield found


def here() -> list[Block]:
    return [each for each in blocks(CLIENTS_PAGE) if each.section in SECTIONS]


@pytest.mark.documents
def test_the_lines_run_from_top_to_bottom(reader: Reader) -> None:
    reader.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    reader.environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.enabled=false pyspark-shell"
    for block in here():
        printed = reader.follow(block, own_process=block.section == "Spark")
        if block.language == "sh":
            assert '"namespaces":["prod"]' in printed.replace(" ", "")
        else:
            assert block.printed, "it says nothing of what it prints"


@pytest.mark.servers
def test_every_section_is_run_somewhere() -> None:
    found: dict[str, list[str]] = {}
    for block in here():
        found.setdefault(block.section, []).append(block.language)
    assert found == SECTIONS
    assert {each.section for each in blocks(CLIENTS_PAGE)} - set(SECTIONS) == ELSEWHERE | NOT_TESTED


@pytest.mark.servers
def test_no_line_works_without_a_key(reader: Reader) -> None:
    wrong = "lbk_0000000000000000_" + "x" * 43
    command = ["sh", "-c", reader.here(here()[0].text).replace("-fsS", "-sS")]
    answers = reader.run(command, LANCE_KEY=wrong).replace("}{", "}\n{").splitlines()
    assert [json.loads(each)["code"] for each in answers] == [16, 16]


# -- Node.js and Java -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def later_reader(
    tmp_path_factory: pytest.TempPathFactory, metastores: Metastores
) -> Iterator[Reader]:
    with reader_after_python(tmp_path_factory.mktemp("page"), metastores) as found:
        yield found


@pytest.mark.documents
def test_the_lines_for_node_run(later_reader: Reader) -> None:
    [block] = section("LanceDB for Node.js")
    script = later_reader.directory / "films.mjs"
    script.write_text(later_reader.here(block.text), encoding="utf-8")
    (later_reader.directory / "node_modules").symlink_to(node_packages() / "node_modules")
    printed = later_reader.run(["node", "--preserve-symlinks", str(script)])
    assert printed.splitlines() == block.printed
    assert len(block.printed) == 2


@pytest.mark.documents
def test_the_lines_for_java_run(later_reader: Reader) -> None:
    dependency, program = section("Java")
    assert _joined(dependency.text) in _joined(POM.read_text(encoding="utf-8"))
    source: Path = later_reader.directory / "Films.java"
    source.write_text(later_reader.here(program.text), encoding="utf-8")
    printed = later_reader.run(["java", "-cp", f"{java_client()}/*", str(source)])
    assert printed.splitlines() == program.printed
    assert len(program.printed) == 2


def _joined(text: str) -> str:
    return " ".join(text.split())
