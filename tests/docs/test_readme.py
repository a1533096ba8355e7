"""README and pages are true: their connections, options, extras and files exist.

`test_readme_in_order` and `test_how_to` run them.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from commands import run_command
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from servers.glue_server import GlueServer
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge import kit_options

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "docs").rglob("*.md"))
}
URI = "thrift://metastore:9083"
UNITY = "http://unity:8080"
CONNECTED = dict(re.findall(r'\| `(lance_bridge\.connect\("(\w+)", .*\))` \|', README))
"""The line that connects, to the implementation."""


@pytest.mark.servers
def test_glue_and_unity_answer_as_the_readme_connects_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(CONNECTED.values()) == {"hive", "glue", "unity"}
    lines = {impl: line for line, impl in CONNECTED.items()}
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog("lake")
        for key, value in glue.properties.items():
            monkeypatch.setenv(f"LANCE_BRIDGE_GLUE_{key.upper()}", value)
        for name in ("glue", "unity"):
            line = lines[name].replace(UNITY, unity.url)
            namespace = eval(line, {"lance_bridge": lance_bridge})
            namespace.create_namespace(CreateNamespaceRequest(id=["sales"]))
            assert namespace.list_namespaces(ListNamespacesRequest()).namespaces == ["sales"]
            place = f"{tmp_path}/{name}"
            namespace.declare_table(DeclareTableRequest(id=["sales", "t"], location=place))
            assert namespace.list_tables(ListTablesRequest(id=["sales"])).tables == ["t"]


@pytest.mark.checks
def test_every_make_target_that_is_named_exists() -> None:
    text = "".join([README, CONTRIBUTING, *PAGES.values()])
    targets = set(re.findall(r"(?:^ *|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        run_command("make", "--dry-run", target, cwd=REPOSITORY)


@pytest.mark.checks
def test_the_options_of_the_kit_exist(capsys: pytest.CaptureFixture[str]) -> None:
    [command] = re.findall(r"^python -m (lance_bridge\.testing .*)$", PAGES["tested"], re.MULTILINE)
    with pytest.raises(SystemExit):
        kit_options.parse(["--help"])
    shown = capsys.readouterr().out
    for option in re.findall(r"(?<= )--?[a-z-]+", command):
        assert option in shown


@pytest.mark.checks
def test_every_extra_has_a_row_and_every_install_line_names_extras() -> None:
    declared = set(metadata.metadata("lance-bridge").get_all("Provides-Extra") or [])
    table = PAGES["install"].partition("## Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` +\|", table, re.MULTILINE)) == declared
    lines = r"pip install '(?:\.|lance-bridge|\./lance_bridge-[\w.-]+\.whl)\[([a-z,-]+)\]'"
    named = re.findall(lines, "".join([README, *PAGES.values()]))
    assert len(named) > 10
    assert {extra for each in named for extra in each.split(",")} <= declared


@pytest.mark.checks
def test_every_file_that_is_named_exists() -> None:
    folders = "core|adapters|apps|specs|docs|examples|tests|docker|demo|bench|requirements"
    named = re.findall(rf"[`(]((?:{folders})/[\w./-]*)[`)]", README + CONTRIBUTING)
    known = {"core/lance_bridge/", "apps/lance_bridge_spark/", "docs/write-a-catalog.md"}
    assert known <= set(named)
    assert [path for path in named if not (REPOSITORY / path).exists()] == []
